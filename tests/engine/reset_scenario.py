"""Resets and references that several ranks must agree on: the learning rate after one, and who may read one's parts."""

from pathlib import Path

import numpy as np

from services.learner.batches import make_batch
from services.learner.handler import LearnerHandler

SNAPSHOT = {"algorithm.reference": "manual"}
RATE, WARM_STEPS, STEPS = 0.01, 3, 4  # batches before the reset, and after it


class References:
    """Log-probs of one batch, as lists that survive JSON to the bit."""

    def __init__(self, scenario):
        self._batch = make_batch(scenario.batch(5))
        self._parts = np.array_split(np.arange(len(self._batch)), 2)

    def of_policy(self, engine):
        return [engine.logprobs(self._batch, rows).sum_B.tolist() for rows in self._parts]

    def of_reference(self, engine):
        kept = engine.reference_logprobs(self._batch, self._parts, whole_groups=[False] * len(self._parts))
        return [of_part.sum_B.tolist() for of_part in kept]


def rewarmed(scenario):
    """Learning rates around a reset that warms up anew, and around one that does not."""
    return {name: _rates(scenario, warm_up=warm_up) for name, warm_up in (("anew", True), ("on", False))}


def _rates(scenario, *, warm_up):
    used, reported = [], []

    def watch(local):
        step = local._engine.step

        def look_and_step():
            used.append(local._engine.optimizer.param_groups[0]["lr"])
            step()

        local._engine.step = look_and_step

    settings = {**SNAPSHOT, "learner.warmup_steps": WARM_STEPS, "learner.learning_rate": RATE}
    with scenario.engine(watch, **settings) as (engine, _):
        if engine is not None:
            handler = LearnerHandler(scenario.config(**settings), engine)
            for seed in range(2 * STEPS):
                if seed in (0, STEPS):
                    engine.take_reference()
                if seed == STEPS:
                    engine.reset_optimizer(warm_up=warm_up)
                reported.append(handler.train(scenario.batch(seed), 1)["learning_rate"])
    ranks = scenario.world.ranks
    return {"reported": reported, "used": [scenario.world.total(rate) / ranks for rate in used]}


def others_reference(scenario):
    """Continue with a reference that another number of ranks wrote, and write it again."""
    references, folder = References(scenario), Path(scenario.spec["folder"])
    with scenario.engine(**SNAPSHOT) as (engine, _):
        if engine is None:
            return None
        engine.load(Path(scenario.spec["written"]))
        result = {"reference": references.of_reference(engine), "policy": references.of_policy(engine)}
        folder.mkdir(parents=True)
        engine.save(folder)
        return result


def kept_whole(local):
    """How many of the reference's parameters lie whole on this rank beside its part of them (ZeRO 3)."""
    parameters = local._reference._parameters.values()
    return sum(p.ds_status.name == "AVAILABLE" for p in parameters if hasattr(p, "ds_status"))
