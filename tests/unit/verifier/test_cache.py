import pytest

from pacs.wire.groups import Label
from services.verifier.cache import VerdictCache, content_key, row_digest
from services.verifier.checkers.interface import Judgement


def judgement(label=Label.CORRECT, status="ok"):
    return Judgement(label, status, "text", 0.25, "42", reference="wrong")


def test_a_settled_verdict_is_given_again_in_no_time():
    cache = VerdictCache(4)
    cache.put(b"k", judgement())
    found = cache.get(b"k")
    assert (found.label, found.seconds, found.extracted, found.reference) == (Label.CORRECT, 0.0, "42", "")
    assert cache.get(b"other") is None


@pytest.mark.parametrize("status", ["timeout", "error"])
def test_what_was_not_judged_is_not_kept(status):
    cache = VerdictCache(4)
    cache.put(b"k", judgement(Label.INVALID, status))
    assert cache.get(b"k") is None


def test_the_one_not_asked_for_longest_goes_first():
    cache = VerdictCache(2)
    cache.put(b"a", judgement())
    cache.put(b"b", judgement())
    cache.get(b"a")
    cache.put(b"c", judgement())
    assert cache.get(b"b") is None
    assert cache.get(b"a") is not None
    assert len(cache) == 2


def test_a_cache_of_no_entries_keeps_nothing():
    cache = VerdictCache(0)
    cache.put(b"k", judgement())
    assert len(cache) == 0


def key(task, answer, task_data, finish_reason, completion):
    return content_key(row_digest(task, answer, task_data), finish_reason, completion)


def test_the_key_depends_on_everything_a_verdict_depends_on():
    rows = [
        ("math", "42", {}, "stop", "a"),
        ("exact", "42", {}, "stop", "a"),
        ("math", "43", {}, "stop", "a"),
        ("math", "42", {"x": 1}, "stop", "a"),
        ("math", "42", {}, "stop", "b"),
        ("math", "42", {}, "length", "a"),
        ("math", "4", {}, "stop", '2", {}]a'),
    ]
    assert len({key(*row) for row in rows}) == len(rows)
    assert key("t", "g", {"a": 1, "b": 2}, "stop", "c") == key("t", "g", {"b": 2, "a": 1}, "stop", "c")


def test_text_that_is_no_unicode_has_a_key():
    assert key("math", "42", {}, "stop", "\ud800")
