import json

import httpx
import pytest

from pacs.pb import control_pb2 as pb
from services.control.http_api import make_app
from services.control.run_state import Phase
from tests.control_fakes import Control, attached, publish_request

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

TOKEN = {"authorization": "Bearer sesame"}
CHANGES = ("/v1/run/pause", "/v1/run/resume", "/v1/run/stop")


@pytest.fixture
async def control(redis_client):
    return await Control(redis_client).run_phase()


@pytest.fixture
async def http(control):
    app = make_app(control.handler, control.registry, "sesame")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as client:
        yield client


async def test_reading_is_open(http, control):
    await control.admission.admit_what_fits()
    run = (await http.get("/v1/run")).json()
    assert (run["run"], run["state"], run["step"], run["max_steps"]) == ("test", "running", 0, 4)
    assert run["queues"] == {"prompts": 4, "completions": 0, "labeled": 0, "dead": 0}
    ledger = (await http.get("/v1/ledger")).json()
    assert ledger == {"admitted": 4, "trained": 0, "dropped": {}, "in_flight": 4} == run["ledger"]
    assert (await http.get("/v1/history")).json() == []


@pytest.mark.parametrize("path", [*CHANGES, "/v1/resets"])
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer guess"}, {"authorization": "sesame"}])
async def test_changing_needs_the_token(http, control, path, headers):
    assert (await http.post(path, headers=headers)).status_code == 401
    assert await control.state.phase() is Phase.RUNNING


async def test_pause_resume_and_stop(http, control):
    learner = await control.agents.attach("learner-0", "learner")
    states = [(await http.post(path, headers=TOKEN)).json()["state"] for path in CHANGES]
    assert states == ["paused", "running", "stopping"]
    assert learner.commands.get_nowait().WhichOneof("command") == "stop"


async def test_a_pause_shows_its_reason_until_somebody_resumes(http):
    async def waiting_for(path, **parameters):
        return (await http.post(path, headers=TOKEN, params=parameters)).json()["waiting_for"]

    assert "9 of the last 10 verdicts" in await waiting_for("/v1/run/pause", reason="9 of the last 10 verdicts fail")
    assert "verdicts" not in await waiting_for("/v1/run/resume")
    assert (await http.post("/v1/run/pause", headers=TOKEN, params={"reason": "x" * 1001})).status_code == 422


async def test_a_reset_is_taken_on_where_a_reference_is_kept(redis_client, http):
    refused = await http.post("/v1/resets", headers=TOKEN)
    assert refused.status_code == 409
    assert "algorithm.reference=batch" in refused.json()["detail"]
    control = Control(redis_client, {"algorithm.reference": "manual"})
    learner = await control.agents.attach("learner-0", "learner")
    app = make_app(control.handler, control.registry, "sesame")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as client:
        taken = await client.post("/v1/resets", headers=TOKEN, params={"reason": "drifting"})
    assert (taken.status_code, taken.json()) == (202, {"reference_epoch": 1})
    assert learner.commands.get_nowait().reset == pb.Reset(reference_epoch=1, reason="drifting")


async def test_a_run_that_still_starts_is_not_paused_and_says_so(http, control):
    await control.state.set_phase(Phase.STARTING)
    answer = (await http.post("/v1/run/pause", headers=TOKEN, params={"reason": "verdicts fail"})).json()
    assert answer["state"] == "starting"
    assert "verdicts fail" not in answer["waiting_for"]


async def test_a_change_cannot_be_made_by_reading(http):
    for path in CHANGES:
        assert (await http.get(path, headers=TOKEN)).status_code == 405


async def test_the_history_goes_on_from_where_one_has_read(http, control):
    for step in range(3):
        await control.handler.step_done(pb.StepReport(step=step, figures_json='{"loss": 0.5}'))
    assert [e["step"] for e in (await http.get("/v1/history?after=1")).json()] == [1, 2]


async def test_figures_that_are_not_finite_can_be_read_too(http, control):
    """What a skipped step reports; a history that cannot be read would blind everybody who watches the run."""
    figures = json.dumps({"loss": float("nan"), "grad_norm": float("inf"), "accuracy": 0.5})
    await control.handler.step_done(pb.StepReport(step=1, figures_json=figures))
    answer = await http.get("/v1/history")
    assert answer.status_code == 200
    (entry,) = json.loads(answer.text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (entry["step"], entry["accuracy"]) == (1, 0.5)
    assert (await http.get("/v1/run")).status_code == 200


async def test_health_readiness_and_metrics(http, control):
    assert (await http.get("/healthz")).text == "ok\n"
    assert (await http.get("/readyz")).status_code == 200
    async with attached(control.agents, "learner-0", "rollout-0"):
        await control.handler.publish(publish_request())
    metrics = (await http.get("/metrics")).text
    assert 'pacs_policy_version{run="test"} 1.0' in metrics
    assert 'pacs_weight_sync_total{result="ok",run="test"} 1.0' in metrics
    control.handler.failure = "waited 9 s for a learner, in vain"
    answer = await http.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "waited 9 s for a learner, in vain\n")
    assert (await http.get("/healthz")).status_code == 200
    run = (await http.get("/v1/run")).json()
    assert (run["state"], run["failure"]) == ("failed", "waited 9 s for a learner, in vain")
