"""Code: take the program out of a completion and run it against the row's tests, in the sandbox."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from pacs.runtime.config import SandboxSection
from services.verifier.checkers.code_extraction import extract_program
from services.verifier.checkers.code_judging import judge_program
from services.verifier.checkers.code_rows import TaskReader
from services.verifier.checkers.code_tests import CodeTask
from services.verifier.checkers.interface import Judgement, judged
from services.verifier.sandbox.sandbox import Sandbox

__all__ = ["CodeChecker"]

MAX_PROGRAM_CHARACTERS = 1 << 20


class CodeChecker:
    """Judges programs; `task_data` has the tests in one of the schemas of `docs/sandbox.md`, `answer` is not used.

    Args:
        settings: of the sandbox, which starts with the first program.

    """

    name = "code"

    def __init__(self, settings: SandboxSection | None = None) -> None:
        self.sandbox = Sandbox(settings or SandboxSection())
        self._rows = TaskReader()

    async def start(self, families: Sequence[str] = ()) -> None:
        """Start the sandbox now, so that a machine without one is refused before anything is judged.

        Raises:
            BadInput: no mode that the settings allow works here.

        """
        await self.sandbox.start()

    async def check(self, completion: str, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Judge one completion by the program in it."""
        started = time.perf_counter()
        task = self._rows.read(task_data)
        found = extract_program(completion, whole=task.whole)
        if found.status != "ok":
            return judged(started, found.status, "extraction")
        return await self._judge(started, task, task.assembled(found.text), found.text)

    async def check_gold(self, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Say whether the row's solution passes its own tests; without a solution they need only be well formed."""
        started = time.perf_counter()
        task = self._rows.read(task_data)
        await self.sandbox.start()
        if task.solution is None:
            return judged(started, "ok", "parsed")
        return await self._judge(started, task, task.solution, task.solution)

    def has_answer(self, completion: str, task_data: Mapping[str, Any]) -> bool:
        """Say whether a completion that was cut has a program all the same: a closed block, never the text as a whole.

        Raises:
            BadInput: the row breaks a rule.

        """
        return not self._rows.read(task_data).whole and extract_program(completion).status == "ok"

    async def close(self) -> None:
        """End the sandbox."""
        await self.sandbox.close()

    async def _judge(self, started: float, task: CodeTask, program: str, shown: str) -> Judgement:
        if len(program) > MAX_PROGRAM_CHARACTERS:
            return judged(started, "too_complex", "guard", shown)
        outcome = await judge_program(self.sandbox, program, task.tests)
        return judged(started, outcome.status, f"tests: {outcome.why}", shown)
