"""The merge against numbers worked out by hand, and against itself."""

import pytest
import torch  # noqa: TID253

from pacs.algo import merge_lora

W = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
A = torch.tensor([[1.0, 0.0, -1.0]])
B = torch.tensor([[2.0], [-3.0]])


def test_the_product_is_scaled_and_added():
    merged = merge_lora(W, A, B, 0.5)
    assert merged.tolist() == [[2.0, 2.0, 2.0], [2.5, 5.0, 7.5]]
    assert W.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "the base stays as it is"


def test_an_adapter_that_was_not_touched_changes_no_bit():
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        base = torch.randn(48, 32, generator=generator).to(dtype)
        a = torch.randn(4, 32, generator=generator).to(dtype)
        assert torch.equal(merge_lora(base, a, torch.zeros(48, 4, dtype=dtype), 2.0), base)


def test_bfloat16_is_rounded_once_at_the_end():
    """1 + 2⁻⁸ lies between two bfloat16 numbers; an intermediate rounding of B·A or of the sum would lose the half."""
    base = torch.tensor([[1.0]], dtype=torch.bfloat16)
    a, b = torch.full((2, 1), 2.0**-9).bfloat16(), torch.ones(1, 2).bfloat16()
    b[0, 1] = 1.0 + 2.0**-7
    exact = 1.0 + 2.0**-9 * (1.0 + 1.0 + 2.0**-7)
    assert merge_lora(base, a, b, 1.0).item() == torch.tensor(exact).bfloat16().item() == 1.0078125
    assert (base + b @ a).item() == 1.0


def test_it_is_the_same_bits_every_time_and_a_linear_layer_of_its_own():
    generator = torch.Generator().manual_seed(1)
    base, a, b = (torch.randn(*shape, generator=generator) for shape in ((64, 96), (8, 96), (64, 8)))
    merged = merge_lora(base, a, b, 2.0)
    assert all(torch.equal(merged, merge_lora(base, a, b, 2.0)) for _ in range(3))
    x = torch.randn(16, 96, generator=generator, dtype=torch.float64)
    expected = x @ base.double().T + 2.0 * (x @ a.double().T) @ b.double().T
    torch.testing.assert_close(x @ merged.double().T, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("a", "b"), [((1, 2), (2, 1)), ((1, 3), (3, 1)), ((2, 3), (2, 1)), ((3,), (2, 1))])
def test_shapes_that_do_not_fit_are_refused(a, b):
    with pytest.raises(ValueError, match=r"\[O, I\], \[R, I\] and \[O, R\], got \(2, 3\)"):
        merge_lora(W, torch.zeros(a), torch.zeros(b), 1.0)
