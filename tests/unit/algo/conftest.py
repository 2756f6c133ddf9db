"""The golden cases, read once."""

import json
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "pacs_loss.json"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        cases = json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]
        metafunc.parametrize("case", cases, ids=[case["name"] for case in cases])
