"""Control's HTTP side, for people and scrapers. Reading is open on the bound address, changing needs the token."""

import hmac
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from pacs.errors import BadInput
from services.control.handler import ControlHandler, ledger_object

__all__ = ["make_app"]


def make_app(handler: ControlHandler, registry: CollectorRegistry, token: str) -> FastAPI:
    """Build the application."""
    app = FastAPI(title="PACS control", docs_url=None, redoc_url=None)
    scheme = HTTPBearer(auto_error=False)

    def authorised(given: Annotated[HTTPAuthorizationCredentials | None, Depends(scheme)]) -> None:
        if given is None or not hmac.compare_digest(given.credentials.encode(), token.encode()):
            raise HTTPException(401, "this call changes the run and needs its bearer token")

    @app.get("/v1/run")
    async def run() -> dict[str, Any]:
        return await handler.overview()

    @app.get("/v1/ledger")
    async def ledger() -> dict[str, Any]:
        return ledger_object(await handler.ledger())

    @app.get("/v1/history")
    async def history(after: int = 0) -> list[dict[str, Any]]:
        return await handler.history(after)

    @app.post("/v1/run/pause", dependencies=[Depends(authorised)])
    async def pause(reason: Annotated[str, Query(max_length=1000)] = "") -> dict[str, Any]:
        await handler.set_paused(True, reason)
        return await handler.overview()

    @app.post("/v1/run/resume", dependencies=[Depends(authorised)])
    async def resume() -> dict[str, Any]:
        await handler.set_paused(False)
        return await handler.overview()

    @app.post("/v1/run/stop", dependencies=[Depends(authorised)])
    async def stop() -> dict[str, Any]:
        await handler.stop("asked over HTTP")
        return await handler.overview()

    @app.post("/v1/resets", dependencies=[Depends(authorised)], status_code=202)
    async def reset(reason: Annotated[str, Query(max_length=1000)] = "asked over HTTP") -> dict[str, Any]:
        try:
            return {"reference_epoch": await handler.request_reset(reason)}
        except BadInput as error:
            raise HTTPException(409, str(error)) from error

    @app.get("/healthz")
    async def healthz() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        if handler.failure:
            return Response(f"{handler.failure}\n", status_code=503, media_type="text/plain")
        return Response("ready\n", media_type="text/plain")

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return app
