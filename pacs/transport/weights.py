"""Whole models through a broadcast group: packed into buckets, with a digest of every tensor on both sides.

A model is many small tensors, and a broadcast costs the same for one byte as for a thousand: so tensors are packed
into flat buckets whose sizes the *sender* fixes (sizes derived on each side from its own free memory differ). The
digests guard against mistakes of transport and loading, not against somebody who forges weights.
"""

from collections.abc import Callable, Iterable, Sequence

import torch  # noqa: TID253 - the edge file of tensors in transit

from pacs.errors import BadInput
from pacs.transport.broadcast import BroadcastGroup, Deadline
from pacs.transport.manifest import Bucket, TensorMeta, plan_buckets

__all__ = ["TensorMeta", "describe", "digest", "plan_buckets", "receive", "send"]

_CHUNK_WORDS = 1 << 20  # words digested at a time: bounds the int64 copies to 8 MiB each
_WORD_BYTES = 4


def describe(name: str, tensor: torch.Tensor) -> TensorMeta:
    """The manifest's entry for `tensor`; raises `BadInput` where it is empty, as shards of ZeRO-3 are."""
    return TensorMeta(name, _dtype_name(tensor), tuple(tensor.shape))


def digest(tensor: torch.Tensor) -> str:
    """32 hex digits over the tensor's bytes in order, computed on its own device.

    Two sums modulo 2^64 over the bytes as 32-bit words w_i: Σ w_i and Σ (i+1)·w_i. One changed word, and two words
    exchanged, always change the pair (a tensor has fewer than 2^31 words).
    """
    return _hexes([_sums(tensor)])[0]


def send(
    group: BroadcastGroup,
    tensors: Iterable[tuple[str, torch.Tensor]],
    manifest: Sequence[TensorMeta],
    bucket_bytes: int,
    timeout_seconds: float,
) -> list[str]:
    """Broadcast `tensors`, which come in the manifest's order, from rank 0; returns their digests in that order.

    `tensors` is read lazily, a bucket at a time. Keep the group open until the receivers have answered: the last bytes
    may still be under way.

    Raises:
        BadInput: `tensors` is not what the manifest says.
        DeadlineExceeded: the receivers did not take everything in `timeout_seconds`.
        PacsError: a receiver left.

    """
    deadline = Deadline(timeout_seconds)
    source = iter(tensors)
    sums: list[torch.Tensor] = []
    for bucket in plan_buckets(manifest, bucket_bytes):
        flat = torch.zeros(bucket.nbytes, dtype=torch.uint8, device=group.device)
        for meta, offset in zip(bucket.tensors, bucket.offsets, strict=True):
            tensor = _next_of(source, meta)
            sums.append(_sums(tensor))
            flat[offset : offset + meta.nbytes].copy_(_as_bytes(tensor))
        group.broadcast(flat, deadline, what=_name(bucket))
    if (more := next(source, None)) is not None:
        raise BadInput(f"the tensors sent must be those of the manifest, got {more[0]!r} beyond its end")
    return _hexes(sums)


def receive(
    group: BroadcastGroup,
    manifest: Sequence[TensorMeta],
    bucket_bytes: int,
    timeout_seconds: float,
    load: Callable[[list[tuple[str, torch.Tensor]]], object],
) -> list[str]:
    """Receive what rank 0 sends and give it to `load`, a bucket at a time; returns the digests of what arrived.

    Every bucket has memory of its own, so `load` may keep its tensors.

    Raises:
        DeadlineExceeded: not everything came in `timeout_seconds`.
        PacsError: the sender left.

    """
    deadline = Deadline(timeout_seconds)
    sums: list[torch.Tensor] = []
    for bucket in plan_buckets(manifest, bucket_bytes):
        flat = torch.empty(bucket.nbytes, dtype=torch.uint8, device=group.device)
        group.broadcast(flat, deadline, what=_name(bucket))
        arrived = [(meta.name, _cut(flat, meta, at)) for meta, at in zip(bucket.tensors, bucket.offsets, strict=True)]
        sums += [_sums(tensor) for _, tensor in arrived]
        load(arrived)
    return _hexes(sums)


def _next_of(source: Iterable[tuple[str, torch.Tensor]], meta: TensorMeta) -> torch.Tensor:
    name, tensor = next(iter(source), ("nothing more", None))
    if tensor is None or name != meta.name or _dtype_name(tensor) != meta.dtype or tuple(tensor.shape) != meta.shape:
        found = name if tensor is None else f"{name} {_dtype_name(tensor)} {tuple(tensor.shape)}"
        raise BadInput(
            "the tensors sent must follow the manifest, "
            f"got {found} where it says {meta.name} {meta.dtype} {meta.shape}; build both from the same parameters"
        )
    return tensor.detach()


def _name(bucket: Bucket) -> str:
    first, last = bucket.tensors[0].name, bucket.tensors[-1].name
    return f"{bucket.nbytes} bytes of weights ({first} to {last})"


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _cut(flat: torch.Tensor, meta: TensorMeta, offset: int) -> torch.Tensor:
    return flat[offset : offset + meta.nbytes].view(getattr(torch, meta.dtype)).view(meta.shape)


def _sums(tensor: torch.Tensor) -> torch.Tensor:
    """int64 [2], left on the tensor's device: reading each at once would stall a GPU a thousand times."""
    data = _as_bytes(tensor)
    if data.numel() % _WORD_BYTES:
        data = torch.nn.functional.pad(data, (0, -data.numel() % _WORD_BYTES))
    words = (data if data.storage_offset() % _WORD_BYTES == 0 else data.clone()).view(torch.int32)
    total = torch.zeros(2, dtype=torch.int64, device=tensor.device)
    for start in range(0, words.numel(), _CHUNK_WORDS):
        chunk = words[start : start + _CHUNK_WORDS].to(torch.int64)
        place = torch.arange(start + 1, start + 1 + chunk.numel(), dtype=torch.int64, device=tensor.device)
        total += torch.stack((chunk.sum(), (chunk * place).sum()))
    return total


def _hexes(sums: list[torch.Tensor]) -> list[str]:
    pairs = torch.stack([pair.to(sums[0].device) for pair in sums]).tolist()
    return ["".join(f"{value % (1 << 64):016x}" for value in pair) for pair in pairs]
