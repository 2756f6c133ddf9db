"""The verifier's one word to control: pause."""

import logging

import httpx

from services.verifier.invalid_watch import Pause

__all__ = ["pause_over_http"]

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 10.0
ADMITS_NOTHING = frozenset({"paused", "stopping", "finished", "failed"})  # a run that still starts cannot be paused


def pause_over_http(base_url: str, token: str) -> Pause:
    """Return what asks control's HTTP API to pause the run, with the reason it is to show."""

    async def pause(reason: str) -> bool:
        headers = {"authorization": f"Bearer {token}"}
        try:
            async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=TIMEOUT_SECONDS) as client:
                answer = await client.post("/v1/run/pause", params={"reason": reason})
        except httpx.HTTPError as error:
            log.warning("control at %s is not reached: %r", base_url, error)
            return False
        if not answer.is_success:
            log.warning("control at %s refuses to pause: %d %s", base_url, answer.status_code, answer.text[:200])
            return False
        return answer.json().get("state") in ADMITS_NOTHING

    return pause
