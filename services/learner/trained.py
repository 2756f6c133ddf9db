"""Which prompts a checkpoint's weights have seen: a low-water mark and the few above it. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["TrainedSequences"]


@dataclass
class TrainedSequences:
    """A set of sequence numbers that stays small because training follows admission closely.

    Args:
        below: every number less than this was trained.
        above: trained numbers at or over the mark.

    """

    below: int = 0
    above: set[int] = field(default_factory=set)

    def __contains__(self, sequence: int) -> bool:
        return sequence < self.below or sequence in self.above

    def add(self, sequences: Iterable[int]) -> None:
        """Count numbers as trained and raise the mark over what is complete."""
        self.above.update(s for s in sequences if s >= self.below)
        while self.below in self.above:
            self.above.remove(self.below)
            self.below += 1

    def to_json(self) -> dict[str, object]:
        """As the checkpoint keeps it."""
        return {"below": self.below, "above": sorted(self.above)}

    @classmethod
    def from_json(cls, value: dict[str, object]) -> "TrainedSequences":
        """Read it back; raises KeyError or TypeError where it is something else."""
        below, above = value["below"], value["above"]
        if not isinstance(below, int) or not isinstance(above, list):
            raise TypeError(f"trained sequences need an int `below` and a list `above`, got {value!r}")
        return cls(below, set(above))
