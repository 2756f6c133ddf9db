"""The bearer token on gRPC, both sides."""

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from pacs.errors import BadInput

__all__ = ["BearerInterceptor", "bearer_metadata"]


def bearer_metadata(token: str) -> tuple[tuple[str, str], ...]:
    """Metadata a client sends with every call."""
    return (("authorization", f"Bearer {token}"),)


class BearerInterceptor(grpc.aio.ServerInterceptor):
    """Turns away calls without the token: UNAUTHENTICATED.

    Raises:
        BadInput: the token is empty.

    """

    def __init__(self, token: str) -> None:
        if not token:
            raise BadInput("the run's bearer token must not be empty; put one into PACS_TOKEN or PACS_TOKEN_FILE")
        self._expected = f"Bearer {token}".encode()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """See grpc.aio.ServerInterceptor."""
        given = dict(handler_call_details.invocation_metadata).get("authorization", "")
        text = given.encode() if isinstance(given, str) else given
        handler = await continuation(handler_call_details)
        return handler if hmac.compare_digest(text, self._expected) else _refusing(handler)


def _refusing(handler: Any) -> Any:
    """A handler of the same shape that turns the call away."""

    async def refuse(_request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the call needs the run's bearer token in `authorization`")

    async def refuse_stream(_request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the call needs the run's bearer token in `authorization`")
        yield  # an async generator, as the caller expects

    if handler.request_streaming and handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(refuse_stream)
    return grpc.unary_unary_rpc_method_handler(refuse)
