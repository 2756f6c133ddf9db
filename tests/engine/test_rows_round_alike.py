"""A log-prob has the same bits whatever its row passes with: in float32, for rows this CPU's products round alike."""

from pathlib import Path

import numpy as np
import pytest

from services.learner.plans import padded_length

pytestmark = pytest.mark.engine

MODEL = Path(__file__).resolve().parents[2] / "examples" / "models" / "tiny-arithmetic"
PROMPT_TOKENS = 9
LENGTHS = [1, 2, 5, 6, 7, 8, 22, 23, 24, 39, 40, 70, 120, 182, 183, 250]  # of responses: about all the kernels' blocks
PADDED = padded_length(PROMPT_TOKENS + np.array(LENGTHS)).tolist()


@pytest.fixture(scope="module")
def batch():
    from pacs.testing import make_labeled_group
    from services.learner.batches import make_batch

    rng = np.random.default_rng(0)
    responses = [rng.integers(4, 260, length).tolist() for length in LENGTHS]
    prompt = rng.integers(4, 260, PROMPT_TOKENS).astype(np.int32)
    return make_batch([make_labeled_group(0, [1, 0] * (len(LENGTHS) // 2), responses=responses, token_ids=prompt)])


@pytest.fixture(scope="module")
def logprobs(batch):
    """Of each row's response, given which rows pass together."""
    import torch
    from transformers import AutoModelForCausalLM

    from services.learner.batches import pad
    from services.learner.logprob_kernel import LogprobKernel
    from services.learner.policy import ResponseLogprobs

    policy = AutoModelForCausalLM.from_pretrained(MODEL)
    wrapped = ResponseLogprobs(policy, None, LogprobKernel("torch", "tested"), 1.0, chunk_tokens=100)

    def compute(rows):
        part = pad(batch, np.array(rows), 0)
        arrays = (part.input_ids_bL, part.row_N, part.column_N, part.target_N)
        with torch.no_grad():
            logp_N = wrapped(*map(torch.as_tensor, arrays))[0].numpy()
        return {row: logp_N[part.row_N == place] for place, row in enumerate(rows)}

    return compute


@pytest.fixture(scope="module")
def promised(alike_tokens):
    """The rows that are short enough for this CPU."""
    return [row for row, padded in enumerate(PADDED) if padded <= alike_tokens]


@pytest.fixture(scope="module")
def together(logprobs, promised):
    return logprobs(promised)


@pytest.mark.parametrize("row", range(len(LENGTHS)))
def test_alone_or_with_others(logprobs, promised, together, row):
    if row not in promised:
        pytest.skip(f"nothing is promised for {PADDED[row]} tokens on this CPU: docs/design/0014-rows-of-sixteen.md")
    assert np.array_equal(logprobs([row])[row], together[row])


@pytest.mark.parametrize("seed", range(8))
def test_with_any_others_in_any_order(logprobs, promised, together, seed):
    rng = np.random.default_rng(seed)
    rows = rng.permutation(promised)[: rng.integers(2, len(promised))].tolist()
    for row, found in logprobs(rows).items():
        assert np.array_equal(found, together[row])
