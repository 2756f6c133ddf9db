"""What rank 0 tells the other ranks: a name, some JSON values and some arrays. Pure; `order_channel.py` carries it.

An order travels as a JSON header and the arrays' bytes end to end; nothing that arrives is ever executed.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.learner.batches import Batch

__all__ = ["Order", "batch_of", "batch_order", "decode_order", "encode_order", "payload_bytes"]

KINDS = "biuf"  # numpy's letters for bool, integers and floats: what plain bytes can hold
LENGTHS = ".lengths"  # marks the array that says how a joined one is cut


@dataclass(frozen=True)
class Order:
    """Something all ranks do together.

    Args:
        name: what to do.
        arguments: what JSON can say.
        arrays: bool, integer or float arrays.

    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def encode_order(order: Order) -> tuple[bytes, bytes]:
    """The order as a header and a payload.

    Raises:
        ValueError: an array of a kind that bytes cannot hold.

    """
    strange = [name for name, array in order.arrays.items() if array.dtype.kind not in KINDS]
    if strange:
        raise ValueError(f"orders carry arrays of bool, integers or floats, got others for {strange}")
    described = [[name, array.dtype.str, array.shape] for name, array in order.arrays.items()]
    header = {"name": order.name, "arguments": order.arguments, "arrays": described}
    return json.dumps(header).encode(), b"".join(np.ascontiguousarray(a).tobytes() for a in order.arrays.values())


def payload_bytes(header: bytes) -> int:
    """Length of the payload that belongs to a header."""
    return sum(np.dtype(dtype).itemsize * math.prod(shape) for _, dtype, shape in json.loads(header)["arrays"])


def decode_order(header: bytes, payload: bytes) -> Order:
    """The order again; its arrays are its own and may be written to."""
    fields, arrays, start = json.loads(header), {}, 0
    for name, dtype, shape in fields["arrays"]:
        count = math.prod(shape)
        arrays[name] = np.frombuffer(payload, np.dtype(dtype), count, start).reshape(shape).copy()
        start += arrays[name].nbytes
    return Order(fields["name"], fields["arguments"], arrays)


def batch_order(batch: Batch) -> Order:
    """The order that makes `batch` the one that later orders mean; knows no field by name."""
    arguments: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for entry in dataclasses.fields(batch):
        value = getattr(batch, entry.name)
        if isinstance(value, np.ndarray):
            arrays[entry.name] = value
        elif isinstance(value, tuple):
            arrays[entry.name] = np.concatenate(value)
            arrays[entry.name + LENGTHS] = np.array([len(part) for part in value], dtype=np.int64)
        else:
            arguments[entry.name] = value
    return Order("batch", arguments, arrays)


def batch_of(order: Order) -> Batch:
    """The batch that `batch_order` was made from."""
    fields: dict[str, Any] = dict(order.arguments)
    for name, array in order.arrays.items():
        if name.endswith(LENGTHS):
            continue
        lengths = order.arrays.get(name + LENGTHS)
        fields[name] = array if lengths is None else tuple(np.split(array, np.cumsum(lengths))[:-1])
    return Batch(**fields)
