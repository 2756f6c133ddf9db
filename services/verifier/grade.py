"""Grades without a run: `python -m services.verifier.grade FILE --task math --out OUT`, or one text with `--text`.

`pacs verify` is this.
"""

import argparse
import asyncio
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pacs.errors import BadInput
from pacs.runtime.config import VerifierSection
from pacs.runtime.process import exit_code_of
from services.verifier.checkers.interface import Checker, Judgement, judged
from services.verifier.checkers.registry import Registry, load_registry
from services.verifier.checkers.weak_isolation import WEAK
from services.verifier.judging import judge
from services.verifier.offline_rows import OfflineRow, read_rows, result_line, write_results

__all__ = ["grade_rows", "main"]

log = logging.getLogger(__name__)

AT_ONCE_PER_WORKER = 8
PROGRESS_SECONDS = 1.0

WHY = {
    ("ok", "text"): "the answer is the gold's text, typography aside",
    ("ok", "rational"): "answer and gold are the same number, compared exactly",
    ("wrong", "rational"): "answer and gold are different numbers, compared exactly",
    ("ok", "structure"): "answer and gold have the same parts",
    ("wrong", "structure"): "answer and gold differ in kind, or in a part",
    ("ok", "sympy"): "answer and gold agree as mathematics, to 30 digits where they are numbers",
    ("wrong", "sympy"): "answer and gold do not agree as mathematics, or the answer does not parse",
    ("too_complex", "guard"): "the answer is longer, deeper or larger than any honest one, and is not computed",
    ("no_answer", "extraction"): r"there is no \boxed{} outside the reasoning, or the last one is empty or open",
    ("truncated", "extraction"): "the text ends inside its reasoning",
    ("ok", "reference"): "math-verify reads the whole text and says so",
    ("wrong", "reference"): "math-verify reads the whole text and says so",
}
WHY_STATUS = {
    "ok": "the checker accepts the answer",
    "wrong": "the checker does not accept the answer",
    "timeout": "the check did not end in time; it is not judged",
    "error": "the checker failed, or the gold cannot be read; it is not judged",
}


async def grade_rows(checker: Checker, rows: Sequence[OfflineRow], at_once: int, progress: bool) -> list[Judgement]:
    """Judge all rows, in their order; a row that a checker refuses is not judged."""
    judgements: list[Judgement | None] = [None] * len(rows)
    waiting = iter(enumerate(rows))
    done = 0

    async def work() -> None:
        nonlocal done
        for index, row in waiting:
            judgements[index] = await _judged(checker, row)
            done += 1
            await asyncio.sleep(0)  # what the quick path decides never waits by itself

    async def report() -> None:
        started = time.monotonic()
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            rate = done / (time.monotonic() - started)
            sys.stderr.write(f"\r{done} of {len(rows)} judged, {rate:.0f}/s ")
            sys.stderr.flush()

    reporter = asyncio.create_task(report()) if progress else None
    try:
        await asyncio.gather(*(work() for _ in range(at_once)))
    finally:
        if reporter is not None:
            reporter.cancel()
    return [judgement for judgement in judgements if judgement is not None]


async def _judged(checker: Checker, row: OfflineRow) -> Judgement:
    started = time.perf_counter()
    try:
        return await judge(partial(checker.check, row.completion, row.gold, row.task_data), f"row {row.row_id}")
    except BadInput as error:
        log.warning("row %s cannot be judged: %s", row.row_id, error)
        return judged(started, "error", "none")


def main() -> None:
    """Read the command line and grade.

    Raises:
        BadInput: the command line or the file breaks a rule.

    """
    options = _parser().parse_args()
    if (options.file is None) == (options.text is None):
        raise BadInput("pacs verify grades FILE or one --text, got both or neither; give one of them")
    if options.text is not None and options.gold is None and options.task != "code":
        raise BadInput("--text needs --gold, the answer to compare it with")
    settings = _settings(options)
    if options.text is not None:
        asyncio.run(_explain(settings, options))
        return
    rows = read_rows(options.file, options.task, settings.math.extract)
    asyncio.run(_grade_file(settings, options, rows))


async def _grade_file(settings: VerifierSection, options: argparse.Namespace, rows: Sequence[OfflineRow]) -> None:
    registry = load_registry(settings)
    try:
        checker = registry.get(options.task)
        started = time.monotonic()
        judgements = await grade_rows(checker, rows, AT_ONCE_PER_WORKER * settings.workers, sys.stderr.isatty())
    finally:
        await registry.close()
    lines = [result_line(row, judgement) for row, judgement in zip(rows, judgements, strict=True)]
    if options.out is None:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    else:
        write_results(options.out, lines)
    seconds = time.monotonic() - started
    counts = ", ".join(f"{n} {status}" for status, n in Counter(j.status for j in judgements).most_common())
    sys.stderr.write(f"\r{len(rows)} judged in {seconds:.1f} s: {counts}\n")


async def _explain(settings: VerifierSection, options: argparse.Namespace) -> None:
    registry: Registry = load_registry(settings)
    try:
        judgement = await _judged(registry.get(options.task), OfflineRow("text", options.text, options.gold or ""))
    finally:
        await registry.close()
    why = WHY.get((judgement.status, judgement.method.removesuffix(WEAK))) or WHY_STATUS.get(
        judgement.status, judgement.status
    )
    shown = {
        "answer": judgement.extracted or "(none)",
        "gold": options.gold,
        "label": judgement.label.name.lower(),
        "status": judgement.status,
        "method": judgement.method,
        "why": why,
        "seconds": f"{judgement.seconds:.4f}",
    }
    sys.stdout.write("".join(f"{name:8} {value}\n" for name, value in shown.items()))


def _settings(options: argparse.Namespace) -> VerifierSection:
    from pacs.runtime.config_file import load_config

    section = load_config(options.config).verifier if options.config else VerifierSection(workers=os.cpu_count() or 1)
    changes: dict[str, object] = {}
    if options.extract:
        changes["math"] = section.math.model_copy(update={"extract": options.extract})
    if options.workers is not None:
        if options.workers < 1:
            raise BadInput(f"--workers must be at least 1, got {options.workers}")
        changes["workers"] = options.workers
    return section.model_copy(update=changes)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]  # theirs exits, ours raises: neither returns
        raise BadInput(f"{message}; see pacs verify --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="pacs verify", description="Grade a file of JSON lines, or explain one verdict.")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE")
    parser.add_argument("--task", default="math", help="checker: math, choice, code, exact, reasoning_gym or a plug-in")
    parser.add_argument("--extract", choices=("strict", "reference"), help="how mathematics finds the answer")
    parser.add_argument("--out", type=Path, help="file for the verdicts; standard output by default")
    parser.add_argument("--text", help="one completion to explain, instead of FILE")
    parser.add_argument("--gold", help="its gold answer")
    parser.add_argument("--config", type=Path, help="run file whose verifier section is used")
    parser.add_argument("--workers", type=int, help="worker processes; one a core by default")
    return parser


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(message)s")
    raise SystemExit(exit_code_of(main))
