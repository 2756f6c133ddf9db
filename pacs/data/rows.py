"""Rows of a JSON-lines or parquet file, with errors that name the line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pacs.errors import BadInput

__all__ = ["read_rows"]


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (1-based row number, row); the kind of file is told by its ending: .parquet, else JSON lines.

    Raises:
        BadInput: no such file, a line that is not a JSON object, or a damaged parquet file.

    """
    if not path.is_file():
        raise BadInput(f"the data file must exist, got {path}; give the path of a JSON-lines or parquet file")
    return _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise BadInput(f"{path} line {number} must be UTF-8: {error.reason}; convert the file") from error
            except json.JSONDecodeError as error:
                raise BadInput(
                    f"{path} line {number} must be JSON: {error.msg} at column {error.colno}; mend or remove the line"
                ) from error
            if not isinstance(row, dict):
                raise BadInput(f"{path} line {number} must be a JSON object, got {type(row).__name__}; mend the line")
            yield number, row


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        number = 0
        for batch in ParquetFile(path).iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except ArrowInvalid as error:
        raise BadInput(f"{path} must be a parquet file: {error}") from error
