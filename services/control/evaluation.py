"""Held-out accuracy of one policy version: problems travel the evaluation lane, nothing is published meanwhile."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pacs.errors import DeadlineExceeded
from pacs.runtime.config import RunConfig
from pacs.transport.interface import GroupStreams, Stream
from pacs.wire.groups import Label, LabeledGroup, decode_labeled_group, encode_prompt
from services.control.admission import make_prompt
from services.control.problem_set import ProblemSet
from services.control.run_state import RunState

__all__ = ["Evaluator", "evaluation_figures"]

CONSUMER = "control"
READ_WAIT_SECONDS = 1.0

logger = logging.getLogger(__name__)


def evaluation_figures(groups: Sequence[LabeledGroup], shown: Sequence[str]) -> dict[str, Any]:
    """Accuracy over all judged completions, and the completions of the problems shown to people.

    Args:
        groups: every held-out problem's labelled group.
        shown: ids of the problems whose first completion is kept.

    """
    labels = [label for group in groups for label in group.labels]
    judged = [label for label in labels if label is not Label.INVALID]
    correct = sum(label is Label.CORRECT for label in judged)
    by_id = {group.group.prompt.prompt_id: group for group in groups}
    return {
        "problems": len(groups),
        "completions": len(labels),
        "correct": correct,
        "invalid": len(labels) - len(judged),
        "accuracy": correct / len(judged) if judged else None,
        "tokens": int(sum(len(c.token_ids) for group in groups for c in group.group.completions)),
        "samples": [_sample(by_id[problem_id]) for problem_id in shown if problem_id in by_id],
    }


def _sample(labeled: LabeledGroup) -> dict[str, Any]:
    prompt, completion = labeled.group.prompt, labeled.group.completions[0]
    verdict = labeled.verdicts[completion.sample_id]
    return {
        "prompt_id": prompt.prompt_id,
        "prompt": prompt.text,
        "answer": prompt.answer,
        "text": completion.text,
        "label": verdict.label.value,
        "status": verdict.status,
    }


class Evaluator:
    """Measures versions, one at a time.

    Args:
        config: of the run.
        problems: of which the first `evaluation.max_problems` held-out ones are used.
        streams: of the evaluation lane.
        state: of the run.

    """

    def __init__(self, config: RunConfig, problems: ProblemSet, streams: GroupStreams, state: RunState) -> None:
        self._settings = config.evaluation
        self._rollout = config.rollout
        self._problems = problems.heldout[: config.evaluation.max_problems]
        self._streams = streams
        self._state = state

    def due(self, step: int, evaluated_version: int, last_step: int) -> bool:
        """Whether the version of this step is to be measured: the first, every N-th, the last."""
        if not self._problems:
            return False
        every = self._settings.every_steps
        return evaluated_version == 0 or step == last_step or (every > 0 and step % every == 0)

    async def evaluate(self, policy_version: int, step: int) -> Mapping[str, Any]:
        """Measure the live version and record it.

        Raises:
            DeadlineExceeded: not all held-out groups came back in time.

        """
        started = time.monotonic()
        await self._discard_leftovers()
        before = await self._streams.ledger()
        first = before.next_sequence
        for sequence, prepared in enumerate(self._problems, start=first):
            prompt = make_prompt(
                prepared,
                sequence,
                self._settings.samples,
                self._rollout.max_response_tokens,
                self._settings.temperature,
                policy_version,
                await self._state.reference_epoch(),
            )
            await self._streams.admit(sequence, encode_prompt(prompt))
        groups = await self._collect(first, sum(before.dropped.values()))
        figures = {
            "step": step,
            "policy_version": policy_version,
            "temperature": self._settings.temperature,
            "seconds": round(time.monotonic() - started, 3),
            **evaluation_figures(
                groups, [p.problem.problem_id for p in self._problems[: self._settings.shown_samples]]
            ),
        }
        await self._state.record_evaluation(figures)
        logger.info("version %d: held-out accuracy %s on %d problems", policy_version, figures["accuracy"], len(groups))
        return figures

    async def tokens_generated(self) -> int:
        """Response tokens sampled for evaluations so far."""
        return (await self._streams.ledger()).tokens_generated

    async def _collect(self, first: int, dropped_before: int) -> list[LabeledGroup]:
        groups: dict[int, LabeledGroup] = {}
        wanted, deadline = len(self._problems), time.monotonic() + self._settings.wait_seconds
        while len(groups) + await self._dropped_since(dropped_before) < wanted:
            left = deadline - time.monotonic()
            if left <= 0:
                waited_for = f"{wanted - len(groups)} of {wanted} held-out groups"
                raise DeadlineExceeded(waited_for, self._settings.wait_seconds)
            for delivery in await self._streams.read(Stream.LABELED, CONSUMER, 64, min(left, READ_WAIT_SECONDS)):
                labeled = decode_labeled_group(delivery.payload)
                if labeled.group.prompt.sequence >= first:
                    groups[labeled.group.prompt.sequence] = labeled
                await self._streams.finish_trained([delivery.entry_id])
        return list(groups.values())

    async def _dropped_since(self, before: int) -> int:
        return sum((await self._streams.ledger()).dropped.values()) - before

    async def _discard_leftovers(self) -> None:
        """Let go of groups of an evaluation that a killed control never finished."""
        for delivery in await self._streams.reclaim(Stream.LABELED, CONSUMER):
            await self._streams.drop(Stream.LABELED, delivery.entry_id, "evaluation_abandoned")
