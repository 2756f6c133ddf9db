"""The ranks that train together: how they meet, and our own few exchanges among them. DeepSpeed has its own.

torch.distributed is always started here, never by DeepSpeed, which would bind the communicator to a device: later
weight transfers over other communicators then hang. Our exchanges go through gloo, on the CPU, whatever carries the
gradients.
"""

import datetime
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch  # noqa: TID253  # this file wraps its distributed part
from numpy.typing import NDArray
from torch import distributed  # noqa: TID253
from torch._C._distributed_c10d import (  # noqa: TID253 - torch.distributed shows them, but not to type checkers
    HashStore,
    TCPStore,
)

from pacs.errors import BadInput, DeadlineExceeded, ServiceFailed

__all__ = ["EXCHANGE_SECONDS", "JOIN_SECONDS", "World", "host_store", "launcher_store"]

JOIN_SECONDS = 300.0  # importing torch and DeepSpeed on a busy machine takes tens of seconds
EXCHANGE_SECONDS = 1800.0  # ranks wait for each other's share of a batch, and for the slowest disk
POLL_SECONDS = 0.02


class World:
    """The ranks of one learner.

    Args:
        rank: this process.
        ranks: how many there are.
        store: at which they met; lives in rank 0.
        group: gloo, of all of them; None if there is one.

    """

    def __init__(self, rank: int, ranks: int, store: Any, group: Any) -> None:
        self.rank = rank
        self.ranks = ranks
        self.store = store
        self._group = group

    @classmethod
    def alone(cls) -> Self:
        """A world of one rank; DeepSpeed wants torch.distributed there too."""
        store = HashStore()
        if not distributed.is_initialized():
            _start(store, 0, 1, local_rank=0)
        return cls(0, 1, store, None)

    @classmethod
    def join(
        cls, store: Any, rank: int, ranks: int, local_rank: int, possible: Callable[[], None] = lambda: None
    ) -> Self:
        """Wait until all ranks are here and connect them.

        Args:
            store: the same for all ranks.
            rank: of this process.
            ranks: that will come.
            local_rank: number of this process on its machine: its GPU.
            possible: called while waiting; raises if they cannot all come any more.

        Raises:
            BadInput: more ranks on this machine than GPUs.
            DeadlineExceeded: ranks that did not come, by number.

        """
        if torch.cuda.is_available() and local_rank >= torch.cuda.device_count():
            raise BadInput(
                "each learner rank needs a GPU of its own, got "
                f"{torch.cuda.device_count()} GPUs for rank {local_rank} of this machine; lower learner.ranks"
            )
        store.set(f"here/{rank}", "1")
        missing, deadline = list(range(ranks)), time.monotonic() + JOIN_SECONDS
        while missing := [other for other in missing if not store.check([f"here/{other}"])]:
            possible()
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"learner ranks {missing} of {ranks} to come", JOIN_SECONDS)
            time.sleep(POLL_SECONDS)
        _start(store, rank, ranks, local_rank)
        group = distributed.new_group(backend="gloo", timeout=datetime.timedelta(seconds=EXCHANGE_SECONDS))
        return cls(rank, ranks, store, group)

    def leave(self) -> None:
        """Let go of the others."""
        distributed.destroy_process_group()

    def barrier(self) -> None:
        """Wait for all ranks to come here."""
        if self.ranks > 1:
            distributed.barrier(group=self._group)

    def total(self, value: float) -> float:
        """Sum of every rank's value, the same bits on all of them."""
        if self.ranks == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64)
        distributed.all_reduce(tensor, group=self._group)
        return float(tensor)

    def of_first(self, value: float) -> float:
        """Rank 0's value."""
        if self.ranks == 1:
            return value
        tensor = torch.tensor(value, dtype=torch.float64)
        distributed.broadcast(tensor, src=0, group=self._group)
        return float(tensor)

    def key_comes(self, key: str, seconds: float) -> bool:
        """Wait for a key of the store.

        Raises:
            RuntimeError: torch's, if the store is gone.

        """
        try:
            self.store.wait([key], datetime.timedelta(seconds=seconds))
        except distributed.DistStoreError:  # it has not come in time
            return False
        return True

    def send_bytes(self, payload: bytes) -> None:
        """Broadcast from rank 0 to the others, who call `receive_bytes`."""
        distributed.broadcast(torch.frombuffer(bytearray(payload), dtype=torch.uint8), src=0, group=self._group)

    def receive_bytes(self, count: int) -> bytes:
        """What rank 0 sends."""
        tensor = torch.empty(count, dtype=torch.uint8)
        distributed.broadcast(tensor, src=0, group=self._group)
        return tensor.numpy().tobytes()

    def collect(self, part: NDArray[np.float32], lengths: Sequence[int]) -> list[NDArray[np.float32]]:
        """Every rank's part on rank 0, the own one elsewhere; `lengths` says how long each rank's is."""
        if self.rank > 0:
            if len(part):
                distributed.send(torch.from_numpy(part), dst=0, group=self._group)
            return [part]
        parts = [part]
        for rank in range(1, self.ranks):
            received = torch.empty(lengths[rank], dtype=torch.float32)
            if lengths[rank]:
                distributed.recv(received, src=rank, group=self._group)
            parts.append(received.numpy())
        return parts


def host_store(host: str) -> tuple[Any, int]:
    """A store in this process, on a free port that is taken in the same moment; returns its port too."""
    listener = socket.create_server((host, 0))
    port = listener.getsockname()[1]
    timeout = datetime.timedelta(seconds=JOIN_SECONDS)
    store = TCPStore(
        host, port, is_master=True, timeout=timeout, wait_for_workers=False, master_listen_fd=listener.detach()
    )
    return store, port


def launcher_store(*, hosts: bool) -> Any:
    """The store at MASTER_ADDR and MASTER_PORT, in this process if it `hosts` it and the launcher does not.

    Raises:
        ServiceFailed: it cannot be reached.

    """
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    of_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    timeout = datetime.timedelta(seconds=JOIN_SECONDS)
    try:
        return TCPStore(host, port, is_master=hosts and not of_launcher, timeout=timeout, wait_for_workers=False)
    except RuntimeError as error:
        raise ServiceFailed(f"the learner's ranks cannot meet at {host}:{port}: {error}") from error


def _start(store: Any, rank: int, ranks: int, local_rank: int) -> None:
    for name, value in {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": local_rank}.items():
        os.environ[name] = str(value)  # where DeepSpeed looks
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        backend = "nccl"
    timeout = datetime.timedelta(seconds=EXCHANGE_SECONDS)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=timeout)
