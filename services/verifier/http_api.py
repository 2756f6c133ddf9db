"""The verifier alone, over HTTP: what `Check` is over gRPC, for systems that would rather send JSON."""

import hmac
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field

from pacs.errors import BadInput
from pacs.wire.groups import Label
from services.verifier.checkers.interface import Judgement
from services.verifier.item_checks import Item, ItemChecks

__all__ = ["make_app"]

MAX_ITEMS = 1024
LABELS = {Label.CORRECT: True, Label.WRONG: False, Label.INVALID: None}


class CheckItem(BaseModel):
    """See `services.verifier.item_checks.Item`."""

    model_config = ConfigDict(extra="forbid")

    task: str
    completion: str = ""
    answer: str = ""
    task_data: dict[str, Any] = {}
    gold: bool = False


class CheckRequest(BaseModel):
    """What is to be judged."""

    model_config = ConfigDict(extra="forbid")

    items: Annotated[list[CheckItem], Field(max_length=MAX_ITEMS)]


def make_app(checks: ItemChecks, token: str) -> FastAPI:
    """Build the application; every call needs the token, as a check may cost seconds of a core."""
    scheme = HTTPBearer(auto_error=False)

    def authorised(given: Annotated[HTTPAuthorizationCredentials | None, Depends(scheme)]) -> None:
        if given is None or not hmac.compare_digest(given.credentials.encode(), token.encode()):
            raise HTTPException(401, "the verifier needs the bearer token of the run")

    app = FastAPI(title="PACS verifier", docs_url=None, redoc_url=None, dependencies=[Depends(authorised)])

    @app.post("/v1/check")
    async def check(request: CheckRequest) -> dict[str, Any]:
        try:
            judgements = await checks.check([Item(**item.model_dump()) for item in request.items])
        except BadInput as error:
            raise HTTPException(422, str(error)) from None
        return {"results": [_result(judgement) for judgement in judgements]}

    return app


def _result(judgement: Judgement) -> dict[str, Any]:
    return {
        "label": LABELS[judgement.label],
        "status": judgement.status,
        "method": judgement.method,
        "seconds": judgement.seconds,
        "extracted": judgement.extracted,
    }
