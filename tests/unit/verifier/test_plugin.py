"""A checker that another package brings: a distribution is laid on the path, and nothing else is told of it."""

import sys

import pytest

from pacs.errors import BadInput
from services.verifier.checkers.registry import load_registry
from services.verifier.judging import judge

pytestmark = pytest.mark.anyio

MODULE = """
import asyncio, time
from services.verifier.checkers.interface import judged

class Palindrome:
    name = "palindrome"

    async def check(self, completion, answer, task_data):
        started = time.perf_counter()
        if completion == "hang":
            await asyncio.Event().wait()
        text = completion.strip()
        return judged(started, "ok" if text and text == text[::-1] else "wrong", "reversed", text)

    async def check_gold(self, answer, task_data):
        return await self.check(answer, answer, task_data)

    async def close(self):
        pass
"""


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    (tmp_path / "pacs_palindrome.py").write_text(MODULE)
    information = tmp_path / "pacs_palindrome-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: pacs-palindrome\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[pacs.verifiers]\npalindrome = pacs_palindrome:Palindrome\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield information
    sys.modules.pop("pacs_palindrome", None)


async def test_an_installed_package_brings_a_checker(distribution):
    registry = load_registry()
    try:
        checker = registry.get("palindrome")
        assert (await checker.check("racecar", "", {})).status == "ok"
        assert (await checker.check("race", "", {})).status == "wrong"
        judgement = await judge(lambda: checker.check("hang", "", {}), "sample 0/0", seconds=0.01)
        assert judgement.status == "timeout"
    finally:
        await registry.close()


def test_without_the_package_there_is_no_such_checker():
    with pytest.raises(BadInput, match="palindrome"):
        load_registry().get("palindrome")


def test_a_package_that_is_broken_is_named(distribution):
    (distribution / "entry_points.txt").write_text("[pacs.verifiers]\npalindrome = pacs_palindrome:Nothing\n")
    with pytest.raises(BadInput, match="pacs_palindrome:Nothing"):
        load_registry()
