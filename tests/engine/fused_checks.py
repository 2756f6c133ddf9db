"""Liger's kernel against float64 and against torch, on CPU by Triton's interpreter. Run by `test_fused_kernel.py`."""

import math

import deepspeed_checks
import numpy as np
import pytest
import torch  # noqa: TID253 - run in a process of its own
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: TID253

from pacs.algo import token_logprobs
from pacs.algo.fused_logprobs import fused_token_logprobs
from services.learner import deepspeed_engine, kernel_trial
from services.learner.logprob_kernel import Installed

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]  # of DeepSpeed and transformers, not ours

start, reference, batch = deepspeed_checks.start, deepspeed_checks.reference, deepspeed_checks.batch

T, D, V = 37, 24, 301  # no multiple of a chunk or of a block of the kernel
CHUNK_TOKENS = 10
ROUNDING = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-9}


def make_inputs(dtype, tokens=T, width=D, vocabulary=V):
    generator = torch.Generator().manual_seed(0)
    hidden_TD = torch.randn(tokens, width, generator=generator).to(dtype).requires_grad_()
    weight_VD = (torch.randn(vocabulary, width, generator=generator) / 3).to(dtype).requires_grad_()
    return hidden_TD, weight_VD, torch.randint(0, vocabulary, (tokens,), generator=generator)


def coefficients():
    """Of either sign, of sizes apart, and some 0."""
    coefficient_T = torch.randn(T, generator=torch.Generator().manual_seed(1)) * torch.logspace(-3, 1, T)
    coefficient_T[[0, 5, 6, T - 1]] = 0.0
    return coefficient_T


def direct(hidden_TD, weight_VD, token_T, temperature):
    """In float64, by autograd alone, of the very numbers the kernel gets."""
    hidden_TD, weight_VD = (tensor.detach().double().requires_grad_() for tensor in (hidden_TD, weight_VD))
    logits_TV = hidden_TD @ weight_VD.T / temperature
    logp_T = logits_TV.log_softmax(-1)[torch.arange(len(token_T)), token_T]
    (coefficients().double() * logp_T).sum().backward()
    return logp_T.detach(), hidden_TD.grad, weight_VD.grad, float(logits_TV.detach().abs().max())


def computed(function, inputs, temperature):
    out = function(*inputs, temperature=temperature, chunk_tokens=CHUNK_TOKENS)
    return out.logp_T.detach(), *torch.autograd.grad((coefficients() * out.logp_T).sum(), inputs[:2])


def relative_error(got, expected):
    return float((got.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("dtype", "temperature"),
    [(torch.float32, 1.0), (torch.float32, 0.6), (torch.bfloat16, 1.0), (torch.bfloat16, 0.5), (torch.bfloat16, 2.0)],
)
def test_log_probs_and_gradients_are_those_of_float64(dtype, temperature):
    inputs = make_inputs(dtype)
    *expected, largest_logit = direct(*inputs, temperature)
    logp_T, *gradients = computed(fused_token_logprobs, inputs, temperature)
    torch_logp_T, *torch_gradients = computed(token_logprobs, inputs, temperature)

    # A logit is rounded once, its sum of D products and the division a few times more in float32; two enter a log-prob.
    logit_error = largest_logit * ROUNDING[dtype] * (1 if dtype == torch.bfloat16 else 4)
    assert logp_T.dtype == torch.float32
    assert float((logp_T - expected[0]).abs().max()) < 2 * logit_error
    # Probabilities err by as much as their logits, relatively. Their gradient, the coefficient, the product of the two
    # and the sum over tokens or vocabulary are rounded too.
    for got, by_torch, right, of in zip(gradients, torch_gradients, expected[1:], inputs, strict=False):
        assert got.dtype == of.dtype
        assert relative_error(got, right) < 2 * logit_error + 4 * ROUNDING[dtype]
        assert relative_error(got, right) < 3 * relative_error(by_torch, right), "torch rounds one time of those three"
    assert float((logp_T - torch_logp_T).abs().max()) < 2 * logit_error


def test_late_chunks_count_in_bfloat16():
    """Chunk by chunk 1 is added; in bfloat16 the sum would stop at 256."""
    tokens = 600
    weight_VD = torch.zeros(tokens, 1, dtype=torch.bfloat16, requires_grad=True)
    hidden_TD, token_T = torch.ones(tokens, 1, dtype=torch.bfloat16), torch.zeros(tokens, dtype=torch.int64)
    fused_token_logprobs(hidden_TD, weight_VD, token_T, chunk_tokens=1).logp_T.sum().backward()
    assert float(weight_VD.grad[0]) == pytest.approx(tokens, rel=0.01)


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_input_gets_no_gradient_and_the_other_all_of_it(frozen):
    inputs = make_inputs(torch.float32)
    expected = direct(*inputs, 1.0)[2 - frozen]
    inputs[frozen].requires_grad_(False)
    logp_T = fused_token_logprobs(*inputs, chunk_tokens=CHUNK_TOKENS).logp_T
    (coefficients() * logp_T).sum().backward()
    assert inputs[frozen].grad is None
    assert relative_error(inputs[1 - frozen].grad, expected) < 1e-6


def test_a_tied_head_gets_the_gradients_of_both_its_uses():
    _, weight_VD, token_T = make_inputs(torch.float32)
    ids_T = token_T.roll(1)
    logp_T = fused_token_logprobs(weight_VD[ids_T].tanh(), weight_VD, token_T, chunk_tokens=CHUNK_TOKENS).logp_T
    (coefficients() * logp_T).sum().backward()
    right_VD = weight_VD.detach().double().requires_grad_()
    right_T = (right_VD[ids_T].tanh() @ right_VD.T).log_softmax(-1)[torch.arange(T), token_T]
    (coefficients().double() * right_T).sum().backward()
    assert relative_error(weight_VD.grad, right_VD.grad) < 1e-6


def test_without_gradient_the_numbers_are_the_same():
    inputs = make_inputs(torch.float32)
    with torch.no_grad():
        alone_T = fused_token_logprobs(*inputs, chunk_tokens=CHUNK_TOKENS).logp_T
    assert not alone_T.requires_grad
    assert torch.equal(alone_T, fused_token_logprobs(*inputs, chunk_tokens=CHUNK_TOKENS).logp_T)


@pytest.mark.parametrize(("chunk_tokens", "every"), [(1000, 1), (T, 1), (T - 1, 2), (10, 4), (1, T)])
def test_the_entropy_is_the_mean_over_a_chunk_of_tokens_that_lie_evenly(chunk_tokens, every):
    inputs = make_inputs(torch.float32)
    out = fused_token_logprobs(*inputs, temperature=0.6, chunk_tokens=chunk_tokens, with_entropy=True)
    entropy_T = token_logprobs(*inputs, temperature=0.6, with_entropy=True).entropy_T
    assert len(entropy_T[::every]) <= chunk_tokens
    assert out.entropy_T.shape == (T,)
    assert not out.entropy_T.requires_grad
    assert torch.allclose(out.entropy_T, entropy_T[::every].mean(), rtol=0, atol=1e-5)


class LargestTensor(TorchDispatchMode):
    """Records the largest number of elements any operation put out; bytes are the interpreter's."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                self.elements = max(self.elements, tensor.numel())
        return out


@pytest.mark.parametrize(
    ("tokens", "width", "vocabulary", "chunk_tokens", "largest"),
    [
        (200, 3, 97, 64, 64),
        (200, 3, 97, 63, 32),  # the power of two below
        (200, 3, 97, 100, 64),
        (40, 3, 97, 64, 40),  # one chunk
        (200, 30, 97, 16, 64),  # T · D / V is 62: the kernel makes no smaller ones
    ],
)
def test_logits_of_no_more_tokens_exist_than_said(tokens, width, vocabulary, chunk_tokens, largest):
    hidden_TD, weight_VD, token_T = make_inputs(torch.float32, tokens, width, vocabulary)
    with LargestTensor() as seen:
        out = fused_token_logprobs(hidden_TD, weight_VD, token_T, chunk_tokens=chunk_tokens, with_entropy=True)
        out.logp_T.sum().backward()
    assert seen.elements == largest * vocabulary
    assert largest <= chunk_tokens or largest < 2 * math.ceil(tokens * width / vocabulary)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_trial_passes_and_leaves_the_runs_random_numbers_alone(dtype):
    torch.manual_seed(3)
    state = torch.get_rng_state()
    assert kernel_trial.try_out(dtype, "cpu") is None
    assert torch.equal(torch.get_rng_state(), state)


@pytest.fixture
def start_fused(start, monkeypatch):
    """An engine that takes the interpreter for a GPU."""
    monkeypatch.setattr(Installed, "here", lambda: Installed(cuda=True, triton=True, liger="0.8.5"))
    monkeypatch.setattr(deepspeed_engine, "try_out", lambda dtype: kernel_trial.try_out(dtype, "cpu"))

    def started(**overrides):
        engine = start(**{"learner.logprob_kernel": "liger", **overrides})
        assert engine.describe()["logprob_kernel"] == "liger (liger-kernel 0.8.5 agrees with torch on this GPU)"
        return engine

    return started


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_learner_computes_the_log_probs_of_transformers(start_fused, reference, batch, temperature):
    deepspeed_checks.test_logprobs_are_those_of_transformers(start_fused, reference, batch, temperature)


def test_the_learner_computes_the_gradient_of_autograd(start_fused, reference, batch):
    deepspeed_checks.test_the_gradient_is_autograds_over_all_micro_batches(start_fused, reference, batch, False, 1.0)


def test_the_learner_trains_in_bfloat16(start_fused, batch):
    engine = start_fused(**{"model.dtype": "bfloat16"})
    before = deepspeed_checks.weights(engine)
    assert deepspeed_checks.train(engine, batch, seed=0).applied
    assert any(not torch.equal(before[name], after) for name, after in engine.named_tensors())
    assert np.isfinite(engine.logprobs(batch, deepspeed_checks.every(batch)).entropy)
