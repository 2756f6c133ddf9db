"""A run whose grading fails is paused: over a control of our own, with real HTTP."""

import asyncio
import json

import pytest

from pacs.testing import assert_eventually
from services.verifier.control_link import pause_over_http
from services.verifier.invalid_watch import InvalidWatch

pytestmark = pytest.mark.anyio


class FakeControl:
    """Answers `POST /v1/run/pause` with the next of its answers, the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _answer(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.requests.append(head)
        status, state = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        body = json.dumps({"state": state})
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            f"connection: close\r\n\r\n{body}".encode()
        )
        await writer.drain()
        writer.close()


async def running(watch):
    stop = asyncio.Event()
    return stop, asyncio.create_task(watch.run(stop))


def feed(watch, verdicts):
    for verdict in verdicts:
        watch.observe(invalid=verdict == "x")


async def test_pauses_once_when_too_many_of_the_last_verdicts_judge_nothing(caplog):
    async with FakeControl((200, "paused")) as control:
        watch = InvalidWatch(10, 0.3, pause_over_http(control.url, "secret"))
        stop, task = await running(watch)
        feed(watch, "x.x.x....")
        assert watch.share == 0.3
        feed(watch, "x.")
        await assert_eventually(lambda: watch.pauses == 1)
        stop.set()
        await task
        (request,) = control.requests
    assert request.startswith("POST /v1/run/pause?reason=4+of+the+last+10+verdicts+are+time-outs+or+errors")
    assert "authorization: bearer secret" in request.lower()
    assert "the run is paused" in caplog.text


async def test_old_verdicts_do_not_count_and_honest_ones_never_pause():
    async with FakeControl((200, "paused")) as control:
        watch = InvalidWatch(10, 0.3, pause_over_http(control.url, "secret"))
        feed(watch, "xxx" + "." * 10 + "xxx" + "." * 100)
        assert watch.share == 0
        assert control.requests == []


async def test_a_pause_that_is_not_heard_is_asked_again(monkeypatch):
    monkeypatch.setattr("services.verifier.invalid_watch.RETRY_SECONDS", 0.01)
    async with FakeControl((500, "running"), (200, "starting"), (200, "paused")) as control:
        watch = InvalidWatch(4, 0.5, pause_over_http(control.url, "secret"))
        stop, task = await running(watch)
        feed(watch, "xxx")
        await assert_eventually(lambda: watch.pauses == 1)
        assert len(control.requests) == 3
        stop.set()
        await task


async def test_a_control_that_is_away_keeps_nobody_from_stopping(monkeypatch):
    monkeypatch.setattr("services.verifier.invalid_watch.RETRY_SECONDS", 0.01)
    watch = InvalidWatch(2, 0.5, pause_over_http("http://127.0.0.1:9", "secret"))
    stop, task = await running(watch)
    feed(watch, "xx")
    await asyncio.sleep(0)
    stop.set()
    async with asyncio.timeout(10):
        await task
    assert watch.pauses == 0
