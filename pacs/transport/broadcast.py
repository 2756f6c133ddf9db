"""A broadcast group outside torch.distributed's default group, between the learner and the rollout replicas.

Rank 0 opens a `Rendezvous` on a port the system picks and hands its address out; the others connect to it; then every
rank calls `BroadcastGroup.form`. torch's own collectives wait for half an hour or for ever: here every step has a
deadline, and its error says which ranks or which bytes it waited for. After an error a group is of no more use: close
it and form a new one.
"""

import contextlib
import datetime
import socket
import time
from typing import Any, Self

import torch  # noqa: TID253 - the edge file of torch's process groups
from torch._C._distributed_c10d import (  # noqa: TID253 - torch.distributed shows them, but not to type checkers
    BroadcastOptions,
    PrefixStore,
    ProcessGroupGloo,
    TCPStore,
)

from pacs.errors import BadInput, DeadlineExceeded, PacsError

__all__ = ["BroadcastGroup", "Deadline", "Rendezvous"]

_POLL_SECONDS = 0.01  # between looks at a key or an NCCL operation: far below any transfer, far above its cost
_TIMER_SLACK_SECONDS = 0.1  # torch's timers were seen to fire a little before ours
_NCCL_WATCHDOG_FACTOR = 10  # NCCL's own watchdog kills the process; our deadline must always come first


class Deadline:
    """A point in time up to which several waits may last together."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._expires = time.monotonic() + seconds

    def remaining(self, waited_for: str) -> float:
        """Seconds left; raises `DeadlineExceeded` naming `waited_for` where none is."""
        left = self._expires - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded(waited_for, self.seconds)
        return left

    @property
    def passed(self) -> bool:
        """Whether hardly any time is left."""
        return time.monotonic() >= self._expires - _TIMER_SLACK_SECONDS


class Rendezvous:
    """The key-value store at which the ranks of one group find each other; lives as long as its opener."""

    def __init__(self, store: TCPStore, address: str) -> None:
        self.store = store
        self.address = address

    @classmethod
    def open(cls, host: str, timeout_seconds: float) -> Self:
        """Listen on `host` only, on a free port that is taken in the same moment (no race between choice and use).

        Raises:
            BadInput: this machine cannot listen on `host`.

        """
        try:
            family, _, _, _, where = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server(where[:2], family=family)
        except OSError as fault:
            raise BadInput(
                "the weight communicator needs an address of this machine that the rollout replicas can reach, "
                f"got host={host!r} ({fault}); set it to this machine's own address"
            ) from fault
        port = listener.getsockname()[1]
        store = TCPStore(
            host,
            port,
            is_master=True,
            timeout=datetime.timedelta(seconds=timeout_seconds),
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        return cls(store, f"{host}:{port}")

    @classmethod
    def connect(cls, address: str, timeout_seconds: float) -> Self:
        """Reach a store that another rank opened.

        Raises:
            BadInput: `address` is no host:port.
            PacsError: nothing listens there, or it cannot be reached.
            DeadlineExceeded: it does not answer.

        """
        host, port = _split(address)
        deadline = Deadline(timeout_seconds)
        answer = f"the weight communicator's store at {address} to answer"
        try:
            # torch would try again and again, and for up to twice its timeout; but an address is given out once open.
            socket.create_connection((host, port), timeout_seconds).close()
            left = datetime.timedelta(seconds=deadline.remaining(answer))
            store = TCPStore(host, port, is_master=False, timeout=left, wait_for_workers=False)
        except TimeoutError as fault:
            raise DeadlineExceeded(answer, timeout_seconds) from fault
        except OSError as fault:
            raise PacsError(f"cannot reach the weight communicator at {address}: {fault}") from fault
        except RuntimeError as fault:  # torch's DistNetworkError and DistStoreError
            raise DeadlineExceeded(f"{answer} ({_first_line(fault)})", timeout_seconds) from fault
        return cls(store, address)


class BroadcastGroup:
    """The ranks that met at one rendezvous: rank 0 has the weights, the others receive them.

    `gloo` carries CPU tensors; `nccl` carries CUDA tensors of the current device and needs torch's CUDA build.
    """

    def __init__(self, group: Any, rendezvous: Rendezvous, backend: str, rank: int, world_size: int) -> None:
        self._group = group
        self._rendezvous = rendezvous
        self.backend = backend
        self.rank = rank
        self.world_size = world_size
        self.device = _device(backend)

    @classmethod
    def form(cls, rendezvous: Rendezvous, *, backend: str, rank: int, world_size: int, timeout_seconds: float) -> Self:
        """Wait until all `world_size` ranks are here and connect them.

        Raises:
            BadInput: an unknown backend, or a rank outside the group.
            DeadlineExceeded: ranks that did not come, by number.
            PacsError: they came, but could not be connected.

        """
        if backend not in _BACKENDS or not 0 <= rank < world_size:
            raise BadInput(
                f"a weight communicator needs a backend of {sorted(_BACKENDS)} and 0 <= rank < world_size, "
                f"got backend={backend!r}, rank={rank}, world_size={world_size}"
            )
        deadline = Deadline(timeout_seconds)
        _await_ranks(rendezvous, rank, world_size, deadline)
        connecting = f"the {world_size} ranks at {rendezvous.address} to connect by {backend}"
        store = PrefixStore(backend, rendezvous.store)
        store.set_timeout(datetime.timedelta(seconds=deadline.remaining(connecting)))
        try:
            group = _BACKENDS[backend](store, rank, world_size, rendezvous.address, deadline.remaining(connecting))
        except RuntimeError as fault:
            raise _explain(fault, connecting, deadline) from fault
        return cls(group, rendezvous, backend, rank, world_size)

    def broadcast(self, tensor: torch.Tensor, deadline: Deadline, *, what: str = "a tensor") -> None:
        """Send rank 0's `tensor` into everybody's; contiguous, on `self.device`, of one size on all ranks.

        Raises:
            DeadlineExceeded: a peer did not take part in time.
            PacsError: a peer left, or the group is closed or broke before.

        """
        waited_for = f"{what} to pass from rank 0 to the {self.world_size - 1} ranks met at {self._rendezvous.address}"
        if self._group is None:
            raise PacsError(f"the weight communicator is closed, cannot wait for {waited_for}; form a new one")
        options = BroadcastOptions()
        options.rootRank = 0
        options.rootTensor = 0
        options.timeout = datetime.timedelta(seconds=deadline.remaining(waited_for))
        try:
            work = self._group.broadcast([tensor], options)
            if self.backend == "nccl":
                self._await_on_device(work, waited_for, deadline)
            else:
                work.wait(options.timeout)
        except RuntimeError as fault:
            raise _explain(fault, waited_for, deadline) from fault

    def close(self) -> None:
        """Leave the group; safe to repeat. Ranks still in a broadcast with this one get an error."""
        group, self._group = self._group, None
        if group is not None and self.backend == "nccl":
            group.abort()

    def _await_on_device(self, work: Any, waited_for: str, deadline: Deadline) -> None:
        """Poll: NCCL's own wait only orders streams, and its timeout ends the process instead of raising."""
        while not work.is_completed():
            if deadline.passed:
                self.close()
                raise DeadlineExceeded(waited_for, deadline.seconds)
            time.sleep(_POLL_SECONDS)
        work.wait()


def _explain(fault: RuntimeError, waited_for: str, deadline: Deadline) -> PacsError:
    if deadline.passed:
        return DeadlineExceeded(f"{waited_for} ({_first_line(fault)})", deadline.seconds)
    return PacsError(f"the weight communicator broke while waiting for {waited_for}: {_first_line(fault)}")


def _first_line(fault: RuntimeError) -> str:
    return str(fault).partition("\n")[0]


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(f"a communicator's address is host:port, got {address!r}")
    return host, int(port)


def _await_ranks(rendezvous: Rendezvous, rank: int, world_size: int, deadline: Deadline) -> None:
    """Say that we are here and wait for the others, so that a missing rank is named and not just missed."""
    store, missing = rendezvous.store, [other for other in range(world_size) if other != rank]
    try:
        store.set(f"rank/{rank}", "here")
        while missing := [other for other in missing if not store.check([f"rank/{other}"])]:
            deadline.remaining(f"ranks {missing} of {world_size} to join the weight communicator {rendezvous.address}")
            time.sleep(_POLL_SECONDS)
    except RuntimeError as fault:
        raise PacsError(
            f"rank {rank} lost the weight communicator's store at {rendezvous.address} while waiting for "
            f"ranks {missing}: {_first_line(fault)}"
        ) from fault


def _own_address(towards: str) -> str:
    """The address of the interface by which this machine reaches `towards`; a host name may resolve to another."""
    host, port = _split(towards)
    family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with contextlib.closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
        probe.connect(where)  # sends nothing: a datagram socket only picks its route
        return str(probe.getsockname()[0])


def _form_gloo(store: PrefixStore, rank: int, world_size: int, towards: str, timeout_seconds: float) -> Any:
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # missing in torch's stubs only
    options._timeout = datetime.timedelta(seconds=timeout_seconds)
    options._devices = [ProcessGroupGloo.create_device(hostname=_own_address(towards))]
    return ProcessGroupGloo(store, rank, world_size, options)


def _form_nccl(store: PrefixStore, rank: int, world_size: int, towards: str, timeout_seconds: float) -> Any:
    del towards  # NCCL picks its interfaces itself (NCCL_SOCKET_IFNAME)
    try:
        from torch.distributed import ProcessGroupNCCL
    except ImportError as fault:
        raise BadInput("the nccl weight backend needs torch's CUDA build; set the weight backend to gloo") from fault
    options = ProcessGroupNCCL.Options()
    options._timeout = datetime.timedelta(seconds=timeout_seconds * _NCCL_WATCHDOG_FACTOR)
    return ProcessGroupNCCL(store, rank, world_size, options)


_BACKENDS = {"gloo": _form_gloo, "nccl": _form_nccl}


def _device(backend: str) -> torch.device:
    return torch.device("cpu") if backend == "gloo" else torch.device("cuda", torch.cuda.current_device())
