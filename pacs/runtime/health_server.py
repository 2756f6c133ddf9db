"""`/metrics`, `/healthz` and `/readyz` on a thread of their own, so that they answer while the service works."""

import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from pacs.errors import BadInput

__all__ = ["HealthServer"]

StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


class HealthServer:
    """Serves one process's registry and health.

    Args:
        registry: what /metrics shows.
        not_ready: empty when ready, else the reason.
        host: address to listen on.
        port: 0 picks a free one.

    Raises:
        BadInput: the port is in use.

    """

    def __init__(self, registry: CollectorRegistry, not_ready: Callable[[], str], host: str, port: int) -> None:
        self._registry = registry
        self._not_ready = not_ready
        try:
            self._server = make_server(host, port, self._answer, WSGIServer, _QuietHandler)
        except OSError as error:
            raise BadInput(
                f"cannot listen on {host}:{port} for metrics: {error}; free the port or set another"
            ) from error
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def _answer(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            start_response("200 OK", [("Content-Type", "text/plain; version=0.0.4; charset=utf-8")])
            return [generate_latest(self._registry)]
        if path == "/healthz":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [b"ok\n"]
        if path == "/readyz":
            reason = self._not_ready()
            start_response("503 Service Unavailable" if reason else "200 OK", [("Content-Type", "text/plain")])
            return [f"{reason or 'ready'}\n".encode()]
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"there is /metrics, /healthz and /readyz\n"]
