"""`pacs verify`: a file graded without a run, one verdict explained, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pacs.errors import BadInput
from services.verifier.offline_rows import read_rows

ROOT = Path(__file__).parents[3]


def verify(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "services.verifier.grade", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )


def rows_file(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def test_grades_a_file_in_its_order(tmp_path):
    path = rows_file(
        tmp_path,
        {"id": "a", "gold": "1/2", "prediction": "0.5"},
        {"id": "b", "gold": "1/2", "completion": "0.5"},
        {"id": "c", "gold": 7, "completion": r"<think>\boxed{8}</think> \boxed{7}"},
        {"gold": "(" * 60, "prediction": "x"},
    )
    out = tmp_path / "out.jsonl"
    done = verify(path, "--out", out, "--workers", 1)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(r["id"], r["label"], r["status"], r["method"]) for r in results] == [
        ("a", True, "ok", "rational"),
        ("b", False, "no_answer", "extraction"),
        ("c", True, "ok", "text"),
        (4, None, "error", "guard"),
    ]
    assert all(r["seconds"] >= 0 for r in results)
    assert "4 judged" in done.stderr


def test_explains_one_verdict():
    done = verify("--text", r"so \boxed{0.5}", "--gold", r"\frac12")
    assert done.returncode == 0, done.stderr
    said = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert (said["answer"], said["label"], said["method"]) == ("0.5", "correct", "rational")
    assert "same number" in said["why"]


def test_another_task_takes_the_text_as_it_is(tmp_path):
    path = rows_file(tmp_path, {"gold": "B", "prediction": "(B)"}, {"gold": "B", "prediction": "C"})
    done = verify(path, "--task", "choice")
    assert [json.loads(line)["label"] for line in done.stdout.splitlines()] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "FILE or one --text"),
        (("nowhere.jsonl",), "nowhere.jsonl"),
        (("--text", "x"), "--gold"),
        (("x", "--extract", "loose"), "loose"),
        (("x", "--workers", "0"), "--workers"),
        (("tests/cases/math.jsonl", "--task", "chess"), "chess"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, named):
    done = verify(*arguments)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert named in line


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("{", "does not parse"),
        ("[]", "a list"),
        ({"gold": "1"}, "completion or prediction"),
        ({"prediction": "1"}, "gold"),
        ({"gold": "1", "prediction": ["1"]}, "prediction"),
        ({"gold": "1", "prediction": "1", "task_data": 3}, "task_data"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path, row, named):
    path = rows_file(tmp_path, {"gold": "1", "prediction": "1"}, row)
    with pytest.raises(BadInput, match=f"line 2 .*{named}"):
        read_rows(path, "math", "strict")


def test_programs_come_with_their_tests(tmp_path):
    path = rows_file(tmp_path, {"id": "p", "code": "print(1)", "tests": ["assert True"], "test_setup": ""})
    (row,) = read_rows(path, "code", "strict")
    assert row.completion == "```python\nprint(1)\n```\n"
    assert row.task_data == {"tests": ["assert True"], "test_setup": ""}
