from importlib.metadata import EntryPoint

import pytest

from pacs.errors import BadInput
from pacs.runtime.config import VerifierSection
from services.verifier.checkers.exact import ExactChecker
from services.verifier.checkers.interface import Checker
from services.verifier.checkers.registry import PLUGIN_GROUP, Registry, builtin_checkers, load_registry, plugin_checkers

pytestmark = pytest.mark.anyio


class Closing(ExactChecker):
    def __init__(self, name, fails=False):
        self.name = name
        self.fails = fails
        self.closed = False

    async def close(self):
        if self.fails:
            raise OSError("does not close")
        self.closed = True


def entry_point(name, value):
    return EntryPoint(name, value, PLUGIN_GROUP)


async def test_the_built_in_checkers_are_there_by_name():
    registry = load_registry()
    assert set(registry.names) >= {"choice", "exact", "math", "reasoning_gym"}
    assert all(registry.get(name).name == name for name in registry.names)
    await registry.close()


def test_the_built_in_checkers_keep_the_interface():
    assert all(isinstance(checker, Checker) for checker in builtin_checkers(VerifierSection()))


def test_an_unknown_task_is_answered_with_the_known_ones():
    with pytest.raises(BadInput, match=r"'chess'; known are exact"):
        Registry([ExactChecker()]).get("chess")


def test_two_checkers_of_one_name_are_refused():
    with pytest.raises(BadInput, match="'exact'"):
        Registry([ExactChecker(), ExactChecker()])


def test_a_plugin_is_a_factory_named_as_its_checker():
    (checker,) = plugin_checkers([entry_point("exact", "services.verifier.checkers.exact:ExactChecker")])
    assert isinstance(checker, ExactChecker)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("gone", "no_such_package:make", "did not load"),
        ("gone", "services.verifier.checkers.exact:no_such_name", "did not load"),
        ("bare", "builtins:object", "check_gold"),
        ("other", "services.verifier.checkers.exact:ExactChecker", "'exact'"),
    ],
)
def test_a_plugin_that_breaks_the_rules_is_named(name, value, message):
    with pytest.raises(BadInput, match=message) as refused:
        plugin_checkers([entry_point(name, value)])
    assert f"plug-in '{name}'" in str(refused.value)


async def test_one_checker_that_fails_to_close_does_not_keep_the_others_open():
    good = Closing("good")
    with pytest.raises(OSError, match="does not close"):
        await Registry([Closing("bad", fails=True), good]).close()
    assert good.closed
