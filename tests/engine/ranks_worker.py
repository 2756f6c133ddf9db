"""One rank of a small world that runs a list of scenarios; `test_ranks.py` starts them and reads what rank 0 writes.

`python ranks_worker.py SPEC.json` with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in the environment.
Every rank builds the scenario's engine; rank 0 then plays the scenario and the others follow its orders.
"""

import contextlib
import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch  # noqa: TID253  # every scenario is about its tensors
from gradient_scenario import gradients
from reset_scenario import SNAPSHOT, References, kept_whole, others_reference, rewarmed
from value_scenario import values
from whole_groups import load_policy, token_logprobs_of, whole_group_gradient

from pacs.errors import BadInput
from pacs.testing import make_config, make_labeled_group
from services.learner import deepspeed_engine, deepspeed_setup
from services.learner.batches import make_batch
from services.learner.deepspeed_engine import DeepSpeedEngine
from services.learner.handler import LearnerHandler
from services.learner.lora import published_parameters
from services.learner.order_channel import OrderChannel
from services.learner.ranked_engine import RankedEngine, follow
from services.learner.world import World, launcher_store

EPSILON = 1.0  # Adam's: with 1 its first step is g/(|g|+1), smooth in the gradient where 1e-8 would show only its sign
VOCABULARY = 256
LORA_RANK, LORA_ALPHA = 4, 16.0


class Scenario:
    """What a spec says, and how to build engines for it."""

    def __init__(self, spec, world):
        self.spec = spec
        self.world = world
        self.channel = OrderChannel(world) if world.ranks > 1 else None

    def config(self, **overrides):
        settings = {
            "model.path": self.spec["model"],
            "model.dtype": self.spec.get("dtype", "float32"),
            "model.lora": {"rank": LORA_RANK, "alpha": LORA_ALPHA} if self.spec.get("lora") else {},
            "model.max_tokens": 512,
            "rollout.group_size": self.spec["group_size"],
            "rollout.max_sequences": 512,
            "run.groups_per_step": self.spec["groups"],
            "learner.learning_rate": 1.0,
            "learner.weight_decay": 1e-3,
            "learner.adam_betas": [0.9, 0.95],
            "learner.max_grad_norm": self.spec.get("max_grad_norm", 0.0),
            "learner.microbatch_tokens": 96,
            "learner.logit_chunk_tokens": 32,
            "learner.ranks": self.world.ranks,
            "learner.zero_stage": self.spec["stage"],
            "learner.gradient_checkpointing": self.spec.get("gradient_checkpointing", False),
            "publication.bucket_bytes": 2**16,
        }
        return make_config({**settings, **overrides})

    def batch(self, seed):
        return [self._group(seed, index) for index in range(self.spec["groups"])]

    def _group(self, seed, index):
        rng = np.random.default_rng((seed, index))
        size = self.spec["group_size"]
        lengths = rng.integers(2, 17, size)
        labels = [1, 0, *rng.integers(0, 2, size - 2).tolist()]  # groups of one label have no gradient at first
        return make_labeled_group(
            100 * seed + index,
            labels,
            responses=[rng.integers(3, VOCABULARY, length).tolist() for length in lengths],
            token_ids=rng.integers(3, VOCABULARY, rng.integers(2, 9)).astype(np.int32),
        )

    @contextlib.contextmanager
    def engine(self, prepare=lambda local: None, **overrides):
        """The engine on rank 0, None elsewhere, where the block begins when rank 0's has ended."""
        local = DeepSpeedEngine.start(self.config(**overrides), self.world)
        for group in local._engine.optimizer.param_groups:
            group["eps"] = EPSILON
        prepare(local)
        if self.world.rank > 0:
            follow(local, self.channel)
            yield None, local
        elif self.channel is None:
            yield local, local
        else:
            engine = RankedEngine(local, self.channel)
            yield engine, local
            engine.dismiss()
        local.close()


def weights(engine):
    return {name: tensor.detach().clone() for name, tensor in engine.named_tensors()}


def digest(tensors):
    joined = hashlib.sha256()
    for name, tensor in tensors.items():
        joined.update(name.encode() + tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return joined.hexdigest()


def relative(found, wanted):
    """Largest ‖found − wanted‖ / ‖wanted‖ over the tensors."""
    return max(
        float(torch.linalg.norm(found[name].double() - value.double()) / torch.linalg.norm(value.double()))
        for name, value in wanted.items()
    )


def autograd_gradient(model_path, groups):
    """Of the PACS loss of whole groups, in float64, without any of the learner's machinery."""
    model = load_policy(model_path, torch.float64)
    batch = make_batch(groups)
    gradient, logp_B, _ = whole_group_gradient(model, batch)
    with torch.no_grad():
        first_1L, _ = token_logprobs_of(model, batch, np.array([0]))
    first_T = first_1L[0, : len(batch.token_ids_B[0]) - 1]  # without the padding
    return gradient, {name: p.detach() for name, p in model.named_parameters()}, logp_B, first_T


def first_step(scenario):
    """One batch in two passes against whole-batch autograd: log-probs, norm, weights; then what is published."""
    with scenario.engine() as (engine, _):
        if engine is None:
            return None
        groups = scenario.batch(1)
        gradient, before, logp_B, first_T = autograd_gradient(scenario.spec["model"], groups)
        batch = make_batch(groups)
        rows = np.arange(len(batch.label_B))
        logprobs = engine.logprobs(batch, rows).sum_B
        floor = noise_floor(engine, batch)
        probed = engine.probe(batch.token_ids_B[0])
        figures = LearnerHandler(scenario.config(), engine).train(groups, 1)
        norm = float(torch.sqrt(sum((g**2).sum() for g in gradient.values())))
        limit = scenario.spec.get("max_grad_norm", 0.0)
        factor = min(1.0, limit / (norm + 1e-6)) if limit else 1.0
        after = weights(engine)
        settings = scenario.config().learner
        moved = {name: after[name].double() - value for name, value in before.items()}
        decay = 1 - settings.learning_rate * settings.weight_decay
        expected = {
            name: value * (decay - 1) - settings.learning_rate * g / (g.abs() + EPSILON)
            for name, value in before.items()
            for g in [gradient[name] * factor]
        }
        shapes = {meta.name: meta.shape for meta in engine.manifest()}
        return {
            "logprob_error": float(np.abs(logprobs - logp_B.numpy()).max()),
            "probe_error": float(np.abs(probed - first_T.numpy()).max()),
            "noise_floor": floor,
            "norm": norm,
            "norm_error": abs(figures["grad_norm"] - norm) / norm,
            "weight_error": relative(after, {name: value + expected[name] for name, value in before.items()}),
            "moved_error": relative(moved, expected),
            "moved": relative(after, before),
            "manifest_is_whole": shapes == {name: tuple(value.shape) for name, value in before.items()},
            "dtypes": sorted({meta.dtype for meta in engine.manifest()}),
        }


def first_step_of_adapters(scenario):
    """As `first_step`, with dL/dB = scale · dL/dW · Aᵀ by hand; A has no gradient while B is 0."""
    with scenario.engine() as (engine, _):
        if engine is None:
            return None
        groups = scenario.batch(1)
        of_weights, _, _, _ = autograd_gradient(scenario.spec["model"], groups)
        before = {name: value.double() for name, value in weights(engine).items()}
        figures = LearnerHandler(scenario.config(), engine).train(groups, 1)
        after = {name: value.double() for name, value in weights(engine).items()}
        scale, settings = LORA_ALPHA / LORA_RANK, scenario.config().learner
        decay = 1 - settings.learning_rate * settings.weight_decay
        gradient, expected = {}, {}
        for name, value in before.items():
            if ".lora_A." in name:
                expected[name] = value * decay
            else:
                of_weight = of_weights[name.replace(".lora_B", "")]
                gradient[name] = scale * of_weight @ before[name.replace("lora_B", "lora_A")].T
                expected[name] = -settings.learning_rate * gradient[name] / (gradient[name].abs() + EPSILON)
        norm = float(torch.sqrt(sum((g**2).sum() for g in gradient.values())))
        return {
            "norm_error": abs(figures["grad_norm"] - norm) / norm,
            "weight_error": relative(after, expected),
            "moved": min(float(after[name].abs().max()) for name in gradient),
            "pairs": len(gradient),
            "tensors": len(engine.manifest()),
        }


def noise_floor(engine, batch):
    """Largest |ψ| of a policy against itself, seen the second time row by row, on rank 0."""
    rows = np.arange(len(batch.label_B))
    together = engine.logprobs(batch, rows).sum_B
    alone = np.concatenate([engine.logprobs(batch, row).sum_B for row in rows[:, None]])
    ratio_PG = (together - alone).reshape(-1, batch.group_size)
    others_PG = (ratio_PG.sum(1, keepdims=True) - ratio_PG) / (batch.group_size - 1)
    return float(np.abs(ratio_PG - others_PG).max())


def continuation(scenario):
    """Save, train on; load into the same engine and into a new one, train on: the same bits."""
    folder = Path(scenario.spec["folder"])
    result = {}
    with scenario.engine() as (engine, _):
        if engine is not None:
            handler = LearnerHandler(scenario.config(), engine)
            handler.train(scenario.batch(1), 1)
            folder.mkdir(parents=True)
            engine.save(folder)
            result["saved"] = digest(weights(engine))  # a publication right after a checkpoint
            result["went_on"] = _train_twice(handler, scenario, engine)
            engine.load(folder)
            result["loaded"] = digest(weights(engine))
            result["same_engine"] = _train_twice(handler, scenario, engine)
    with scenario.engine() as (engine, _):
        if engine is not None:
            engine.load(folder)
            result["new_engine"] = _train_twice(LearnerHandler(scenario.config(), engine), scenario, engine)
    return result


def _train_twice(handler, scenario, engine):
    for seed in (2, 3):
        handler.train(scenario.batch(seed), 1)
    return digest(weights(engine))


def other_world(scenario):
    """Continue a checkpoint that other ranks wrote, or hear why not."""
    with scenario.engine() as (engine, _):
        if engine is None:
            return None
        try:
            engine.load(Path(scenario.spec["folder"]))
        except BadInput as error:
            return {"refused": str(error)}
        loaded = digest(weights(engine))
        LearnerHandler(scenario.config(), engine).train(scenario.batch(2), 1)
        return {"loaded": loaded}


def not_finite(scenario):
    """A gradient that is not finite on one rank: no rank steps, nothing stays behind."""
    with scenario.engine() as (engine, local):
        if engine is None:
            return None
        handler = LearnerHandler(scenario.config(), engine)
        handler.train(scenario.batch(1), 1)
        folder = Path(scenario.spec["folder"])
        folder.mkdir(parents=True)
        engine.save(folder)
        before = digest(weights(engine))
        result = {"norms": [], "applied": [], "unchanged": []}
        for poison in (np.nan, np.inf):
            batch = make_batch(scenario.batch(4))
            coefficient_B = np.full(len(batch.label_B), 0.01)
            coefficient_B[-1] = poison
            engine.backward(batch, np.arange(len(coefficient_B)), np.repeat(coefficient_B, batch.response_tokens_B))
            outcome = engine.step()
            result["norms"].append(str(outcome.grad_norm))
            result["applied"].append(outcome.applied)
            result["unchanged"].append(digest(weights(engine)) == before)
        result["steps"] = local._schedule_steps
        result["after_skips"] = _train_twice(handler, scenario, engine)
        engine.load(folder)
        result["without_skips"] = _train_twice(handler, scenario, engine)
        return result


def reset(scenario):
    """After a reset the optimizer is what a new one around the same weights is, on every rank, field by field."""
    folder, seen, result = Path(scenario.spec["folder"]), {}, {}

    def watch(local):
        original = local.reset_optimizer

        def reset_and_look(*, warm_up):
            seen["trained"] = fields(local)
            original(warm_up=warm_up)
            seen["reset"] = fields(local)

        local.reset_optimizer = reset_and_look

    with scenario.engine(watch) as (engine, _):
        if engine is not None:
            handler = LearnerHandler(scenario.config(), engine)
            _train_twice(handler, scenario, engine)
            batch = make_batch(scenario.batch(4))
            coefficient_N = np.full(int(batch.response_tokens_B.sum()), 0.1)
            engine.backward(batch, np.arange(len(batch.label_B)), coefficient_N)  # to be forgotten
            engine.reset_optimizer(warm_up=True)
            engine.export(folder)
            result["after_reset"] = _train_twice(handler, scenario, engine)
    with (
        _starting_from(scenario, folder) as settings,
        scenario.engine(lambda local: seen.update(fresh=fields(local)), **settings) as (engine, _),
    ):
        if engine is not None:
            result["fresh"] = _train_twice(LearnerHandler(scenario.config(), engine), scenario, engine)
    differences = unequal(seen["reset"], seen["fresh"])
    result["steps_before"] = seen["trained"]["state 0 step"]
    result["names"] = sorted(seen["fresh"])
    result["differences_here"] = differences
    result["differences"] = scenario.world.total(len(differences))
    result["changed"] = scenario.world.total(len(unequal(seen["trained"], seen["fresh"])))
    return result


def reference(scenario):
    """A snapshot through training, checkpoint and reload: its log-probs stay, the policy's weights are not touched."""
    folder, result, references = Path(scenario.spec["folder"]), {}, References(scenario)
    with scenario.engine(**SNAPSHOT) as (engine, local):
        if engine is not None:
            engine.take_reference()
            first = result["first"] = references.of_policy(engine)
            handler = LearnerHandler(scenario.config(**SNAPSHOT), engine)
            result["at_first"] = engine.at_reference
            trained = _train_twice(handler, scenario, engine)
            result["at_reference"] = engine.at_reference
            moved = references.of_policy(engine)  # after a forward pass stage 3 keeps small parameters whole
            result["policy_moved"] = moved != first
            result["kept_whole"] = kept_whole(local)
            result["kept"] = references.of_reference(engine) == first
            result["policy_kept"] = references.of_policy(engine) == moved and digest(weights(engine)) == trained
            folder.mkdir(parents=True)
            engine.save(folder)
            result["went_on"] = _train_twice(handler, scenario, engine)
            engine.take_reference()
            now = references.of_policy(engine)
            result["taken"] = references.of_reference(engine) == now != first
    with scenario.engine(**SNAPSHOT) as (engine, _):
        if engine is not None:
            engine.load(folder)
            result["loaded"] = references.of_reference(engine) == first
            handler = LearnerHandler(scenario.config(**SNAPSHOT), engine)
            result["continued"] = _train_twice(handler, scenario, engine)
    return result


@contextlib.contextmanager
def _starting_from(scenario, folder):
    """Settings by which a new engine begins with what was exported: weights, or adapters over the old base."""
    if not scenario.spec.get("lora"):
        yield {"model.path": folder}
        return
    from safetensors.torch import load_file

    original = deepspeed_engine.load_policy

    def load_with_adapters(config):
        policy = original(config)
        adapters = load_file(folder / "adapter" / "adapter_model.safetensors")
        for name, parameter in published_parameters(policy).items():
            parameter.data.copy_(adapters[f"base_model.model.{name}"])
        return policy

    deepspeed_engine.load_policy = load_with_adapters
    try:
        yield {}
    finally:
        deepspeed_engine.load_policy = original


def fields(local):
    """Everything the optimizer of one rank holds, by name, copied."""
    wrapper = local._engine.optimizer
    inner = getattr(wrapper, "optimizer", wrapper)
    store = local._gradients
    trained = (p for p in local._engine.module.parameters() if p.requires_grad)
    masters = store._masters() if hasattr(store, "_masters") else trained
    found = {"schedule_steps": local._schedule_steps, "dirty": local._dirty}
    for index, master in enumerate(masters):
        found[f"master {index}"] = _weights_of(wrapper, index, master)
        found[f"gradient of master {index}"] = None if master.grad is None else master.grad.clone()
        for name, value in inner.state.get(master, {}).items():
            found[f"state {index} {name}"] = value.clone() if value.dim() else float(value)
    found["states"] = len(inner.state)
    for index, group in enumerate(inner.param_groups):
        found.update({f"group {index} {name}": value for name, value in group.items() if name not in ("params", "lr")})
    return found


def _weights_of(wrapper, index, master):
    """A master without padding: what lies between stage 3's parts of parameters is no weight and never read."""
    if not hasattr(wrapper, "fp32_partitioned_groups_flat"):
        return master.detach().clone()
    parts, paddings = wrapper.fp16_partitioned_groups[index], wrapper.groups_padding[index]
    return torch.cat(wrapper._get_lean_tensors(master.detach(), parts, paddings))


def unequal(one, other):
    """Names of fields that differ, missing ones included."""
    return [
        name
        for name in sorted(one.keys() | other.keys())
        if not (
            torch.equal(one[name], other[name])
            if isinstance(one.get(name), torch.Tensor) and isinstance(other.get(name), torch.Tensor)
            else one.get(name, "missing") == other.get(name, "missing")
        )
    ]


PLAYED = (
    first_step,
    first_step_of_adapters,
    gradients,
    continuation,
    other_world,
    not_finite,
    reset,
    rewarmed,
    reference,
    others_reference,
    values,
)
SCENARIOS = {f.__name__: f for f in PLAYED}


def main(spec_path):
    specs = json.loads(Path(spec_path).read_text())
    deepspeed_setup.PERSISTENT_ELEMENTS = specs["persistent_elements"]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    world = World.alone() if ranks == 1 else World.join(launcher_store(hosts=rank == 0), rank, ranks, rank)
    results = {}
    for name, spec in specs["scenarios"].items():
        results[name] = SCENARIOS[spec["scenario"]](Scenario(spec, world))
        if rank == 0:
            sys.stderr.write(f"{name}: {results[name]}\n")
    if rank == 0:
        Path(specs["results"]).write_text(json.dumps(results))
    world.barrier()
    world.leave()


if __name__ == "__main__":
    main(sys.argv[1])
