"""Where two readers of the same answer may honestly differ: each such question is a setting of its own."""

from dataclasses import dataclass

__all__ = ["MathPolicy"]


@dataclass(frozen=True)
class MathPolicy:
    """What counts as the same mathematical answer; the fields are those of `verifier.math` in the run's file."""

    percent: str = "either"
    degrees: str = "either"
    units: str = "convert"
    log: str = "natural"
    inequality_for_interval: bool = True
    list_for_tuple: bool = False
    vector_for_tuple: bool = True
    words_for_empty_set: bool = True
    rename_constants: bool = False
    rounded_gold_decimals: int = 3
    approximation_digits: int = 0
