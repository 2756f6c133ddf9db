"""Reads a run over control's HTTP API, and asks it to reset or to stop."""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from pacs.errors import BadInput

__all__ = ["ControlClient"]

TIMEOUT_SECONDS = 10.0


class ControlClient:
    """A run's control, from the same machine.

    Args:
        port: of its HTTP API.
        token: for calls that change the run.

    """

    def __init__(self, port: int, token: str) -> None:
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_SECONDS, headers={"authorization": f"Bearer {token}"}
        )

    def run(self) -> Mapping[str, Any] | None:
        """The run's overview, or None while control does not answer."""
        found = self._get("/v1/run")
        return found if isinstance(found, Mapping) else None

    def ledger(self) -> Mapping[str, Any] | None:
        """The run's ledger, or None while control does not answer."""
        found = self._get("/v1/ledger")
        return found if isinstance(found, Mapping) else None

    def history(self, after: int) -> Sequence[Mapping[str, Any]]:
        """History entries from number `after` on; none while control does not answer."""
        found = self._get(f"/v1/history?after={after}")
        return found if isinstance(found, list) else []

    def stop(self) -> bool:
        """Ask the run to checkpoint and end; whether control heard it."""
        try:
            return self._client.post("/v1/run/stop").is_success
        except httpx.TransportError:
            return False

    def reset(self) -> int | None:
        """Ask for a reset; returns the epoch that begins then, or None while control does not answer.

        Raises:
            BadInput: control refuses, with its own words.

        """
        try:
            answer = self._client.post("/v1/resets", params={"reason": "asked on the command line"})
        except httpx.TransportError:
            return None
        found = answer.json()
        if answer.is_error:
            raise BadInput(found["detail"])
        return int(found["reference_epoch"])

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _get(self, path: str) -> Any:
        try:
            answer = self._client.get(path)
        except httpx.TransportError:  # not up yet, or going down
            return None
        return answer.json() if answer.is_success else None
