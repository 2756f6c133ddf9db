"""Broadcast groups between threads of this process and, where a peer must fail, a second process."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from pacs.errors import BadInput, DeadlineExceeded, PacsError

pytest.importorskip("torch", reason="torch is not installed")
import torch  # noqa: TID253 - after the skip

from pacs.transport.broadcast import BroadcastGroup, Deadline, Rendezvous

TIMEOUT_SECONDS = 10.0
SHORT_SECONDS = 0.5
LARGE_BYTES = 1 << 26  # beyond any socket buffer: a peer must really take it

PEER = """
import os, sys, torch
from pacs.transport.broadcast import BroadcastGroup, Deadline, Rendezvous
rendezvous = Rendezvous.connect(sys.argv[1], 10)
group = BroadcastGroup.form(rendezvous, backend="gloo", rank=1, world_size=2, timeout_seconds=10)
tensor = torch.zeros(8, dtype=torch.uint8)
group.broadcast(tensor, Deadline(10))
print(tensor.tolist(), flush=True)
sys.stdin.readline()
os._exit(1)
"""


def form(rendezvous, rank, world_size=2, timeout_seconds=TIMEOUT_SECONDS):
    return BroadcastGroup.form(
        rendezvous, backend="gloo", rank=rank, world_size=world_size, timeout_seconds=timeout_seconds
    )


@contextmanager
def peer_process(address):
    """Rank 1 in a process of its own: joins, takes part once, and dies when it reads a line."""
    command = [sys.executable, "-c", PEER, address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_every_rank_gets_the_roots_tensor():
    rendezvous = Rendezvous.open("127.0.0.1", TIMEOUT_SECONDS)
    sent = torch.arange(1000, dtype=torch.int32)

    def take_part(rank):
        tensor = sent.clone() if rank == 0 else torch.zeros_like(sent)
        meeting = rendezvous if rank == 0 else Rendezvous.connect(rendezvous.address, TIMEOUT_SECONDS)
        group = form(meeting, rank, world_size=3)
        group.broadcast(tensor, Deadline(TIMEOUT_SECONDS))
        group.close()
        return tensor

    with ThreadPoolExecutor(3) as threads:
        received = list(threads.map(take_part, range(3)))
    assert all(torch.equal(tensor, sent) for tensor in received)


def test_rendezvous_listens_on_its_host_only_and_on_a_port_of_its_own():
    rendezvous = [Rendezvous.open("127.0.0.1", TIMEOUT_SECONDS) for _ in range(3)]
    ports = {int(meeting.address.rpartition(":")[2]) for meeting in rendezvous}
    assert len(ports) == 3
    with pytest.raises(PacsError, match=rf"communicator at 127\.0\.0\.2:{min(ports)}: .*refused"):
        Rendezvous.connect(f"127.0.0.2:{min(ports)}", SHORT_SECONDS)


def test_host_that_is_not_ours_is_refused():
    with pytest.raises(BadInput, match="an address of this machine"):
        Rendezvous.open("192.0.2.1", TIMEOUT_SECONDS)


@pytest.mark.parametrize("address", ["127.0.0.1", ":80", "host:port"])
def test_address_without_a_port_is_refused(address):
    with pytest.raises(BadInput, match="host:port"):
        Rendezvous.connect(address, SHORT_SECONDS)


@pytest.mark.parametrize(("backend", "rank"), [("mpi", 0), ("gloo", 2), ("gloo", -1)])
def test_group_refuses_what_cannot_be(backend, rank):
    rendezvous = Rendezvous.open("127.0.0.1", TIMEOUT_SECONDS)
    with pytest.raises(BadInput, match=f"backend='{backend}', rank={rank}, world_size=2"):
        BroadcastGroup.form(rendezvous, backend=backend, rank=rank, world_size=2, timeout_seconds=SHORT_SECONDS)


def test_ranks_that_never_join_are_named_within_the_deadline():
    rendezvous = Rendezvous.open("127.0.0.1", TIMEOUT_SECONDS)
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"waited 0\.5 s for ranks \[1, 2\] of 3 to join"):
        form(rendezvous, 0, world_size=3, timeout_seconds=SHORT_SECONDS)
    assert time.monotonic() - began < TIMEOUT_SECONDS


def test_peer_that_dies_is_an_error_at_once():
    rendezvous = Rendezvous.open("127.0.0.1", TIMEOUT_SECONDS)
    with peer_process(rendezvous.address) as process:
        group = form(rendezvous, 0)
        group.broadcast(torch.arange(8, dtype=torch.uint8), Deadline(TIMEOUT_SECONDS))
        assert process.stdout.readline() == "[0, 1, 2, 3, 4, 5, 6, 7]\n"
        process.communicate("die\n")

        with pytest.raises(PacsError, match="broke while waiting for the weights to pass from rank 0") as caught:
            group.broadcast(torch.zeros(LARGE_BYTES, dtype=torch.uint8), Deadline(TIMEOUT_SECONDS), what="the weights")
        assert not isinstance(caught.value, DeadlineExceeded)
        group.close()


def test_peer_that_does_not_take_part_runs_into_the_deadline():
    rendezvous = Rendezvous.open("127.0.0.1", TIMEOUT_SECONDS)
    with peer_process(rendezvous.address):
        group = form(rendezvous, 0)
        group.broadcast(torch.arange(8, dtype=torch.uint8), Deadline(TIMEOUT_SECONDS))
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded, match=r"waited 0\.5 s for the weights to pass from rank 0"):
            group.broadcast(torch.zeros(LARGE_BYTES, dtype=torch.uint8), Deadline(SHORT_SECONDS), what="the weights")
        assert time.monotonic() - began < TIMEOUT_SECONDS
        group.close()


def test_store_that_goes_away_while_ranks_wait_is_an_error():
    rendezvous = Rendezvous.open("127.0.0.1", TIMEOUT_SECONDS)
    meeting = Rendezvous.connect(rendezvous.address, TIMEOUT_SECONDS)
    with ThreadPoolExecutor(1) as threads:
        joining = threads.submit(form, meeting, 1)
        while not rendezvous.store.check(["rank/1"]):
            assert not joining.done()
        del rendezvous
        with pytest.raises(PacsError, match=r"rank 1 lost .*waiting for ranks \[0\]"):
            joining.result()


def test_closed_group_says_so():
    rendezvous = Rendezvous.open("127.0.0.1", TIMEOUT_SECONDS)
    group = form(rendezvous, 0, world_size=1)
    group.close()
    group.close()
    with pytest.raises(PacsError, match="closed"):
        group.broadcast(torch.zeros(1), Deadline(SHORT_SECONDS))


def test_nccl_without_cuda_names_the_remedy():
    if torch.distributed.is_nccl_available():
        pytest.skip("this torch has NCCL")
    rendezvous = Rendezvous.open("127.0.0.1", TIMEOUT_SECONDS)
    with pytest.raises(BadInput, match="set the weight backend to gloo"):
        BroadcastGroup.form(rendezvous, backend="nccl", rank=0, world_size=1, timeout_seconds=SHORT_SECONDS)


def test_deadline_counts_down_and_names_what_it_waited_for():
    deadline = Deadline(TIMEOUT_SECONDS)
    assert 0 < deadline.remaining("tea") <= TIMEOUT_SECONDS
    with pytest.raises(DeadlineExceeded, match="waited 0 s for tea"):
        Deadline(0.0).remaining("tea")
