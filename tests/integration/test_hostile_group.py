"""A group of hostile answers is judged in time, and honest groups keep flowing meanwhile."""

import asyncio
import time

import pytest
from prometheus_client import CollectorRegistry

from pacs.wire.groups import Label
from services.verifier.cache import VerdictCache
from services.verifier.checkers.math import MathChecker
from services.verifier.checkers.registry import Registry
from services.verifier.handler import VerifierHandler
from services.verifier.metrics import VerifierMetrics
from tests.unit.verifier.test_verifier_handler import make_group

pytestmark = pytest.mark.anyio

HOSTILE = [
    r"\boxed{9^{9^{9^9}}}",
    r"\boxed{" + "(" * 200 + "x" + ")" * 200 + "}",
    r"\boxed{" + "9" * 1_000_000 + "}",
    r"\boxed{" + "{" * 500_000 + "}" * 500_000 + "}",
    r"\boxed{" * 100_000,
    r"\boxed{\int_0^{10^9} \sin(x^{99}) dx}",
    r"\boxed{" + r"\sqrt{" * 45 + "2" + "}" * 45 + "}",
    r"\boxed{x^{99999999} - 1}",
]
SECONDS = 60.0  # 10 on two idle cores; this machine may be busy with other things


async def test_sixty_four_hostile_completions_hold_up_nobody():
    checker = MathChecker(workers=2)
    handler = VerifierHandler(Registry([checker]), VerifierMetrics(CollectorRegistry(), "demo"), VerdictCache(0))
    hostile = make_group("math", [HOSTILE[i % len(HOSTILE)] for i in range(64)], r"\frac{\pi}{2}")
    try:
        await checker.check(r"\boxed{x+1}", "1+x", {})  # the workers' start is not what is measured
        started = time.perf_counter()
        judging = asyncio.create_task(handler.handle(hostile))
        honest = [await handler.handle(make_group("math", [rf"\boxed{{{i}+x}}"] * 2, f"x+{i}")) for i in range(8)]
        honest_seconds = time.perf_counter() - started
        labeled = await judging
        seconds = time.perf_counter() - started
    finally:
        await checker.close()
    print(f"64 hostile completions in {seconds:.2f} s, 8 honest groups among them in {honest_seconds:.2f} s")  # noqa: T201
    assert all(group.labels == (Label.CORRECT,) * 2 for group in honest)
    assert set(labeled.labels) == {Label.WRONG}
    assert seconds < SECONDS
