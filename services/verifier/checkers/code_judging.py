"""Judges a program by its tests. The verdict is made here, out of the program's reach, from plain data alone."""

import json
from dataclasses import dataclass, replace
from typing import Any

from services.verifier.checkers.code_tests import AssertTests, Call, CallTests, StdioTests, Tests
from services.verifier.sandbox.calling import call, find_function
from services.verifier.sandbox.channel import Channel, ChannelBroken, parsed
from services.verifier.sandbox.live_run import LiveRun
from services.verifier.sandbox.sandbox import Sandbox, Slot
from services.verifier.sandbox.values import matches

__all__ = ["Outcome", "judge_program"]

TESTS_EXTRA_WALL_SECONDS = 1.0  # so that of two that wait for each other the program ends first

PASSED, WRONG, NOT_JUDGED = "ok", "wrong", "error"
# Unjudgeable: an object of the program would have judged itself. Its author chose that, see docs/design/0012.
WRONG_VERDICTS = ("wrong_answer", "runtime_error", "unjudgeable")


@dataclass(frozen=True)
class Outcome:
    """What came of the tests.

    Args:
        status: ok, wrong or error.
        why: in a word: passed, wrong_answer, cpu_limit, ….

    """

    status: str
    why: str


async def judge_program(sandbox: Sandbox, program: str, tests: Tests) -> Outcome:
    """Run a program against its tests, up to the first it fails.

    Raises:
        BadInput: the sandbox does not start here.
        ServiceFailed: the sandbox failed three times.

    """
    if isinstance(tests, StdioTests):
        return await _judge_stdio(sandbox, program, tests)
    if isinstance(tests, CallTests):
        return await sandbox.hold(lambda slot: _judge_calls(sandbox, slot, program, tests))
    limits = replace(sandbox.limits, wall_seconds=sandbox.limits.wall_seconds + TESTS_EXTRA_WALL_SECONDS)
    return await sandbox.hold(lambda slot: _judge_asserts(sandbox, slot, program, tests), limits)


async def _judge_stdio(sandbox: Sandbox, program: str, tests: StdioTests) -> Outcome:
    for case in tests.cases:
        result = await sandbox.run(program, case.given.encode("utf-8", "surrogateescape"))
        if result.status != "ok":
            return Outcome(WRONG, result.status)
        if _lines(result.stdout) != _lines(case.expected.encode("utf-8", "surrogateescape")):
            return Outcome(WRONG, "wrong_answer")
    return Outcome(PASSED, "passed")


def _lines(output: bytes) -> list[bytes]:
    return [line.rstrip() for line in output.rstrip().split(b"\n")]


async def _judge_calls(sandbox: Sandbox, slot: Slot, program: str, tests: CallTests) -> Outcome:
    run = slot.begin(program, sandbox.limits, "calls")
    try:
        function = await find_function(run.channel, tests.function)
        if function is None:
            return Outcome(WRONG, "no_function")
        for case in tests.cases:
            why = await _judge_call(run.channel, function, case)
            if why:
                return Outcome(WRONG, why)
    except ChannelBroken as broken:
        return Outcome(WRONG, await _why_broken(run, broken))
    return Outcome(PASSED, "passed")


async def _judge_call(channel: Channel, function: int, case: Call) -> str:
    """Empty, or what is wrong."""
    answer = await call(channel, function, case.arguments)
    if "error" in answer:
        return "runtime_error"
    if "value" not in answer:
        return "malformed"
    return "" if any(matches(answer["value"], accepted) for accepted in case.accepted) else "wrong_answer"


async def _judge_asserts(sandbox: Sandbox, slot: Slot, program: str, tests: AssertTests) -> Outcome:
    run = slot.begin(program, sandbox.limits, "calls")
    longer = replace(sandbox.limits, wall_seconds=sandbox.limits.wall_seconds + TESTS_EXTRA_WALL_SECONDS)
    tester = slot.begin(tests.code, longer, "asserts")
    try:
        verdict = await _relay(run, tester, tests)
    except _TesterBroken as broken:
        return Outcome(NOT_JUDGED, f"tests_{broken.why}")
    except ChannelBroken as broken:
        return Outcome(WRONG, await _why_broken(run, broken))
    return Outcome(PASSED if verdict == "passed" else WRONG if verdict in WRONG_VERDICTS else NOT_JUDGED, verdict)


class _TesterBroken(Exception):
    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


async def _relay(run: LiveRun, tester: LiveRun, tests: AssertTests) -> str:
    """Carry questions one way and answers, unread, the other; the verdict comes from the tests' own pipe."""
    message = await _tester_says(tester, json.dumps({"names": tests.names}).encode())
    while "verdict" not in message:
        await run.channel.write(json.dumps(message["question"]).encode())
        message = await _tester_says(tester, await run.channel.read())
    return str(message["verdict"])


async def _tester_says(tester: LiveRun, line: bytes) -> dict[str, Any]:
    try:
        await tester.channel.write(line)
        message = parsed(await tester.channel.read())
    except ChannelBroken as broken:
        raise _TesterBroken(await _why_broken(tester, broken)) from None
    if not {"verdict", "question"} & set(message):
        raise _TesterBroken("malformed")
    return message


async def _why_broken(run: LiveRun, broken: ChannelBroken) -> str:
    """A conversation ends because the run did, and its end says why."""
    if broken.why != "closed":
        return broken.why
    status = (await run.result()).status
    return "exited_early" if status == "ok" else status
