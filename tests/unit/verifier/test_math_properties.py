"""What must hold for every text: grading is stable, never raises, and ends."""

import asyncio
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pacs.wire.groups import Label
from services.verifier.checkers.answer import read_answer
from services.verifier.checkers.compare import same_answer
from services.verifier.checkers.guard import is_too_complex
from services.verifier.checkers.math import MathChecker
from services.verifier.checkers.policy import MathPolicy
from services.verifier.checkers.quick import same_scalar
from services.verifier.checkers.worker_pool import WorkerPool

POLICY = MathPolicy()

integers = st.integers(-999, 999).map(str)
fractions = st.tuples(st.integers(-99, 99), st.integers(1, 99)).map(lambda f: rf"\frac{{{f[0]}}}{{{f[1]}}}")
scalars = integers | fractions | st.sampled_from(["x", r"\pi", r"\sqrt{2}", "2x+1", r"\text{no}", "3,000"])
answers = (
    scalars
    | st.lists(scalars, min_size=2, max_size=5).map(", ".join)
    | st.lists(scalars, min_size=1, max_size=5).map(lambda items: rf"\{{{', '.join(items)}\}}")
    | st.lists(scalars, min_size=2, max_size=4).map(lambda items: f"({', '.join(items)})")
)
PIECES = r"""
\frac \sqrt { } ( ) [ ] \{ \} , ; = < > \le \cup \text{or} \text{and} and or ^ _ ! \pm 1 23 4.5 x \pi \circ % & \\ | : -
\begin{pmatrix} \end{pmatrix} \boxed{ </think> <think> \infty + / \$ $ ° ½ ² \in cm
"""
pieces = st.sampled_from([*PIECES.split(), " "])
soup = st.lists(pieces | st.text(max_size=4), max_size=50).map("".join)


def quick(gold, prediction):
    return same_answer(read_answer(gold), read_answer(prediction), lambda a, b: same_scalar(a, b, POLICY), POLICY)


def spaced(text, blanks):
    """Put blanks where LaTeX ignores them: around the commas."""
    return text.replace(", ", f"{blanks},{blanks} ")


@given(answers)
def test_every_answer_is_itself(text):
    assert quick(text, text) is True


@given(answers, st.text(" \n\t", max_size=3))
def test_blanks_change_nothing(text, blanks):
    assert quick(text, f"{blanks}{spaced(text, blanks)}{blanks}") is True


@given(answers)
def test_harmless_latex_changes_nothing(text):
    variant = text.replace(r"\frac", r"\dfrac").replace("(", r"\left(").replace(")", r"\right)")
    for other in (variant, f"${text}$", rf"\({text}\)", f"{text}.", f"{text}\\,", f"{{{text}}}"):
        assert quick(text, other) is True, other


@given(st.lists(scalars, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_a_set_does_not_count_and_that_of_a_tuple_does(items, random):
    shuffled = random.sample(items, len(items))
    assert quick(rf"\{{{', '.join(items)}\}}", rf"\{{{', '.join(shuffled)}\}}") is True
    assert quick(", ".join(items), ", ".join(shuffled)) is True
    in_place = all(quick(a, b) for a, b in zip(items, shuffled, strict=True))
    assert (quick(f"({', '.join(items)})", f"({', '.join(shuffled)})") is True) == in_place


@given(soup, soup)
@settings(max_examples=300)
def test_no_text_makes_structure_raise(gold, prediction):
    if not (is_too_complex(gold) or is_too_complex(prediction)):
        assert quick(gold, prediction) in (True, False, None)


@pytest.mark.parametrize("size", [2_000, 1_000_000])
@pytest.mark.parametrize(
    "unit", ["9^{", "(", "1,", r"\frac{", "x", r"\text{and}", "{,}", "\\", r"\{", "=", "<", "&", " ", "½"]
)
def test_a_hostile_megabyte_is_decided_in_the_time_it_takes_to_read(unit, size):
    checker = MathChecker()
    completion = rf"\boxed{{{unit * (size // len(unit))}}}"
    started = time.process_time()

    async def check():
        async with asyncio.timeout(60):
            return await checker.check(completion, r"\{1,2\}", {})

    judgement = asyncio.run(check_without_worker(checker, check))
    assert time.process_time() - started < 5
    assert judgement.label in (Label.WRONG, Label.INVALID)


async def check_without_worker(checker, check):
    """Hostile bulk must never get as far as a worker; what does is answered here."""

    async def refuse(_body, _cpu_seconds=None):
        return {"status": "wrong"}

    pool = checker._pool
    assert isinstance(pool, WorkerPool)
    pool.outcome = refuse
    try:
        return await check()
    finally:
        await checker.close()


class Loop:
    """One event loop and one checker for all examples: a worker takes a second to start."""

    def __init__(self):
        self.runner = asyncio.Runner()
        self.checker = MathChecker(workers=1, cpu_seconds=1.0)

    def check(self, prediction, gold):
        return self.runner.run(self.checker.check(rf"\boxed{{{prediction}}}", gold, {}))

    def close(self):
        self.runner.run(self.checker.close())
        self.runner.close()


@pytest.fixture(scope="module")
def loop():
    loop = Loop()
    yield loop
    loop.close()


@given(prediction=soup, gold=st.sampled_from(["42", r"\{1,x\}", r"(0,\pi)", "x^2+1", r"\frac{\pi}{2}", "y=2x", "x<3"]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_makes_grading_raise_or_outlast_its_deadline(loop, prediction, gold):
    judgement = loop.check(prediction, gold)
    assert judgement.status in {"ok", "wrong", "no_answer", "truncated", "too_complex", "timeout", "error"}
    assert judgement.seconds < 60  # 1 CPU second; a loaded machine and a new worker are counted in
