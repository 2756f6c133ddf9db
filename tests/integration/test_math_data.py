"""Public golds verify against themselves, and real completions get the labels they came with, but for those listed."""

import asyncio
import json
from pathlib import Path

import pytest

from pacs.wire.groups import Label
from services.verifier.checkers.math import MathChecker

pytestmark = pytest.mark.anyio

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
AT_ONCE = 64

# docs/verifier.md says why.
UNVERIFIABLE = {"olympiad-1965", "minerva-5"}
DISAGREEMENTS = {
    "zeroeval-math-l5-Phi-3.5-mini-instruct-184",
    "zeroeval-math-l5-Meta-Llama-3.1-8B-Instruct-418",
}
GOLDS = ("gsm8k_train", "gsm8k_test", "math500", "aime24", "aime25", "amc23", "olympiadbench", "minerva_math")


def rows(name):
    path = DATA / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"the shared data are not here: {path}")
    return [json.loads(line) for line in path.read_text().split("\n") if line]


async def side_by_side(check, items):
    free = asyncio.Semaphore(AT_ONCE)

    async def one(item):
        async with free:
            return item, await check(item)

    return await asyncio.gather(*(one(item) for item in items))


async def test_public_golds_verify_against_themselves():
    golds = [row for name in GOLDS for row in rows(name)]
    checker = MathChecker(workers=2)
    try:
        checked = await side_by_side(lambda row: checker.check_gold(row["answer"], {}), golds)
    finally:
        await checker.close()
    assert len(checked) > 10_000
    assert {row["id"] for row, j in checked if j.label is not Label.CORRECT} == UNVERIFIABLE


async def test_real_completions_get_the_labels_they_came_with():
    completions = rows("completions")
    strict, reference = MathChecker(workers=2), MathChecker(workers=2, extract="reference", cpu_seconds=4.0)

    def check(row):
        boxed = row.get("completion_boxed") or (row["completion"] if row["answer_format"] == "boxed" else None)
        return (strict if boxed else reference).check(boxed or row["completion"], row["gold"], {})

    try:
        checked = await side_by_side(check, completions)
    finally:
        await strict.close()
        await reference.close()
    different = {row["id"] for row, j in checked if (j.label is Label.CORRECT) != row["label_if_known"]}
    assert different == DISAGREEMENTS
    assert len(different) / len(completions) < 0.01
    assert all(j.label is not Label.INVALID for _, j in checked)
