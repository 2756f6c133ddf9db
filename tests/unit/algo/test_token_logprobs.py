"""Chunked log-probabilities equal the direct computation, in values, gradients and memory."""

import pytest
import torch  # noqa: TID253
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: TID253

from pacs.algo import token_logprobs

T, D, V = 23, 5, 11


def make_inputs(dtype=torch.float64, tokens=T, vocabulary=V):
    generator = torch.Generator().manual_seed(0)
    hidden_TD = torch.randn(tokens, D, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    weight_VD = torch.randn(vocabulary, D, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    return hidden_TD, weight_VD, torch.randint(0, vocabulary, (tokens,), generator=generator)


def direct(hidden_TD, weight_VD, token_T, temperature):
    distribution = torch.distributions.Categorical(logits=hidden_TD @ weight_VD.T / temperature)
    return distribution.log_prob(token_T), distribution.entropy()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("chunk_tokens", [1, 7, T, 1000])
def test_equals_the_direct_computation(temperature, chunk_tokens):
    hidden_TD, weight_VD, token_T = make_inputs()
    upstream_T = torch.linspace(-1, 2, T, dtype=torch.float64)
    expected_T, expected_entropy_T = direct(hidden_TD, weight_VD, token_T, temperature)
    expected_grads = torch.autograd.grad((upstream_T * expected_T).sum(), (hidden_TD, weight_VD))

    out = token_logprobs(
        hidden_TD, weight_VD, token_T, temperature=temperature, chunk_tokens=chunk_tokens, with_entropy=True
    )
    grads = torch.autograd.grad((upstream_T * out.logp_T).sum(), (hidden_TD, weight_VD))
    assert torch.allclose(out.logp_T, expected_T, rtol=0, atol=1e-12)
    assert torch.allclose(out.entropy_T, expected_entropy_T, rtol=0, atol=1e-12)
    assert not out.entropy_T.requires_grad
    for grad, expected in zip(grads, expected_grads, strict=True):
        assert torch.allclose(grad, expected, rtol=0, atol=1e-12)


def test_entropy_is_not_computed_unless_asked_for():
    assert token_logprobs(*make_inputs()).entropy_T is None


def test_no_tokens_give_no_log_probabilities_and_zero_gradients():
    hidden_TD, weight_VD, token_T = make_inputs(tokens=0)
    token_logprobs(hidden_TD, weight_VD, token_T).logp_T.sum().backward()
    assert hidden_TD.grad.shape == (0, D)
    assert not weight_VD.grad.any()


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_input_gets_no_gradient(frozen):
    inputs = make_inputs()
    inputs[frozen].requires_grad_(False)
    token_logprobs(*inputs).logp_T.sum().backward()
    assert inputs[frozen].grad is None
    assert inputs[1 - frozen].grad is not None


def test_bfloat16_weights_give_single_precision_log_probabilities_and_bfloat16_gradients():
    hidden_TD, weight_VD, token_T = make_inputs(torch.bfloat16)
    out = token_logprobs(hidden_TD, weight_VD, token_T, chunk_tokens=4)
    out.logp_T.sum().backward()
    expected_T, _ = direct(hidden_TD.detach().float(), weight_VD.detach().float(), token_T, 1.0)
    assert out.logp_T.dtype == torch.float32
    assert hidden_TD.grad.dtype == weight_VD.grad.dtype == torch.bfloat16
    assert torch.allclose(out.logp_T, expected_T, rtol=0, atol=0.05)


class LargestTensor(TorchDispatchMode):
    """Records the largest number of elements any operation put out."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


def test_no_tensor_outgrows_a_chunk():
    tokens, vocabulary, chunk_tokens = 640, 97, 16
    hidden_TD, weight_VD, token_T = make_inputs(tokens=tokens, vocabulary=vocabulary)
    with LargestTensor() as largest:
        out = token_logprobs(hidden_TD, weight_VD, token_T, chunk_tokens=chunk_tokens, with_entropy=True)
        out.logp_T.sum().backward()
    assert largest.elements == max(tokens * D, chunk_tokens * vocabulary)
    assert largest.elements < tokens * vocabulary / 10


@pytest.mark.parametrize(
    ("change", "message"),
    [({"temperature": 0.0}, "must be positive"), ({"chunk_tokens": 0}, "must be positive")],
)
def test_numbers_that_are_not_positive_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        token_logprobs(*make_inputs(), **change)


def test_shapes_that_do_not_fit_are_refused():
    hidden_TD, weight_VD, token_T = make_inputs()
    with pytest.raises(ValueError, match="must have shapes"):
        token_logprobs(hidden_TD, weight_VD, token_T[1:])
