"""Packing, sending, receiving and digesting whole models."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacs.errors import BadInput, PacsError

pytest.importorskip("torch", reason="torch is not installed")
import torch  # noqa: TID253 - after the skip

from pacs.transport.broadcast import BroadcastGroup, Rendezvous
from pacs.transport.weights import TensorMeta, describe, digest, plan_buckets, receive, send

TIMEOUT_SECONDS = 10.0


def make_tensors():
    """Every awkward kind: odd sizes, a scalar, one-byte elements, a view that is not contiguous."""
    torch.manual_seed(0)
    return [
        ("embedding", torch.randn(50, 7)),
        ("half", torch.randn(3, 5, dtype=torch.bfloat16)),
        ("scalar", torch.tensor(2.5)),
        ("flags", torch.tensor([True, False, True])),
        ("transposed", torch.randn(4, 9, dtype=torch.float64).T),
        ("parameter", torch.nn.Parameter(torch.randn(11, dtype=torch.float16))),
        ("counts", torch.arange(13)),
    ]


def transfer(tensors, bucket_bytes, source=None):
    """Send from one thread to another; returns what came, the digests of both sides and the number of buckets."""
    rendezvous = Rendezvous.open("127.0.0.1", TIMEOUT_SECONDS)
    manifest = [describe(name, tensor) for name, tensor in tensors]
    arrived, loads = {}, []

    def load(part):
        loads.append(len(part))
        arrived.update(part)

    def group(rank):
        meeting = rendezvous if rank == 0 else Rendezvous.connect(rendezvous.address, TIMEOUT_SECONDS)
        return BroadcastGroup.form(meeting, backend="gloo", rank=rank, world_size=2, timeout_seconds=TIMEOUT_SECONDS)

    with ThreadPoolExecutor(2) as threads:
        sent = threads.submit(lambda: send(group(0), source or tensors, manifest, bucket_bytes, TIMEOUT_SECONDS))
        received = threads.submit(lambda: receive(group(1), manifest, bucket_bytes, TIMEOUT_SECONDS, load))
        return arrived, sent.result(), received.result(), loads


@pytest.mark.parametrize(("bucket_bytes", "buckets"), [(1, 7), (200, 4), (1 << 20, 1)])
def test_what_arrives_is_what_was_sent(bucket_bytes, buckets):
    tensors = make_tensors()
    arrived, sent, received, loads = transfer(tensors, bucket_bytes)

    assert sent == received == [digest(tensor) for _, tensor in tensors]
    assert len(loads) == buckets
    assert list(arrived) == [name for name, _ in tensors]
    for name, tensor in tensors:
        assert arrived[name].dtype == tensor.dtype
        assert torch.equal(arrived[name], tensor.detach())


def test_tensors_that_do_not_follow_the_manifest_are_refused():
    tensors = make_tensors()
    manifest = [describe(name, tensor) for name, tensor in tensors]
    rendezvous = Rendezvous.open("127.0.0.1", TIMEOUT_SECONDS)
    group = BroadcastGroup.form(rendezvous, backend="gloo", rank=0, world_size=1, timeout_seconds=TIMEOUT_SECONDS)

    def sent(source):
        return send(group, source, manifest, 1 << 20, TIMEOUT_SECONDS)

    with pytest.raises(BadInput, match=r"got half bfloat16 \(3, 5\) where it says embedding float32 \(50, 7\)"):
        sent(tensors[1:])
    with pytest.raises(BadInput, match="got nothing more where it says counts"):
        sent(tensors[:-1])
    with pytest.raises(BadInput, match="got embedding float64"):
        sent([("embedding", torch.zeros(50, 7, dtype=torch.float64)), *tensors[1:]])
    with pytest.raises(BadInput, match="'extra' beyond its end"):
        sent([*tensors, ("extra", torch.zeros(1))])
    assert len(sent(iter(tensors))) == len(tensors)


def test_receiver_that_fails_to_load_says_so():
    def refuse(part):
        raise PacsError("no room")

    rendezvous = Rendezvous.open("127.0.0.1", TIMEOUT_SECONDS)
    group = BroadcastGroup.form(rendezvous, backend="gloo", rank=0, world_size=1, timeout_seconds=TIMEOUT_SECONDS)
    with pytest.raises(PacsError, match="no room"):
        receive(group, [TensorMeta("a", "float32", (3,))], 64, TIMEOUT_SECONDS, refuse)


@pytest.mark.parametrize("shape", [(0,), (4, 0)])
def test_empty_shards_are_refused_by_name(shape):
    with pytest.raises(BadInput, match=r"got 'model.norm.weight' of shape .*gather sharded parameters"):
        describe("model.norm.weight", torch.empty(shape))


def test_manifests_that_cannot_be_sent_are_refused():
    weight = TensorMeta("weight", "float32", (2,))
    with pytest.raises(BadInput, match=r"\['weight'\] more than once"):
        plan_buckets([weight, weight], 64)
    with pytest.raises(BadInput, match="got 0 tensors"):
        plan_buckets([], 64)
    with pytest.raises(BadInput, match="bucket_bytes=0"):
        plan_buckets([weight], 0)
    with pytest.raises(BadInput, match="'weight' as 'complex64'"):
        TensorMeta("weight", "complex64", (2,))


@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=30),
    dtype=st.sampled_from(["float32", "bfloat16", "uint8"]),
    bucket_bytes=st.integers(1, 1000),
)
def test_plans_keep_order_alignment_and_room(sizes, dtype, bucket_bytes):
    tensors = [TensorMeta(f"t{i}", dtype, (size,)) for i, size in enumerate(sizes)]
    buckets = plan_buckets(tensors, bucket_bytes)

    assert [tensor for bucket in buckets for tensor in bucket.tensors] == tensors
    for bucket in buckets:
        assert bucket.nbytes <= bucket_bytes or len(bucket.tensors) == 1
        end = 0
        for tensor, offset in zip(bucket.tensors, bucket.offsets, strict=True):
            assert offset % 16 == 0
            assert end <= offset < end + 16
            end = offset + tensor.nbytes
        assert end == bucket.nbytes


@settings(max_examples=50)
@given(data=st.data(), dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.uint8]))
def test_digest_sees_any_change_and_any_exchange(data, dtype):
    tensor = torch.arange(1, data.draw(st.integers(2, 200)) + 1).to(dtype)
    first, second = (data.draw(st.integers(0, len(tensor) - 1)) for _ in range(2))
    changed, exchanged = tensor.clone(), tensor.clone()
    changed[first] = 0
    exchanged[first], exchanged[second] = tensor[second], tensor[first]

    assert digest(changed) != digest(tensor)
    assert (digest(exchanged) == digest(tensor)) == torch.equal(exchanged, tensor)


def test_digest_sees_an_exchange_of_signs():
    assert digest(torch.tensor([1.5, 0.0, -1.5])) != digest(torch.tensor([-1.5, 0.0, 1.5]))


def test_digest_of_known_bytes():
    words = torch.tensor([1, 2, 3], dtype=torch.int32)
    assert digest(words) == f"{6:016x}{1 + 4 + 9:016x}"
    assert digest(torch.tensor([-1], dtype=torch.int32)) == "f" * 32


def test_digest_does_not_depend_on_chunks_or_strides(monkeypatch):
    tensor = torch.randn(1000, dtype=torch.float64)
    whole = digest(tensor)
    monkeypatch.setattr("pacs.transport.weights._CHUNK_WORDS", 7)
    assert digest(tensor) == whole
    assert digest(torch.stack((tensor, tensor), dim=1)[:, 0]) == whole
