import time

import pytest

from services.verifier.checkers.code_extraction import extract_program


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("So:\n```python\nx = 1\n\nprint(x)\n```\nDone.", "x = 1\n\nprint(x)"),
        ("```python\nfirst\n```\nbetter:\n```python\nsecond\n```", "second"),
        ("```py\nprint(1)\n```", "print(1)"),
        ("```Python3\nprint(1)\n```", "print(1)"),
        ("```\nprint(1)\n```", "print(1)"),
        ("```python\nprint(1)\n```\nIt prints\n```\n1\n```", "print(1)"),
        ("```python\nprint(1)\n```\n```bash\nrm x\n```", "print(1)"),
        ("```python\nprint(1)\n```\nand\n```python\nprint(", "print(1)"),
        ("<think>\n```python\nno\n```\n</think>\n```python\nyes\n```", "yes"),
        ("  ```python\n  indented\n  ```", "  indented"),
    ],
)
def test_the_last_closed_block_of_python_counts(completion, program):
    found = extract_program(completion)
    assert (found.status, found.text) == ("ok", program)


@pytest.mark.parametrize(
    ("completion", "status"),
    [
        ("", "no_answer"),
        ("print(1)", "no_answer"),
        ("```python\nprint(1)", "no_answer"),
        ("```python\n   \n```", "no_answer"),
        ("```bash\nls\n```", "no_answer"),
        ("`print(1)`", "no_answer"),
        ("<think>```python\nprint(1)\n```", "truncated"),
        ("<think>\n```python\nprint(1)\n```\n</think>\n", "no_answer"),
    ],
)
def test_without_one_there_is_no_answer(completion, status):
    assert extract_program(completion).status == status


def test_the_whole_text_where_the_row_says_so():
    assert extract_program("print(1)", whole=True).text == "print(1)"
    assert extract_program("  ", whole=True).status == "no_answer"


def test_a_hostile_megabyte_is_read_in_one_pass():
    started = time.process_time()
    extract_program("```python\n" * 100_000)
    extract_program("```" * 300_000)
    assert time.process_time() - started < 2.0
