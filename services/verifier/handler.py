"""A group in, a labelled group out: what the verifier does with one message, without the transport."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from pacs.errors import BadInput
from pacs.wire.groups import Completion, Group, Label, LabeledGroup, Prompt, Verdict
from services.verifier.cache import VerdictCache, content_key, row_digest
from services.verifier.checkers.extraction import has_marked_answer
from services.verifier.checkers.interface import Checker, Judgement, MarksAnswers, judged
from services.verifier.checkers.registry import Registry
from services.verifier.invalid_watch import InvalidWatch
from services.verifier.judging import judge
from services.verifier.metrics import VerifierMetrics

__all__ = ["VerifierHandler"]

log = logging.getLogger(__name__)

CUT_OFF = "length"  # the engine's finish_reason where the token limit ended the completion


class VerifierHandler:
    """Judges the completions of a group side by side.

    Args:
        checkers: by task name; the owner closes it.
        metrics: where verdicts are counted.
        cache: verdicts given before.
        watch: told of every verdict; pauses the run where too many judge nothing.

    """

    def __init__(
        self, checkers: Registry, metrics: VerifierMetrics, cache: VerdictCache, watch: InvalidWatch | None = None
    ) -> None:
        self._checkers = checkers
        self._metrics = metrics
        self._cache = cache
        self._watch = watch

    async def handle(self, group: Group) -> LabeledGroup:
        """Judge every completion; one that could not be judged is labelled invalid.

        Raises:
            BadInput: the group's task names no checker, so nothing in it can be judged.

        """
        checker = self._checkers.get(group.prompt.task)
        row = row_digest(group.prompt.task, group.prompt.answer, group.prompt.task_data)
        verdicts = await asyncio.gather(
            *(self._verdict(checker, group.prompt, row, completion) for completion in group.completions)
        )
        return LabeledGroup(group, {verdict.sample_id: verdict for verdict in verdicts})

    async def _verdict(self, checker: Checker, prompt: Prompt, row: bytes, completion: Completion) -> Verdict:
        key = content_key(row, completion.finish_reason, completion.text)
        judgement = self._cache.get(key)
        if judgement is None:
            with self._metrics.checking(checker.name):
                judgement = await self._judge(checker, prompt, completion)
            self._cache.put(key, judgement)
        else:
            self._metrics.count_cache_hit(checker.name)
        self._metrics.observe(checker.name, judgement)
        if self._watch is not None:
            self._watch.observe(invalid=judgement.label is Label.INVALID)
            self._metrics.invalid_share.set(self._watch.share)
        return Verdict(
            sample_id=completion.sample_id,
            label=judgement.label,
            status=judgement.status,
            method=judgement.method,
            seconds=judgement.seconds,
            extracted=judgement.extracted,
        )

    async def _judge(self, checker: Checker, prompt: Prompt, completion: Completion) -> Judgement:
        """A completion that ran out of tokens before it marked an answer has none, whatever its last words are."""
        started = time.perf_counter()
        cut_off = completion.finish_reason == CUT_OFF
        subject = f"sample {completion.sample_id} of prompt {prompt.prompt_id!r}"

        async def check() -> Judgement:
            if cut_off and not _has_answer(checker, completion.text, prompt.task_data):
                return judged(started, "truncated", "extraction")
            return await checker.check(completion.text, prompt.answer, prompt.task_data)

        try:
            judgement = await judge(check, subject)
        except BadInput:
            log.exception("%s cannot be judged by %s; it is labelled invalid", subject, checker.name)
            return judged(started, "error", "none")
        if cut_off and judgement.status == "no_answer":
            return judged(started, "truncated", "extraction")
        return judgement


def _has_answer(checker: Checker, text: str, task_data: Mapping[str, Any]) -> bool:
    return checker.has_answer(text, task_data) if isinstance(checker, MarksAnswers) else has_marked_answer(text)
