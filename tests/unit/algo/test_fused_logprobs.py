"""What the fused kernel is not given; what it computes, `tests/engine/test_fused_kernel.py` checks."""

import pytest
import torch  # noqa: TID253

from pacs.algo.fused_logprobs import applies_exactly, fused_token_logprobs

T, D, V = 5, 3, 11


def make_inputs(dtype=torch.float32, tokens=T):
    hidden_TD = torch.ones(tokens, D, dtype=dtype, requires_grad=True)
    weight_VD = torch.ones(V, D, dtype=dtype, requires_grad=True)
    return hidden_TD, weight_VD, torch.arange(tokens)


@pytest.mark.parametrize(
    ("temperature", "dtype", "exactly"),
    [
        (0.6, torch.float32, True),
        (0.6, torch.bfloat16, False),
        (1.5, torch.bfloat16, False),
        (1.0, torch.bfloat16, True),
        (0.25, torch.bfloat16, True),
        (4.0, torch.bfloat16, True),
        (0.6, torch.float16, False),
    ],
)
def test_bfloat16_is_divided_by_powers_of_two_only(temperature, dtype, exactly):
    assert applies_exactly(temperature, dtype) is exactly


@pytest.mark.parametrize(("dtype", "temperature"), [(torch.bfloat16, 0.6), (torch.float64, 1.0), (torch.float16, 1.0)])
def test_what_would_be_rounded_is_refused(dtype, temperature):
    with pytest.raises(ValueError, match=f"{dtype} at temperature={temperature:g}; use token_logprobs"):
        fused_token_logprobs(*make_inputs(dtype), temperature=temperature)


@pytest.mark.parametrize("token", [-100, -1, V])
def test_tokens_outside_of_the_vocabulary_are_refused(token):
    hidden_TD, weight_VD, token_T = make_inputs()
    token_T[2] = token
    with pytest.raises(ValueError, match=rf"must lie in 0…{V - 1}.*got {min(0, token)} to {max(T - 1, token)}"):
        fused_token_logprobs(hidden_TD, weight_VD, token_T)


@pytest.mark.parametrize("change", [{"temperature": 0.0}, {"chunk_tokens": 0}])
def test_numbers_that_are_not_positive_are_refused(change):
    with pytest.raises(ValueError, match="must be positive"):
        fused_token_logprobs(*make_inputs(), **change)


def test_shapes_that_do_not_fit_are_refused():
    hidden_TD, weight_VD, token_T = make_inputs()
    with pytest.raises(ValueError, match="must have shapes"):
        fused_token_logprobs(hidden_TD, weight_VD, token_T[1:])


def test_no_tokens_give_no_log_probabilities_and_zero_gradients():
    hidden_TD, weight_VD, token_T = make_inputs(tokens=0)
    out = fused_token_logprobs(hidden_TD, weight_VD, token_T, with_entropy=True)
    out.logp_T.sum().backward()
    assert out.entropy_T.shape == (0,)
    assert hidden_TD.grad.shape == (0, D)
    assert not weight_VD.grad.any()
