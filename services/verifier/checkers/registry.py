"""The checkers by name: the built-in ones and those that installed packages bring."""

import asyncio
import logging
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from pacs.errors import BadInput
from pacs.runtime.config import VerifierSection
from services.verifier.checkers.choice import ChoiceChecker
from services.verifier.checkers.code import CodeChecker
from services.verifier.checkers.exact import ExactChecker
from services.verifier.checkers.interface import Checker
from services.verifier.checkers.math import MathChecker
from services.verifier.checkers.policy import MathPolicy
from services.verifier.checkers.reasoning_gym import ReasoningGymChecker
from services.verifier.checkers.weak_isolation import WeaklyIsolated

__all__ = ["PLUGIN_GROUP", "Registry", "builtin_checkers", "load_registry", "plugin_checkers"]

log = logging.getLogger(__name__)

PLUGIN_GROUP = "pacs.verifiers"


class Registry:
    """Finds the checker of a task.

    Raises:
        BadInput: two checkers claim one name.

    """

    def __init__(self, checkers: Iterable[Checker]) -> None:
        self._checkers: dict[str, Checker] = {}
        for checker in checkers:
            if checker.name in self._checkers:
                raise BadInput(
                    f"every checker needs its own name, got two called {checker.name!r}; "
                    f"rename the entry point in group {PLUGIN_GROUP!r}"
                )
            self._checkers[checker.name] = checker

    @property
    def names(self) -> tuple[str, ...]:
        """The known task names, sorted."""
        return tuple(sorted(self._checkers))

    def get(self, task: str) -> Checker:
        """Return the checker of a task.

        Raises:
            BadInput: no checker has that name.

        """
        try:
            return self._checkers[task]
        except KeyError:
            raise BadInput(
                f"task must name a checker, got {task!r}; known are {', '.join(self.names)} "
                f"(packages add more through the entry point group {PLUGIN_GROUP!r})"
            ) from None

    async def close(self) -> None:
        """Close every checker, also where one fails to close; the first failure is then raised."""
        results = await asyncio.gather(*(c.close() for c in self._checkers.values()), return_exceptions=True)
        for failure in filter(None, results):
            raise failure


def load_registry(settings: VerifierSection | None = None) -> Registry:
    """Make the registry of the built-in checkers and all installed plug-ins.

    Args:
        settings: the verifier's part of the run's file; its defaults where None.

    Raises:
        BadInput: a plug-in does not load, is no checker, or takes a name that is taken.

    """
    builtin = builtin_checkers(settings or VerifierSection())
    return Registry([*builtin, *plugin_checkers(entry_points(group=PLUGIN_GROUP))])


def builtin_checkers(settings: VerifierSection) -> list[Checker]:
    """Make the checkers that ship with the verifier; their processes start when first needed.

    Where `sandbox.isolation` is weak, every judgement of theirs says so.
    """
    workers, cpu_seconds, math = settings.workers, settings.check_cpu_seconds, settings.math
    weak = settings.sandbox.isolation == "weak"
    policy = MathPolicy(**math.model_dump(exclude={"extract", "shadow"}))
    checkers: list[Checker] = [
        MathChecker(workers, cpu_seconds, policy, math.extract, shadow=math.shadow, walls=not weak),
        ReasoningGymChecker(workers, cpu_seconds, settings.sandbox),
        ChoiceChecker(),
        ExactChecker(),
        CodeChecker(settings.sandbox),
    ]
    return [WeaklyIsolated(c) for c in checkers] if weak else checkers


def plugin_checkers(points: Iterable[EntryPoint]) -> list[Checker]:
    """Load plug-ins: each entry point is a factory without arguments, named as the checker it makes.

    Raises:
        BadInput: a factory fails, or what it makes is no checker of that name.

    """
    return [_plugin_checker(point) for point in points]


def _plugin_checker(point: EntryPoint) -> Checker:
    try:
        checker = point.load()()
    except Exception as error:  # somebody else's code, at import and at construction
        raise BadInput(
            f"plug-in {point.name!r} ({point.value}) of group {PLUGIN_GROUP!r} did not load: {error!r}; "
            "mend or uninstall its package"
        ) from error
    if not isinstance(checker, Checker) or checker.name != point.name:
        raise BadInput(
            f"plug-in {point.name!r} ({point.value}) must make a checker with that name and the methods check, "
            f"check_gold and close, got {checker!r} named {getattr(checker, 'name', None)!r}; mend its package"
        )
    log.info("checker %s comes from plug-in %s", point.name, point.value)
    return checker
