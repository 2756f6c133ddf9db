"""The gradient that reaches the optimizer against that of whole groups in one pass, on a trained model that has moved.

Two passes, micro-batches and ranks change the order of additions and nothing else, so the two gradients agree to 1e-6:
in float64 (DeepSpeed reduces and keeps them in float32), and in float32 too, though both are 1.3e-5 to 3.9e-5 off the
true gradient there. For a log-prob has the same bits whatever its row passes with, where this CPU's products allow it
(`test_rows_round_alike.py`); the one pass is by autograd alone, on rows padded to the learner's multiples, and takes
log-softmax and sums in float64.
"""

import json
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.engine

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MODEL = EXAMPLES / "models" / "tiny-arithmetic"
GROUPS = {2: 8, 8: 4, 64: 1}  # of each size
RANKS = (1, 2, 3)
STAGES = (0, 1, 2, 3)
MICROBATCH_TOKENS = 192
MOVED = 0.02  # of a weight's standard deviation
SHORTEST, MEDIAN, LONGEST = 2, 24, 140  # tokens of a response
LONGEST_ROW = 160  # tokens, with its prompt and its padding
SPREAD = 0.64  # of the logarithm: the 99th percentile is ten times the 10th


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """The example model with a little noise on every matrix; its scores against the example model are about ±0.5."""
    import torch
    from transformers import AutoModelForCausalLM

    root = tmp_path_factory.mktemp("moved")
    moved = AutoModelForCausalLM.from_pretrained(MODEL)
    noise = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in moved.parameters():
            if weight.dim() > 1:
                weight += MOVED * weight.std() * torch.randn(weight.shape, generator=noise)
    moved.save_pretrained(root)
    return root


@pytest.fixture(scope="module")
def cases(policy, tmp_path_factory):
    """By group size: sampled groups, their log-probs under the reference, and where their true gradient is written."""
    root = tmp_path_factory.mktemp("gradients")
    return {size: _make_case(policy, root, size, groups) for size, groups in GROUPS.items()}


def _make_case(policy, root, size, groups):
    import torch
    from gradient_scenario import read_batch
    from safetensors.torch import save_file
    from whole_groups import group_rows, load_policy, relative_error, response_logprobs, whole_group_gradient

    case = {
        "name": str(size),
        "groups": _sample(policy, size, groups),
        "gradient": str(root / f"{size}.safetensors"),
        "single_pass": str(root / f"{size}-single.safetensors"),
    }
    batch = read_batch(case)
    reference = load_policy(MODEL, torch.float64)
    with torch.no_grad():
        ref_logp_B = torch.cat([response_logprobs(reference, batch, rows) for rows in group_rows(batch)])
    true, _, score_B = whole_group_gradient(load_policy(policy, torch.float64), batch, ref_logp_B)
    single, *_ = whole_group_gradient(load_policy(policy, torch.float32), batch, ref_logp_B)
    save_file(true, case["gradient"])
    save_file(single, case["single_pass"])
    return {
        **case,
        "ref_logp": ref_logp_B.tolist(),
        "lengths": batch.response_tokens_B.tolist(),
        "score": score_B.tolist(),
        "single_pass_error": relative_error(single, true),
    }


def _sample(policy, size, groups):
    """Completions of the policy itself, cut at lengths as those of reasoning are spread."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    rng = np.random.default_rng(size)
    torch.manual_seed(size)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(policy), AutoTokenizer.from_pretrained(MODEL)
    problems = (EXAMPLES / "data" / "arithmetic_train.jsonl").read_text().splitlines()[:groups]
    sampled = []
    for problem in problems:
        prompt = tokenizer(json.loads(problem)["prompt"])["input_ids"]
        lengths = np.exp(rng.normal(np.log(MEDIAN), SPREAD, size)).clip(SHORTEST, LONGEST).astype(int)
        longest = {"min_new_tokens": int(lengths.max()), "max_new_tokens": int(lengths.max())}
        ids = torch.tensor([prompt] * size)
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, **longest)
        responses = [row[len(prompt) :][:length].tolist() for row, length in zip(out, lengths, strict=True)]
        labels = [1, 0, *rng.integers(0, 2, size - 2).tolist()]
        sampled.append({"prompt": prompt, "responses": responses, "labels": labels})
    if size > 2:
        sampled[0]["labels"][-1] = -1  # nobody judged it
    if groups > 1:
        sampled[-1]["labels"] = [1] * size  # all correct, but not all scored alike
    return sampled


@pytest.fixture(scope="module")
def outcomes(run_world, policy, cases):
    """Of every arithmetic, way, world, stage and group size."""
    found = {}
    common = {"scenario": "gradients", "model": str(policy), "group_size": 2, "groups": 1}
    for ranks in RANKS:
        specs = {
            str(stage): {
                **common,
                "stage": stage,
                "cases": list(cases.values()),
                "microbatch_tokens": MICROBATCH_TOKENS,
            }
            for stage in STAGES
        }
        for stage, outcome in run_world(f"gradient-{ranks}", ranks, specs).items():
            for arithmetic in ("float32", "float64"):
                for size in GROUPS:
                    for way, figures in outcome[arithmetic][str(size)].items():
                        found[arithmetic, way, ranks, int(stage), size] = figures
    return found


EVERY = pytest.mark.parametrize(
    ("ranks", "stage", "size"), [(ranks, stage, size) for ranks in RANKS for stage in STAGES for size in GROUPS]
)


WAYS = pytest.mark.parametrize("way", ["two_passes", "one_pass"])


@EVERY
@WAYS
def test_the_learner_finds_the_gradient_of_whole_groups(outcomes, way, ranks, stage, size):
    assert outcomes["float64", way, ranks, stage, size]["error"] < 1e-6


@EVERY
@WAYS
def test_in_single_precision_too_and_as_near_the_true_gradient(outcomes, cases, alike_tokens, way, ranks, stage, size):
    outcome = outcomes["float32", way, ranks, stage, size]
    assert outcome["off_single_pass"] < 1e-6
    if way == "one_pass" and alike_tokens >= LONGEST_ROW:
        assert outcome["off_logp"] == 0, "the pass with gradient rounds as the one without, in any packing"
    assert outcome["error"] < 1.1 * cases[size]["single_pass_error"]


@EVERY
def test_groups_are_split_over_micro_batches_and_ranks(outcomes, cases, ranks, stage, size):
    """Rank 0 tells of its micro-batches; what is in none of them is another rank's."""
    groups = np.arange(size * GROUPS[size]).reshape(-1, size)
    for arithmetic in ("float64", "float32"):
        micro_batches = outcomes[arithmetic, "two_passes", ranks, stage, size]["micro_batches"]
        own = [row for part in micro_batches for row in part]
        assert len(own) == len(set(own)), "no row twice"
        parts = [sum(bool(set(group) & set(part)) for part in micro_batches) for group in groups]
        elsewhere = [
            bool(set(group) & set(own)) and bool(set(group) - set(own) - _unjudged(cases[size])) for group in groups
        ]
        assert any(elsewhere) == (ranks > 1), "a group is on several ranks"
        assert max(parts) > 1 or size == 2, "a group is in several micro-batches of one rank"
        assert max(parts) > 1 or ranks > 1
        if size == 64:
            assert min(parts) > 4


def _unjudged(case):
    labels = [label for group in case["groups"] for label in group["labels"]]
    return {row for row, label in enumerate(labels) if label == -1}


@pytest.mark.parametrize("size", GROUPS)
def test_the_case_is_a_hard_one(cases, size):
    score, lengths = np.array(cases[size]["score"]), np.array(cases[size]["lengths"])
    assert np.abs(score).mean() > 0.1, "the policy has moved off the reference"
    assert lengths.max() / lengths.min() > 8
    assert max(len(group["prompt"]) for group in cases[size]["groups"]) + lengths.max() <= LONGEST_ROW
