"""The last thing `pacs run` prints."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["show_ending"]

PARTS = {
    "report.html": "the report",
    "report.png": "its curves",
    "summary.json": "the figures above",
    "metrics.jsonl": "every step, evaluation and publication",
    "ledger.json": "where every group went",
    "export": "the trained model, Hugging Face format",
}


def show_ending(summary: Mapping[str, Any], path: Path) -> None:
    """Print the figures of a run and where its files lie."""
    table = Table(title=f"{summary['run']}: {summary['state']}", show_header=False)
    for name, value in summary.items():
        if name not in ("run", "state"):
            table.add_row(name.replace("_", " "), _shown(name, value))
    console = Console()
    console.print(table)
    for name, what in PARTS.items():
        if (path / name).exists():
            console.print(f"  {path / name}  [dim]{what}[/dim]", soft_wrap=True, highlight=False)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, float):
        return f"{value:.4g}"
    if name == "ledger" and value:
        dropped = sum(value["dropped"].values())
        return f"{value['admitted']} = {value['trained']} trained + {dropped} dropped + {value['in_flight']} in flight"
    if name == "problems":
        refused = sum(value["refused"].values())
        return f"{value['training']} to train on, {value['heldout']} held out, {refused} refused"
    return str(value)
