"""Reads the run's YAML file, lays `--set key=value` over it, and says in one sentence what is wrong with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pacs.errors import BadInput
from pacs.runtime.config import RunConfig

__all__ = ["load_config", "write_config"]


def load_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read and check a configuration.

    Relative paths inside the file are relative to the folder `pacs` is started in, as on a command line.

    Args:
        path: the YAML file.
        overrides: `section.key=value` texts; values are YAML.

    Raises:
        BadInput: missing file, broken YAML, unknown or contradictory settings.

    """
    if not path.is_file():
        raise BadInput(
            f"the configuration must be a file, got {path}, which does not exist; give the path of a YAML file"
        )
    try:
        tree = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise BadInput(f"{path} must be YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict):
        raise BadInput(f"{path} must hold sections such as run: and model:, got {type(tree).__name__}")
    for override in overrides:
        _lay_over(tree, override)
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        raise BadInput(f"{path}: {_first_complaint(error)}") from None


def write_config(config: RunConfig, path: Path) -> None:
    """Write the configuration in full, so that a service started later reads what this one read."""
    path.write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))


def _lay_over(tree: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise BadInput(f"--set needs section.key=value, got {override!r}")
    *sections, last = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise BadInput(f"--set {override}: {section} is a value, not a section; see docs/configuration.md")
    try:
        tree[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInput(f"--set {override}: the value must be YAML: {' '.join(str(error).split())}") from error


def _first_complaint(error: ValidationError) -> str:
    """One sentence for the first problem, with the key as the user writes it."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        return f"unknown setting {key}={first['input']!r}; see docs/configuration.md for what there is{more}"
    if first["type"] == "missing":
        return f"setting {key} is required; add it{more}"
    message = first["msg"].removeprefix("Value error, ")
    return (
        f"{message}{more}"
        if not key or first["type"] == "value_error"
        else f"{key}: {message}, got {first['input']!r}{more}"
    )
