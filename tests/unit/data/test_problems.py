import json

import pytest

from pacs.data.problems import load_problems, problem_index
from pacs.errors import BadInput
from pacs.testing import make_config


@pytest.fixture
def write(tmp_path):
    def written(rows, name="problems.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
        return path

    return written


def load(path, seed=0, **data):
    config = make_config({f"data.{key}": value for key, value in {"path": path, **data}.items()})
    return load_problems(config.data, seed)


def rows(count):
    return [{"id": f"row-{n}", "prompt": f"{n} + 1?", "answer": n + 1} for n in range(count)]


def test_the_plain_schema(write):
    (problem,), heldout = load(write([{"prompt": "1 + 1?", "answer": 2}]), task="math", template="Q: {prompt}\nA:")
    assert heldout == []
    assert (problem.problem_id, problem.text, problem.answer, problem.task) == ("1", "1 + 1?", "2", "math")
    assert problem.messages == ({"role": "user", "content": "Q: 1 + 1?\nA:"},)
    assert problem.task_data == {}


def test_a_chat_goes_as_it_is(write):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]
    row = {"id": 7, "messages": chat, "answer": "2", "task": "exact", "task_data": {"case": "lower"}}
    ((problem,), _) = load(write([row]), template="ignored {prompt}")
    assert list(problem.messages) == chat
    assert (problem.problem_id, problem.text, problem.task) == ("7", "1 + 1?", "exact")
    assert problem.task_data == {"case": "lower"}


def test_field_names_are_settings(write):
    row = {"problem": "1 + 1?", "solution": "2", "key": "k"}
    ((problem,), _) = load(write([row]), prompt_field="problem", answer_field="solution", id_field="key")
    assert (problem.text, problem.answer, problem.problem_id) == ("1 + 1?", "2", "k")


def test_fields_beside_the_prompt_reach_the_checker_where_they_are_named(write):
    row = {"prompt": "Double x.", "tests": {"kind": "asserts"}, "hint": "2x", "task_data": {"extract": "whole"}}
    ((problem,), _) = load(write([row]), task="code", task_fields=["tests", "solution"])
    assert problem.task_data == {"tests": {"kind": "asserts"}, "extract": "whole"}
    assert problem.answer == ""


def test_only_tests_can_stand_for_an_answer(write):
    with pytest.raises(BadInput, match="needs the field 'answer'"):
        load(write([{"prompt": "1 + 1?"}]), task="math")


def test_the_template_is_text_not_a_format(write):
    ((problem,), _) = load(write([{"prompt": "{x}", "answer": "{y}"}]), template="{prompt} \\boxed{}")
    assert problem.messages[0]["content"] == "{x} \\boxed{}"


def test_an_optional_field_that_is_null_is_one_that_is_missing(write):
    row = {"prompt": "1 + 1?", "answer": "2", "id": None, "task": None, "task_data": None, "messages": None}
    ((problem,), _) = load(write([row]), task="math")
    assert (problem.problem_id, problem.task, problem.task_data) == ("1", "math", {})


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ('{"prompt": "x", "answer": ', r"line 2 must be JSON: .* at column \d+"),
        ("[1, 2]", "line 2 must be a JSON object, got list"),
        ({"answer": "2"}, r"line 2 needs the field 'prompt' or 'messages', got \['answer'\].*data.prompt_field"),
        ({"prompt": "x"}, r"line 2 needs the field 'answer', got \['prompt'\].*data.answer_field"),
        ({"prompt": "x", "answer": None}, "line 2 needs the field 'answer'"),
        ({"messages": "hello", "answer": "2"}, "line 2: a chat must be a non-empty list"),
        ({"messages": [], "answer": "2"}, "line 2: a chat must be a non-empty list"),
        ({"messages": [{"role": "user"}], "answer": "2"}, "line 2: every message needs role and content"),
        ({"prompt": "x", "answer": "2", "task_data": [1]}, "line 2: task_data must be an object, got list"),
    ],
)
def test_a_broken_row_is_named_with_its_line(write, row, named):
    with pytest.raises(BadInput, match=named):
        load(write([{"prompt": "1 + 1?", "answer": "2"}, row]))


def test_lines_are_counted_as_an_editor_counts_them(write):
    with pytest.raises(BadInput, match="line 4 must be JSON"):
        load(write([{"prompt": "x", "answer": "2"}, "", "  ", "{"]))


def test_bytes_that_are_no_utf8_are_named_with_their_line(tmp_path):
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"prompt": "x", "answer": "2"}\n{"prompt": "caf\xe9", "answer": "2"}\n')
    with pytest.raises(BadInput, match="line 2 must be UTF-8"):
        load(path)


def test_text_beyond_ascii_and_unusual_line_ends_survive(tmp_path):
    path = tmp_path / "unusual.jsonl"
    path.write_bytes('{"prompt": "π ≈ 3\u2028?", "answer": "√2"}\r\n'.encode())
    ((problem,), _) = load(path)
    assert (problem.text, problem.answer) == ("π ≈ 3\u2028?", "√2")


def test_no_file_and_no_rows_are_told_apart(write, tmp_path):
    with pytest.raises(BadInput, match=r"must exist, got .*none\.jsonl"):
        load(tmp_path / "none.jsonl")
    with pytest.raises(BadInput, match="at least one row"):
        load(write([""]))


def test_parquet_rows_are_like_json_rows(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    path = tmp_path / "problems.parquet"
    chat = [{"role": "user", "content": "a chat"}]
    table = [
        {"id": "a", "prompt": "1 + 1?", "answer": "2", "task": None, "messages": None},
        {"id": None, "prompt": None, "answer": "3", "task": "exact", "messages": chat},
    ]
    write_table(pyarrow.Table.from_pylist(table), path)
    (first, second), _ = load(path, task="math")
    assert (first.problem_id, first.text, first.task) == ("a", "1 + 1?", "math")
    assert (second.problem_id, second.text, second.task, list(second.messages)) == ("2", "a chat", "exact", chat)


def test_a_file_that_is_no_parquet_is_one_sentence(tmp_path):
    path = tmp_path / "problems.parquet"
    path.write_text("not parquet")
    with pytest.raises(BadInput, match="must be a parquet file"):
        load(path)


def test_the_heldout_rows_are_apart_and_chosen_by_seed(write):
    path = write(rows(50))
    training, heldout = load(path, seed=1, heldout_rows=10)
    assert (len(training), len(heldout)) == (40, 10)
    ids = {p.problem_id for p in training} | {p.problem_id for p in heldout}
    assert len(ids) == 50
    assert load(path, seed=1, heldout_rows=10) == (training, heldout)
    assert load(path, seed=2, heldout_rows=10)[1] != heldout


def test_a_question_asked_twice_is_not_on_both_sides(write):
    path = write([{"prompt": f"question {n % 10}", "answer": "1"} for n in range(40)])
    training, heldout = load(path, heldout_rows=4)
    assert {p.text for p in training}.isdisjoint(p.text for p in heldout)


def test_a_heldout_file_is_kept_out_of_training(write):
    path = write(rows(5))
    training, heldout = load(path, heldout_path=write(rows(7)[3:], "heldout.jsonl"))
    assert [p.text for p in training] == ["0 + 1?", "1 + 1?", "2 + 1?"]
    assert [p.text for p in heldout] == ["3 + 1?", "4 + 1?", "5 + 1?", "6 + 1?"]


def test_holding_out_everything_is_refused(write):
    with pytest.raises(BadInput, match=r"5 problems of which 5 are held out.*data\.heldout_rows"):
        load(write(rows(5)), heldout_rows=9)


def test_every_epoch_asks_every_problem_once_in_an_order_of_its_own():
    epochs = [[problem_index(epoch * 20 + place, 20, 3) for place in range(20)] for epoch in range(3)]
    assert all(sorted(order) == list(range(20)) for order in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_the_order_depends_on_seed_and_number_alone():
    straight = [problem_index(n, 7, 5) for n in range(50)]
    backwards = [problem_index(n, 7, 5) for n in reversed(range(50))][::-1]
    assert straight == backwards
    assert straight != [problem_index(n, 7, 6) for n in range(50)]
    assert straight[:7] == [5, 2, 3, 1, 4, 6, 0], "an order once used must never change: runs resume in it"


class TestReasoningGym:
    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("reasoning_gym")

    def load(self, family, seed=0, **data):
        return load(None, seed, source="reasoning_gym", family=family, **data)

    def test_a_family_makes_its_problems_from_the_seed(self):
        training, heldout = self.load("chain_sum", family_rows=12, heldout_rows=2, family_options={"min_terms": 3})
        assert (len(training), len(heldout)) == (10, 2)
        problem = training[0]
        assert problem.task == "reasoning_gym"
        assert problem.task_data["family"] == "chain_sum"
        assert problem.task_data["entry"]["question"] == problem.text
        json.dumps(dict(problem.task_data))
        assert self.load("chain_sum", family_rows=12, heldout_rows=2, family_options={"min_terms": 3})[0] == training
        assert self.load("chain_sum", seed=1, family_rows=12)[0] != training

    def test_options_go_with_every_row_as_scorers_depend_on_them(self):
        training, _ = self.load("chain_sum", family_rows=2, family_options={"min_terms": 3})
        assert training[0].task_data["options"] == {"min_terms": 3}

    def test_a_composite_draws_from_its_families(self):
        parts = [{"name": "gcd", "weight": 2}, {"name": "lcm", "config": {"min_numbers": 2, "max_numbers": 2}}]
        training, _ = self.load("composite", family_rows=20, family_options={"datasets": parts})
        sources = {problem.task_data["entry"]["metadata"]["source_dataset"] for problem in training}
        assert sources == {"gcd", "lcm"}
        assert {problem.task_data["family"] for problem in training} == {"composite"}
        with pytest.raises(BadInput, match=r"data\.family_options.*composite"):
            self.load("composite")

    def test_a_row_without_a_gold_has_an_empty_one(self):
        assert self.load("rush_hour", family_rows=1)[0][0].answer == ""

    def test_an_unknown_family_is_named_with_those_there_are(self):
        with pytest.raises(BadInput, match=r"'chain_sums'; known: .*'chain_sum'"):
            self.load("chain_sums")

    @pytest.mark.parametrize("options", [{"min_term": 3}, {"min_terms": -1}])
    def test_an_option_the_family_refuses_is_the_users_to_mend(self, options):
        with pytest.raises(BadInput, match=r"data\.family_options.*chain_sum"):
            self.load("chain_sum", family_options=options)
