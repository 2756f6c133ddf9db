"""Admits training prompts, in order and bounded. Pure but for the streams: what may be admitted is arithmetic."""

import time

from pacs.data.problems import problem_index
from pacs.runtime.config import RunConfig
from pacs.transport.interface import GroupStreams, Ledger
from pacs.wire.groups import Prompt, encode_prompt
from services.control.problem_set import PreparedProblem, ProblemSet
from services.control.run_state import Phase, RunState

__all__ = ["Admission", "admissible", "make_prompt"]


def admissible(ledger: Ledger, live_groups: int, capacity: int, wanted: int) -> int:
    """How many more groups may be admitted now.

    Args:
        ledger: of the training lane.
        live_groups: groups whose gradient is in the live weights; their slots are free.
        capacity: groups that may be between admission and live weights.
        wanted: groups the run trains on in all; a dropped one is made up for.

    """
    standing = ledger.admitted - sum(ledger.dropped.values())
    return max(0, min(capacity - (standing - live_groups), wanted - standing))


def make_prompt(
    prepared: PreparedProblem,
    sequence: int,
    group_size: int,
    max_tokens: int,
    temperature: float,
    version: int,
    epoch: int,
) -> Prompt:
    """One problem as it goes into the prompts stream."""
    problem = prepared.problem
    return Prompt(
        sequence=sequence,
        prompt_id=problem.problem_id,
        token_ids=prepared.token_ids,
        text=problem.text,
        task=problem.task,
        answer=problem.answer,
        task_data=problem.task_data,
        group_size=group_size,
        max_tokens=max_tokens,
        temperature=temperature,
        policy_version=version,
        reference_epoch=epoch,
        admitted_at=time.time(),
    )


class Admission:
    """Keeps the pipeline as full as it may be.

    Args:
        config: of the run.
        problems: what to ask.
        streams: of the training lane.
        state: of the run.

    """

    def __init__(self, config: RunConfig, problems: ProblemSet, streams: GroupStreams, state: RunState) -> None:
        self._config = config
        self._problems = problems
        self._streams = streams
        self._state = state

    @property
    def problems(self) -> dict[str, object]:
        """How many problems there are, and how many rows were refused at load, by reason."""
        found = self._problems
        return {"training": len(found.training), "heldout": len(found.heldout), "refused": dict(found.refused)}

    async def admit_what_fits(self) -> int:
        """Admit as many prompts as there are free slots; returns how many."""
        if await self._state.phase() is not Phase.RUNNING:
            return 0
        version, epoch = await self._state.policy_version(), await self._state.reference_epoch()
        ledger = await self._streams.ledger()
        wanted = self._config.run.max_steps * self._config.run.groups_per_step
        free = admissible(ledger, await self._state.live_groups(), self._config.capacity, wanted)
        for sequence in range(ledger.next_sequence, ledger.next_sequence + free):
            await self._streams.admit(sequence, encode_prompt(self._prompt(sequence, version, epoch)))
        return free

    def _prompt(self, sequence: int, version: int, epoch: int) -> Prompt:
        run, rollout = self._config.run, self._config.rollout
        index = problem_index(sequence, len(self._problems.training), run.seed)
        prepared = self._problems.training[index]
        return make_prompt(
            prepared, sequence, rollout.group_size, rollout.max_response_tokens, rollout.temperature, version, epoch
        )
