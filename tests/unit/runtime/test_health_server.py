import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter

from pacs.errors import BadInput
from pacs.runtime.health_server import HealthServer


@pytest.fixture
def service():
    registry = CollectorRegistry()
    Counter("work", "Work done", registry=registry).inc(3)
    reasons = [""]
    server = HealthServer(registry, lambda: reasons[0], "127.0.0.1", 0)
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
        yield client, reasons, server
    server.close()


def test_health_readiness_and_metrics_are_told_apart(service):
    client, reasons, _ = service
    assert client.get("/healthz").text == "ok\n"
    assert client.get("/readyz").status_code == 200
    reasons[0] = "a verified publication of weights"
    answer = client.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "a verified publication of weights\n")
    assert client.get("/healthz").status_code == 200, "not ready is not ill"
    assert "work_total 3.0" in client.get("/metrics").text
    assert client.get("/").status_code == 404


def test_a_port_in_use_is_the_users_to_mend(service):
    with pytest.raises(BadInput, match=rf"cannot listen on 127\.0\.0\.1:{service[2].port}"):
        HealthServer(CollectorRegistry(), str, "127.0.0.1", service[2].port)
