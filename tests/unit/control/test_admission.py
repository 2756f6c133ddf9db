import pytest

from pacs.transport.interface import Stream
from pacs.wire.groups import decode_prompt
from services.control.run_state import Phase
from tests.control_fakes import Control, make_problems

pytestmark = [pytest.mark.anyio, pytest.mark.redis]


async def asked(control, epochs=2):
    """Problem ids in the order they are asked, with everything trained and live at once."""
    ids = []
    while await control.admission.admit_what_fits():
        for delivery in await control.training.read(Stream.PROMPTS, "w", 100, 1.0):
            ids.append(decode_prompt(delivery.payload).prompt_id)
            await control.training.hand_over(Stream.PROMPTS, delivery.entry_id, Stream.LABELED, delivery.payload)
        for delivery in await control.training.read(Stream.LABELED, "w", 100, 1.0):
            await control.training.finish_trained([delivery.entry_id])
        await control.state.commit_version(len(ids), len(ids), len(ids), 0)
    return ids


async def test_a_run_asks_the_same_in_the_same_order_twice(redis_client):
    runs = []
    for seed in (0, 0, 1):
        await redis_client.flushall()
        overrides = {"run.seed": seed, "run.max_steps": 6, "run.groups_per_step": 2}
        runs.append(await asked(await Control(redis_client, overrides).run_phase()))
    assert runs[0] == runs[1] != runs[2]
    assert len(runs[0]) == 12
    for epoch in (runs[0][:5], runs[0][5:10]):
        assert sorted(epoch) == [f"train-{n}" for n in range(5)]


async def test_a_prompt_says_all_that_its_way_needs(redis_client):
    control = await Control(redis_client, problems=make_problems(training=1)).run_phase()
    await control.state.commit_version(7, 3, 0, 2)
    await control.admission.admit_what_fits()
    (delivery, *_) = await control.training.read(Stream.PROMPTS, "w", 1, 1.0)
    prompt = decode_prompt(delivery.payload)
    assert (prompt.sequence, prompt.prompt_id, prompt.text, prompt.task, prompt.answer) == (
        (0, "train-0", "0?", "exact", "0")
    )
    assert (prompt.group_size, prompt.max_tokens, prompt.temperature) == (2, 16, 1.0)
    assert (prompt.policy_version, prompt.reference_epoch) == (7, 2)
    assert prompt.token_ids.tolist() == [0]
    assert prompt.admitted_at > 1e9


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.PAUSED, Phase.STOPPING, Phase.FINISHED])
async def test_nothing_is_admitted_but_while_running(redis_client, phase):
    control = await Control(redis_client).run_phase(phase)
    assert await control.admission.admit_what_fits() == 0
    assert (await control.training.ledger()).admitted == 0


async def test_admission_keeps_to_the_capacity(redis_client):
    control = await Control(redis_client, {"run.max_staleness": 1, "run.groups_per_step": 2}).run_phase()
    assert await control.admission.admit_what_fits() == 4
    assert await control.admission.admit_what_fits() == 0
    (delivery,) = await control.training.read(Stream.PROMPTS, "w", 1, 1.0)
    await control.training.drop(Stream.PROMPTS, delivery.entry_id, "prompt_too_long")
    assert await control.admission.admit_what_fits() == 1
    await control.state.commit_version(2, 1, 2, 0)
    assert await control.admission.admit_what_fits() == 2
