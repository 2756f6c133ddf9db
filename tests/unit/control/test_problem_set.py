import numpy as np
import pytest

from pacs.data.problems import Problem
from pacs.errors import BadInput
from services.control.probe import probe_token_ids
from services.control.problem_set import PreparedProblem, prepare

pytestmark = pytest.mark.anyio


def problem(name, words, answer="1"):
    return Problem(name, ({"role": "user", "content": "w " * words},), name, "math", answer)


def tokenize(messages):
    return np.ones(len(messages[0]["content"].split()), dtype=np.int32)


class Verifier:
    def __init__(self):
        self.asked = []

    async def __call__(self, problems):
        self.asked += [p.problem_id for p in problems]
        return ["" if p.answer == "1" else "no_answer" for p in problems]


async def test_over_long_prompts_and_golds_that_do_not_verify_are_refused_and_counted(caplog):
    training = [problem("good", 5), problem("long", 6), problem("bad", 2, "?"), problem("both", 9, "?")]
    heldout = [problem("held", 1), problem("held-bad", 1, "?")]
    verifier = Verifier()
    kept = await prepare(training, heldout, tokenize, verifier, max_prompt_tokens=5)
    assert [p.problem.problem_id for p in kept.training] == ["good"]
    assert [p.problem.problem_id for p in kept.heldout] == ["held"]
    assert kept.refused == {"prompt_too_long": 2, "gold_unverifiable": 2}
    assert kept.training[0].token_ids.tolist() == [1] * 5
    assert verifier.asked == ["good", "bad", "held", "held-bad"], "what is too long need not be checked"
    assert "refused 4 rows at load" in caplog.text


async def test_nothing_refused_is_nothing_said(caplog):
    kept = await prepare([problem("a", 1)], [], tokenize, Verifier(), 5)
    assert kept.refused == {}
    assert caplog.text == ""


async def test_a_run_without_problems_is_refused_with_the_reasons():
    with pytest.raises(BadInput, match=r"all 2 were refused: .*'prompt_too_long': 1.*data\.max_prompt_tokens"):
        await prepare([problem("a", 9), problem("b", 1, "?")], [], tokenize, Verifier(), 5)


def test_the_probe_is_the_longest_of_the_first_prompts():
    problems = [PreparedProblem(problem(str(n), 1), np.full(n, n, dtype=np.int32)) for n in (3, 7, 5)]
    assert probe_token_ids(problems, 64).tolist() == [7] * 7
    assert probe_token_ids(problems, 4).tolist() == [7] * 4
    assert probe_token_ids(problems, 64).dtype == np.int32
