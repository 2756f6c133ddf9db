"""Runs Reasoning Gym's scorers in the sandbox, for families whose scorers would evaluate text.

The answer goes in as an argument of a call and the score comes out as its value. Nothing of the answer is executed,
so nothing of it can write the reply; were there a hole in that, what falls through is still in the sandbox.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pacs.errors import ServiceFailed
from pacs.runtime.config import SandboxSection
from services.verifier.checkers import reasoning_gym_scorers
from services.verifier.sandbox.calling import call, find_function
from services.verifier.sandbox.channel import ChannelBroken
from services.verifier.sandbox.sandbox import Sandbox, Slot

__all__ = ["SandboxedScorers"]

PACKAGES = ("reasoning_gym", "sympy", "numpy")
PRELOAD = ("reasoning_gym.factory", "sympy")
MEMORY_BYTES = 1 << 30  # the packages alone are a few hundred MiB
USERS_APART = 2000  # beyond those of the sandbox for programs and of its probes
STATUSES = ("ok", "wrong")


class SandboxedScorers:
    """Scores answers in a sandbox of its own, which starts with the first of them.

    Args:
        settings: of the sandbox; the packages are added.
        cpu_seconds: CPU time one score may use.

    """

    def __init__(self, settings: SandboxSection, cpu_seconds: float) -> None:
        self._settings, self._cpu_seconds = settings, cpu_seconds
        self._program = Path(reasoning_gym_scorers.__file__).read_text(encoding="utf-8")
        self._sandbox: Sandbox | None = None

    async def start(self) -> None:
        """Start the sandbox.

        Raises:
            BadInput: no mode that the settings allow works here.
            ServiceFailed: Reasoning Gym is not installed.

        """
        await self._running().start()

    async def outcome(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Score one answer; what the machinery failed at is a reply of status timeout or error.

        Args:
            request: family, entry, answer and options.

        Raises:
            BadInput: no sandbox starts here.

        """
        arguments = [request[name] for name in ("family", "entry", "answer", "options")]
        sandbox = self._running()
        return await sandbox.hold(lambda slot: self._score(sandbox, slot, arguments))

    async def close(self) -> None:
        """End the sandbox."""
        if self._sandbox is not None:
            await self._sandbox.close()

    async def _score(self, sandbox: Sandbox, slot: Slot, arguments: list[Any]) -> dict[str, Any]:
        run = slot.begin(self._program, sandbox.limits, "calls")
        try:
            function = await find_function(run.channel, "score")
            reply = {} if function is None else await call(run.channel, function, arguments)
        except ChannelBroken:
            ended = (await run.result(kill=True)).status
            return {"status": "timeout" if ended in ("cpu_limit", "wall_limit") else "error", "detail": ended}
        return _status(reply)

    def _running(self) -> Sandbox:
        if self._sandbox is None:
            settings = self._settings.model_copy(
                update={
                    "packages": [*self._settings.packages, *_folders()],
                    "cpu_seconds": max(1.0, self._cpu_seconds),
                    "wall_seconds": 0.0,
                    "memory_bytes": max(MEMORY_BYTES, self._settings.memory_bytes),
                    "first_user": self._settings.first_user + USERS_APART,
                }
            )
            self._sandbox = Sandbox(settings, PRELOAD)
        return self._sandbox


def _folders() -> list[Path]:
    """The folders that hold the packages, most often one `site-packages`."""
    found = []
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise ServiceFailed(f"the checker reasoning_gym needs the package {package}; install pacs-rlvr[verifier]")
        found.append(Path(spec.origin).resolve().parents[1])
    return list(dict.fromkeys(found))


def _status(reply: Mapping[str, Any]) -> dict[str, Any]:
    """What the scorers return is a plain dictionary of texts; anything else is a failure of theirs."""
    value = reply.get("value")
    pairs = value.get("d") if type(value) is dict else None
    for status in STATUSES:
        if pairs == [["status", status]]:
            return {"status": status}
    return {"status": "error", "detail": str(reply.get("error", "malformed"))}
