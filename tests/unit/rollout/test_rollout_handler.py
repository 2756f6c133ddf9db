import pytest
from prometheus_client import CollectorRegistry

from pacs.errors import ServiceFailed
from pacs.runtime.worker import Drop, HandOver
from pacs.testing import FakeSamplingEngine, make_prompt
from pacs.wire.groups import decode_group, encode_prompt
from services.rollout.engine import PromptTooLong, SamplingAborted
from services.rollout.handler import RolloutHandler
from services.rollout.metrics import RolloutMetrics

pytestmark = pytest.mark.anyio


def make_handler(**engine):
    registry = CollectorRegistry()
    handler = RolloutHandler(FakeSamplingEngine(**engine), RolloutMetrics(registry, "test", "rollout-0"))

    def value(name, **labels):
        return registry.get_sample_value(name, {"run": "test", "replica": "rollout-0", **labels})

    return handler, value


async def test_a_sampled_group_is_handed_over_with_its_tokens():
    handler, value = make_handler(response=(21, 22, 23))
    outcome = await handler.handle(encode_prompt(make_prompt(4, group_size=3)))
    assert isinstance(outcome, HandOver)
    group = decode_group(outcome.payload)
    assert (group.prompt.sequence, len(group.completions)) == (4, 3)
    assert [c.sample_id for c in group.completions] == ["4/0", "4/1", "4/2"]
    assert outcome.new_tokens == 9
    assert value("pacs_rollout_completion_tokens_total") == 9
    assert value("pacs_rollout_groups_total", outcome="sampled") == 1
    assert value("pacs_rollout_group_seconds_count") == 1


async def test_a_prompt_that_does_not_fit_is_dropped_with_its_reason(caplog):
    handler, value = make_handler(failure=PromptTooLong(60, 16, 64))
    assert await handler.handle(encode_prompt(make_prompt(4))) == Drop("prompt_too_long")
    assert value("pacs_rollout_groups_total", outcome="dropped_prompt_too_long") == 1
    assert value("pacs_rollout_completion_tokens_total") == 0
    assert "prompt 4 (problem-4) dropped" in caplog.text
    assert "64 tokens, got 60 + 16" in caplog.text


@pytest.mark.parametrize("failure", [SamplingAborted("aborted"), ServiceFailed("engine died")])
async def test_other_failures_leave_the_prompt_to_be_sampled_again(failure):
    handler, _ = make_handler(failure=failure)
    with pytest.raises(type(failure)):
        await handler.handle(encode_prompt(make_prompt(4)))
