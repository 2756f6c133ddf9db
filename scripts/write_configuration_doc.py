"""Write docs/configuration.md from the settings themselves: `python scripts/write_configuration_doc.py [--check]`.

With --check nothing is written, and the exit code is 1 if the file is stale.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pacs.runtime.config import RunConfig
from pacs.runtime.service_settings import ServiceSettings

TARGET = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}

HEAD = """# Configuration

<!-- Written by scripts/write_configuration_doc.py from pacs/runtime/config.py: change the descriptions there. -->

A run is one YAML file with the sections below; `examples/*.yaml` are complete ones. `pacs run FILE` reads it, and
`--set section.key=value` (repeatable; the value is YAML) goes over it. Unknown keys and contradictory values are
refused in one sentence with exit code 2. Relative paths are relative to the folder in which `pacs` is started.
The whole configuration of a run, defaults included, lies in its folder as `config.yaml`.

Secrets and addresses are not in the file but in the [environment](#environment-of-a-service), so that one file serves
a laptop and a cluster.
"""

RULES = """
## Rules between settings

* `data.max_prompt_tokens` + `rollout.max_response_tokens` fit into `model.max_tokens`.
* `rollout.group_size` is at least 2, unless `algorithm.score` is `naive` or `algorithm.name` is `reinforce` or `ppo`,
  and `algorithm.uniform_groups` is `keep`; `rollout.max_sequences` holds a whole group.
* Settings marked *PACS only*, *Baselines only* (PPO among them) and *PPO only* stay at their defaults where
  `algorithm.name` is another.
* `algorithm.score: grpo` needs `algorithm.log_ratio: mean_logprob`: with `algorithm.reference: batch` every batch
  begins with all log_ratios equal, where its gradient is a million times too large.
* `algorithm.importance_cap` is 0 or at least 1.
* `model.lora.alpha` and `model.lora.target_modules` stay at their defaults where `model.lora.rank` is 0.
* `learner.minibatch_groups`, where it is not 0, divides `run.groups_per_step`.
* Every port differs from every other.
* `data.source: file` goes with `data.path`, `data.source: reasoning_gym` with `data.family`; see [data.md](data.md).
* At most `(run.max_staleness + 1) × run.groups_per_step` groups are between admission and live weights.
"""

ENVIRONMENT = """
## Environment of a service

`pacs run` sets these for the services it starts. Who starts them one by one (`pacs control FILE`, `pacs rollout FILE`,
`pacs verifier FILE`, `pacs learner FILE`, or the containers of [compose](operations/runbook.md#in-containers)) sets
them. Either `PACS_TOKEN` or `PACS_TOKEN_FILE` is required. Without `PACS_CONTROL_ADDRESS` and `PACS_VERIFIER_ADDRESS`
the others are looked for at 127.0.0.1 and the ports of the file.

| variable | default | what |
|---|---|---|
"""


def document() -> str:
    """The whole page."""
    sections = "".join(_section(name, field) for name, field in RunConfig.model_fields.items())
    return HEAD + sections + RULES + ENVIRONMENT + "".join(_variables())


def _section(name: str, field: FieldInfo) -> str:
    model = field.annotation
    assert isinstance(model, type)
    assert issubclass(model, BaseModel)
    inner = {f"{name}.{key}": setting for key, setting in model.model_fields.items() if _is_section(setting)}
    rows = "".join(
        _row(f"{name}.{key}", setting) for key, setting in model.model_fields.items() if not _is_section(setting)
    )
    table = f"\n## {name}\n\n{model.__doc__}\n\n| key | type | default | what |\n|---|---|---|---|\n{rows}"
    return table + "".join(_section(key, setting) for key, setting in inner.items())


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _row(key: str, field: FieldInfo) -> str:
    default = "required" if field.is_required() else f"`{_shown(field.get_default(call_default_factory=True))}`"
    return f"| `{key}` | {_type(field)} | {default} | {_cell(field.description or '')} |\n"


def _variables() -> Iterator[str]:
    for name, field in ServiceSettings.model_fields.items():
        if name == "config":  # the file itself
            continue
        default = "required" if field.is_required() else f"`{field.default}`" if field.default else "none"
        yield f"| `PACS_{name.upper()}` | {default} | {_cell(field.description or '')} |\n"


def _type(field: FieldInfo) -> str:
    bounds = [f"{sign} {getattr(rule, name):.15g}" for rule in field.metadata for name, sign in _bounds_of(rule)]
    return _cell(", ".join([_type_name(field.annotation), *bounds]))


def _bounds_of(rule: object) -> list[tuple[str, str]]:
    return [(name, sign) for name, sign in BOUNDS.items() if getattr(rule, name, None) is not None]


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) is dict:
        return "mapping"
    if get_origin(annotation) is list:
        return f"list of {_type_name(get_args(annotation)[0])}"
    if get_origin(annotation) is tuple:
        return f"{len(get_args(annotation))} numbers"
    names = {bool: "boolean", int: "integer", float: "number", str: "text", Path: "path", type(None): "null"}
    return " or ".join(names[part] for part in get_args(annotation) or (annotation,))


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Write the page, or compare it with what would be written."""
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(document(), encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") == document():
        return 0
    sys.stderr.write(f"{TARGET.name} is stale; run: python scripts/write_configuration_doc.py\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
