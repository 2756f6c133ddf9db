"""What a publication will carry, and in which buckets: the same plan on both sides, made from the sender's figures.

Free of torch: control and the agents hand manifests on without it.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pacs.errors import BadInput

__all__ = ["Adapters", "Bucket", "TensorMeta", "adapter_pair", "joined_digest", "plan_buckets"]

ALIGNMENT_BYTES = 16  # a bucket's slice must be viewable as any dtype, and vector loads like it
_DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}


@dataclass(frozen=True)
class Adapters:
    """What makes tensors of a publication into weights: W + (alpha/rank)·B·A, over a base that both sides have.

    Args:
        rank: rows of A and columns of B.
        alpha: numerator of the scale.
        base: fingerprint of the base's weights.

    """

    rank: int
    alpha: float
    base: str

    @property
    def scale(self) -> float:
        """Factor on B·A."""
        return self.alpha / self.rank


def adapter_pair(weight: str) -> tuple[str, str]:
    """Names of the A and B that adapt the base's tensor of this name, as peft's files have them."""
    module = weight.removesuffix(".weight")
    return f"{module}.lora_A.weight", f"{module}.lora_B.weight"


@dataclass(frozen=True)
class TensorMeta:
    """One tensor of a publication, as a checkpoint would name it.

    Args:
        name: its name in the model's checkpoint.
        dtype: torch's name of it, without the prefix: `float32`, `bfloat16`, …
        shape: the whole tensor's, never a shard's.

    Raises:
        BadInput: an unknown dtype, or a tensor without elements.

    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPE_BYTES:
            raise BadInput(f"tensors travel as one of {sorted(_DTYPE_BYTES)}, got {self.name!r} as {self.dtype!r}")
        if min(self.shape, default=1) < 1:
            raise BadInput(
                f"a published tensor must have elements, got {self.name!r} of shape {self.shape}; "
                "gather sharded parameters before publishing"
            )

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * _DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class Bucket:
    """Tensors that travel in one broadcast.

    Args:
        tensors: in manifest order.
        offsets: where each begins, in bytes.
        nbytes: the bucket's size.

    """

    tensors: tuple[TensorMeta, ...]
    offsets: tuple[int, ...]
    nbytes: int


def joined_digest(digest_of: Mapping[str, str]) -> str:
    """64 hex digits for all tensors of a model, from each one's digest by name, in whatever order they came."""
    lines = sorted(f"{name} {digest}\n" for name, digest in digest_of.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def plan_buckets(tensors: Sequence[TensorMeta], bucket_bytes: int) -> list[Bucket]:
    """Fill buckets of at most `bucket_bytes` in manifest order; a larger tensor gets a bucket of its own.

    Raises:
        BadInput: no tensor, a name twice, or a bucket without room.

    """
    names = [tensor.name for tensor in tensors]
    if bucket_bytes < 1 or not names or len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise BadInput(
            "a publication needs tensors of distinct names and bucket_bytes of at least 1, "
            f"got {len(names)} tensors, {twice} more than once, bucket_bytes={bucket_bytes}"
        )
    buckets: list[Bucket] = []
    members: list[TensorMeta] = []
    offsets: list[int] = []
    end = 0
    for tensor in tensors:
        start = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if members and start + tensor.nbytes > bucket_bytes:
            buckets.append(Bucket(tuple(members), tuple(offsets), end))
            members, offsets, start = [], [], 0
        members.append(tensor)
        offsets.append(start)
        end = start + tensor.nbytes
    buckets.append(Bucket(tuple(members), tuple(offsets), end))
    return buckets
