"""A prompt in, a sampled group out. Knows no Redis, no vLLM and no Ray."""

import logging

from pacs.runtime.worker import Drop, HandOver
from pacs.wire.groups import decode_prompt, encode_group
from services.rollout.engine import PromptTooLong, SamplingEngine
from services.rollout.metrics import RolloutMetrics

__all__ = ["RolloutHandler"]

logger = logging.getLogger(__name__)


class RolloutHandler:
    """Samples groups.

    Args:
        engine: samples.
        metrics: of this replica.

    """

    def __init__(self, engine: SamplingEngine, metrics: RolloutMetrics) -> None:
        self._engine = engine
        self._metrics = metrics

    async def handle(self, payload: bytes) -> HandOver | Drop:
        """Sample the prompt's completions; a prompt that does not fit the engine is dropped with that reason."""
        prompt = decode_prompt(payload)
        try:
            with self._metrics.timing():
                group = await self._engine.sample(prompt)
        except PromptTooLong as error:
            logger.warning("prompt %d (%s) dropped: %s", prompt.sequence, prompt.prompt_id, error)
            self._metrics.dropped("prompt_too_long")
            return Drop("prompt_too_long")
        tokens = sum(len(completion.token_ids) for completion in group.completions)
        self._metrics.sampled(tokens)
        return HandOver(encode_group(group), new_tokens=tokens)
