import httpx
import pytest

from pacs.errors import BadInput
from pacs.local.control_client import ControlClient


def client_of(answer):
    client = ControlClient(1, "sesame")
    client.close()
    client._client = httpx.Client(base_url="http://control", transport=httpx.MockTransport(answer))
    return client


def test_a_reset_is_asked_for_and_its_epoch_told():
    asked = []

    def control(request):
        asked.append((request.method, request.url.path))
        return httpx.Response(202, json={"reference_epoch": 3})

    assert client_of(control).reset() == 3
    assert asked == [("POST", "/v1/resets")]


def test_a_refused_reset_is_an_error_in_controls_own_words():
    refusing = client_of(lambda request: httpx.Response(409, json={"detail": "a reset needs a reference that is kept"}))
    with pytest.raises(BadInput, match="needs a reference that is kept"):
        refusing.reset()


def test_a_control_that_is_down_is_no_answer():
    def down(request):
        raise httpx.ConnectError("refused", request=request)

    assert client_of(down).reset() is None
