"""The `pacs` command line. Nothing heavy is imported before a command needs it: `pacs --help` answers at once."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from pacs.errors import BadInput, PacsError

__all__ = ["app", "main"]

EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED = 2, 70, 130

app = typer.Typer(
    name="pacs",
    help="Train reasoning language models with PACS: reinforcement learning with verifiable rewards as classification.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigPath = Annotated[Path, typer.Argument(help="The run's YAML file.", metavar="CONFIG")]
RunFolder = Annotated[Path | None, typer.Option("--run", help="Folder of the run; the newest in runs/ by default.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="section.key=value over the file; repeatable.")]


@app.command()
def run(
    config: ConfigPath,
    overrides: Overrides = None,
    max_steps: Annotated[int | None, typer.Option(help="Short for --set run.max_steps=N.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew instead of continuing a run of this name.")
    ] = False,
) -> None:
    """Run on this machine: Redis and all four services, a live view, a report at the end.

    Give the same command again to continue a run that was stopped.
    """
    from pacs.local import preflight
    from pacs.local.supervisor import Interrupted, run_locally
    from pacs.runtime.config_file import load_config

    changes = list(overrides or [])
    if max_steps is not None:
        changes.append(f"run.max_steps={max_steps}")
    checked = load_config(config, changes)
    preflight.check(checked)
    try:
        summary = run_locally(checked, fresh)
    except Interrupted:
        sys.stderr.write("stopped: everything is down, the same command continues the run\n")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    from pacs.local.ending import show_ending

    show_ending(summary, checked.run.path)


@app.command()
def status(run: RunFolder = None) -> None:
    """Show where a run stands."""
    from pacs.local.questions import status_table

    _console().print(status_table(_workspace(run)))


@app.command()
def ledger(
    run: RunFolder = None, as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False
) -> None:
    """Show where every admitted group is: trained, dropped (and why) or in flight."""
    from pacs.local.questions import ledger_table, read_ledger

    found = read_ledger(_workspace(run))
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _console().print(ledger_table(found))


@app.command()
def stop(run: RunFolder = None) -> None:
    """Ask a run to save a checkpoint and end; `pacs run` continues it later."""
    from pacs.local.questions import stop_run

    typer.echo(stop_run(_workspace(run)))


@app.command()
def reset(run: RunFolder = None) -> None:
    """Replace a live run's reference by its policy and renew the optimizer, after the batch in hand."""
    from pacs.local.questions import reset_run

    typer.echo(reset_run(_workspace(run)))


@app.command()
def export(
    to: Annotated[Path, typer.Option("--to", help="Folder to write, in Hugging Face format.")], run: RunFolder = None
) -> None:
    """Write the model of a run's newest checkpoint."""
    workspace = _workspace(run)
    _become("services.learner.export", workspace.config_file, to)


@app.command()
def doctor(config: ConfigPath, overrides: Overrides = None) -> None:
    """Check everything a run needs on this machine, engine and learner included; exit code 1 if something is wrong."""
    from pacs.local.doctor import diagnose
    from pacs.runtime.config_file import load_config

    if not diagnose(load_config(config, overrides or []), _console()):
        raise typer.Exit(1)


@app.command()
def verify(
    file: Annotated[Path | None, typer.Argument(help="JSON lines: id, gold, and completion or prediction.")] = None,
    task: Annotated[str, typer.Option(help="Checker: math, choice, code, exact, reasoning_gym or a plug-in.")] = "math",
    extract: Annotated[str | None, typer.Option(help="strict or reference: how mathematics finds the answer.")] = None,
    out: Annotated[Path | None, typer.Option(help="File for the verdicts; standard output by default.")] = None,
    text: Annotated[str | None, typer.Option(help="One completion to explain, instead of FILE.")] = None,
    gold: Annotated[str | None, typer.Option(help="Its gold answer.")] = None,
    config: Annotated[Path | None, typer.Option(help="Run file whose verifier section is used.")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes; one a core by default.")] = None,
) -> None:
    """Grade completions without a run, or explain one verdict with --text and --gold."""
    options = {"extract": extract, "out": out, "text": text, "gold": gold, "config": config, "workers": workers}
    given = [f"--{name}={value}" for name, value in options.items() if value is not None]
    files = ["--", str(file)] if file is not None else []
    _become("services.verifier.grade", f"--task={task}", *given, *files)


def _service_command(name: str) -> Callable[[Path], None]:
    def start(config: ConfigPath) -> None:
        _become(f"services.{name}", config)

    start.__doc__ = f"Start the {name} service alone; addresses and secrets come from PACS_… in the environment."
    return start


for _name in ("control", "rollout", "verifier", "learner"):
    app.command(_name)(_service_command(_name))


def main() -> None:
    """Run the command line; the project's own errors become one sentence and an exit code."""
    try:
        app()
    except BadInput as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(EXIT_BAD_INPUT) from None
    except PacsError as error:
        sys.stderr.write(f"failed: {error}\n")
        raise SystemExit(EXIT_FAILED) from None


def _workspace(run: Path | None) -> Any:
    from pacs.local.workspace import Workspace, newest_run

    return Workspace(run) if run is not None else newest_run(Path("runs"))


def _console() -> Any:
    from rich.console import Console

    return Console()


def _become(module: str, *arguments: Path | str) -> None:
    """Replace this process by `python -m module`, so that signals go straight to it."""
    os.execv(  # noqa: S606  # no shell is wanted
        sys.executable, [sys.executable, "-m", module, *map(str, arguments)]
    )
