"""The learner's gradient on a world's ranks against that of whole groups by autograd; `ranks_worker.py` runs it."""

import numpy as np
import torch  # noqa: TID253  # it is all about tensors
import torch.nn.functional as F  # noqa: TID253
from safetensors.torch import load_file
from whole_groups import relative_error

from pacs.algo import coefficients, token_logprobs
from pacs.testing import make_config, make_labeled_group
from services.learner import logprob_kernel
from services.learner.batches import make_batch
from services.learner.engine import SequenceLogprobs
from services.learner.objective import make_objective
from services.learner.one_pass import GroupCoefficients

STILL = 1e-38  # a learning rate with which no weight changes by a bit: every batch sees the same policy


def read_batch(case):
    """The batch of a case as `test_gradient.py` wrote it."""
    return make_batch(
        [
            make_labeled_group(
                number, group["labels"], responses=group["responses"], token_ids=np.array(group["prompt"], np.int32)
            )
            for number, group in enumerate(case["groups"])
        ]
    )


def gradients(scenario):
    """Of each case in either arithmetic, as the optimizer gets it: its error, and rank 0's micro-batches."""
    seen, cases = {}, scenario.spec["cases"]
    settings = {
        "learner.learning_rate": STILL,
        "learner.weight_decay": 0.0,
        "learner.microbatch_tokens": scenario.spec["microbatch_tokens"],
    }
    with scenario.engine(lambda local: _watch(local, seen, len(cases)), **settings) as (engine, _):
        if engine is None:
            return None
        return {
            arithmetic: {case["name"]: _compare(engine, case, seen) for case in cases}
            for arithmetic in ("float32", "float64")
        }


def _compute_in_float64(local):
    """Widen weights where they are used, for DeepSpeed keeps none in float64: rounding then hides nothing."""
    for module in local._policy.modules():
        if isinstance(module, torch.nn.Linear):
            module.forward = lambda x, linear=module: F.linear(x, linear.weight.to(x.dtype), linear.bias)
    local._policy.get_input_embeddings().register_forward_hook(lambda module, inputs, out: out.double())
    logprob_kernel.token_logprobs = _widened_logprobs


def _widened_logprobs(hidden_TD, weight_VD, *rest, **options):
    return token_logprobs(hidden_TD, weight_VD.to(hidden_TD.dtype), *rest, **options)


def _watch(local, seen, cases):
    """Keep what every rank back-propagates, and the whole gradient when it is used; go on in float64 after some steps.

    Every rank counts its steps, so that all of them change over between the same two.
    """
    from deepspeed.utils import safe_get_full_grad

    forward, clip = local._forward, local._clip

    def watched_forward(micro_batch):
        if torch.is_grad_enabled():
            seen["micro_batches"] = [*seen.get("micro_batches", []), micro_batch.rows.tolist()]
        return forward(micro_batch)

    def watched_clip(norm):
        clip(norm)
        found = {name: safe_get_full_grad(p) for name, p in local._policy.named_parameters()}  # collective
        seen["gradient"] = {name: gradient.detach().clone() for name, gradient in found.items()}
        seen["steps"] = seen.get("steps", 0) + 1
        if seen["steps"] == 2 * cases:  # the case's two passes and its one
            _compute_in_float64(local)

    local._forward, local._clip = watched_forward, watched_clip


def _compare(engine, case, seen):
    batch = read_batch(case)
    ref_logp_B = torch.tensor(case["ref_logp"], dtype=torch.float64)
    rows = np.arange(len(ref_logp_B))
    logp_B = torch.from_numpy(engine.logprobs(batch, rows).sum_B)
    label_B, valid_B = torch.from_numpy(batch.label_B), torch.from_numpy(batch.valid_B)
    count = int(valid_B.sum())
    coefficient_B = coefficients(logp_B, ref_logp_B, label_B, valid_B, group_size=batch.group_size, count=count).numpy()
    seen["micro_batches"] = []
    engine.backward(batch, np.flatnonzero(coefficient_B), np.repeat(coefficient_B, batch.response_tokens_B))
    two_passes = {**_errors(engine, case, seen), "micro_batches": seen["micro_batches"]}
    seen["micro_batches"] = []
    computed = engine.one_pass(batch, rows, _group_coefficients(batch, rows, case["ref_logp"]))
    off_B = np.abs(computed.sum_B - logp_B.numpy())
    one_pass = {**_errors(engine, case, seen), "micro_batches": seen["micro_batches"], "off_logp": off_B.max()}
    return {"two_passes": two_passes, "one_pass": one_pass}


def _errors(engine, case, seen):
    assert engine.step().applied
    return {
        "error": relative_error(seen["gradient"], load_file(case["gradient"])),
        "off_single_pass": relative_error(seen["gradient"], load_file(case["single_pass"])),
    }


def _group_coefficients(batch, rows, ref_logp):
    """Against a reference that gives each response its sum with the first token, exactly."""
    objective = make_objective(make_config())
    tokens = [np.zeros(int(length)) for length in batch.response_tokens_B]
    for of_tokens, of_response in zip(tokens, ref_logp, strict=True):
        of_tokens[0] = of_response
    reference = SequenceLogprobs(tuple(tokens), 0.0)
    return GroupCoefficients(objective, batch, objective.select(batch), rows, None, reference)
