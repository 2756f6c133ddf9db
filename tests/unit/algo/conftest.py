"""The golden cases, read once."""

import json
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "pacs_loss.json"


NEEDED = {  # what a case must list to be one of the test's, by the name of its parameter
    "case": "loss",
    "case_with_full_gradient": "dloss_dlogprob_per_sequence_full",
    "case_with_opposed_samples": "correct_samples_pathwise_raises_and_full_lowers",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for parameter in NEEDED.keys() & set(metafunc.fixturenames):
        cases = json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]
        listing = [case for case in cases if case.get(NEEDED[parameter]) not in (None, [])]
        assert listing, f"no golden case lists {NEEDED[parameter]}"
        metafunc.parametrize(parameter, listing, ids=[case["name"] for case in listing])
