"""The replica's part in a publication: when its gate is open, and what becomes of groups sampled in doubt."""

import asyncio

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from pacs.errors import PacsError, ServiceFailed
from pacs.pb import control_pb2 as pb
from pacs.runtime.config import LoraSection
from pacs.runtime.worker import StageWorker
from pacs.testing import FakeSamplingEngine, assert_eventually, make_prompt
from pacs.transport.interface import Stream
from pacs.transport.memory import MemoryStreams
from pacs.wire.groups import decode_group, encode_prompt
from services.rollout.handler import RolloutHandler
from services.rollout.metrics import RolloutMetrics
from services.rollout.weight_receiver import WeightReceiver

pytestmark = pytest.mark.anyio

PAUSE = pb.Command(pause=pb.Pause())
PROBE = pb.Command(probe=pb.Probe(token_ids=np.array([1, 2, 3], dtype="<i4").tobytes()))
TENSORS = [pb.TensorMeta(name=name, dtype="float32", shape=[2]) for name in ("embed", "head")]


def transfer(version):
    return pb.Command(transfer_weights=pb.TransferWeights(policy_version=version, tensors=TENSORS, bucket_bytes=99))


def resume(version):
    return pb.Command(resume=pb.Resume(policy_version=version))


class Replica:
    """Receiver, gate and one worker over streams in memory, as `services.rollout.replica` wires them."""

    def __init__(self, engine=None, **options):
        self.engine = engine or FakeSamplingEngine()
        self.gate, self.abandoned = asyncio.Event(), 0
        self.registry = CollectorRegistry()
        metrics = RolloutMetrics(self.registry, "test", "rollout-0")
        self.streams = MemoryStreams()
        handle = RolloutHandler(self.engine, metrics).handle
        self.worker = StageWorker(
            self.streams, Stream.PROMPTS, Stream.COMPLETIONS, "rollout-0", handle, 4, 3, self.gate, drain_seconds=0.1
        )
        self.receiver = WeightReceiver(self.engine, self.gate, self._abandon, metrics, **options)

    async def _abandon(self):
        self.abandoned += 1
        await self.worker.abandon()

    async def carry_out(self, *commands):
        return [await self.receiver.carry_out(command) for command in commands]

    async def publish(self, version):
        await self.carry_out(PAUSE, transfer(version), PROBE, resume(version))


async def test_the_gate_opens_with_the_first_verified_version_and_not_before():
    replica = Replica()
    for command in (PAUSE, transfer(1), PROBE):
        await replica.carry_out(command)
        assert not replica.gate.is_set()
        assert replica.receiver.policy_version == 0
    await replica.carry_out(resume(1))
    assert replica.gate.is_set()
    assert replica.receiver.policy_version == 1
    shown = replica.registry.get_sample_value("pacs_rollout_policy_version", {"run": "test", "replica": "rollout-0"})
    assert shown == 1


async def test_the_engine_gets_what_control_asks_in_order():
    replica = Replica()
    join = pb.Command(join_communicator=pb.JoinCommunicator(address="host:1", rank=1, world_size=2, timeout_seconds=5))
    _, _, received, probed, _ = await replica.carry_out(PAUSE, join, transfer(3), PROBE, resume(3))
    assert replica.engine.calls == ["pause", "join host:1 as 1 of 2", "receive 3", "resume", "probe"]
    assert list(received.digests) == ["embed", "head"]
    assert np.frombuffer(probed.probe_logprobs, "<f4").tolist() == [-1.0, -2.0]


async def test_pausing_a_sound_replica_closes_the_gate_and_keeps_its_groups():
    replica = Replica()
    await replica.publish(1)
    await replica.carry_out(PAUSE)
    assert not replica.gate.is_set()
    assert replica.abandoned == 0
    assert replica.receiver.policy_version == 1


async def test_a_publication_without_a_verdict_makes_the_next_pause_abandon():
    replica = Replica()
    await replica.publish(1)
    await replica.carry_out(PAUSE, transfer(2), PROBE)  # control found a gap, or died
    assert replica.receiver.policy_version == 0, "towards control it is as if it were new"
    await replica.carry_out(PAUSE)
    assert replica.abandoned == 1
    await replica.carry_out(transfer(2), PROBE, resume(2), PAUSE)
    assert replica.abandoned == 1
    assert replica.receiver.policy_version == 2


async def test_a_failed_transfer_leaves_the_gate_shut_and_says_the_engines_words():
    replica = Replica(FakeSamplingEngine(transfer_failure=ServiceFailed("rank 0 left")))
    await replica.carry_out(PAUSE)
    with pytest.raises(ServiceFailed, match="rank 0 left"):
        await replica.carry_out(transfer(1))
    with pytest.raises(PacsError, match="half loaded"):
        await replica.carry_out(PROBE)
    assert not replica.gate.is_set()
    assert replica.receiver.policy_version == 0
    await replica.publish(1)
    assert replica.gate.is_set()


async def test_what_it_does_not_know_it_refuses():
    with pytest.raises(ServiceFailed, match=r"a rollout replica knows \['join.*was asked for open_communicator"):
        await Replica().carry_out(pb.Command(open_communicator=pb.OpenCommunicator()))
    with pytest.raises(ServiceFailed, match="was asked for nothing"):
        await Replica().carry_out(pb.Command())


async def test_what_was_sampled_from_weights_in_doubt_is_sampled_again_and_never_handed_over():
    replica, stop = Replica(), asyncio.Event()
    working = asyncio.create_task(replica.worker.run(stop))
    await replica.publish(1)
    await replica.engine.pause()
    await replica.streams.admit(0, encode_prompt(make_prompt(0)))
    await assert_eventually(lambda: replica.engine.calls[-1] == "sample 0")  # frozen in the engine

    await replica.carry_out(PAUSE, transfer(2), PROBE)  # the probe lets the engine run: the group is finished in doubt
    for _ in range(20):
        await asyncio.sleep(0)
    assert (await replica.streams.queue_lengths())[Stream.COMPLETIONS] == 0

    await replica.publish(3)
    (delivery,) = await replica.streams.read(Stream.COMPLETIONS, "verifier", 1, 5.0)
    group = decode_group(delivery.payload)
    assert {span.policy_version for c in group.completions for span in c.versions} == {3}
    assert replica.engine.calls.count("sample 0") == 2
    assert (await replica.streams.ledger()).tokens_generated == 6, "counted once"
    stop.set()
    await working


async def test_what_was_in_hand_during_a_sound_publication_goes_on_and_is_kept():
    replica, stop = Replica(), asyncio.Event()
    working = asyncio.create_task(replica.worker.run(stop))
    await replica.publish(1)
    await replica.engine.pause()
    await replica.streams.admit(0, encode_prompt(make_prompt(0)))
    await assert_eventually(lambda: replica.engine.calls[-1] == "sample 0")
    await replica.publish(2)
    assert len(await replica.streams.read(Stream.COMPLETIONS, "verifier", 1, 5.0)) == 1
    assert replica.engine.calls.count("sample 0") == 1
    stop.set()
    await working


def adapters(version, rank=8, alpha=16.0):
    command = transfer(version)
    command.transfer_weights.adapters.CopyFrom(pb.Adapters(rank=rank, alpha=alpha, base="f1"))
    return command


async def test_adapters_are_received_as_such():
    replica = Replica(lora=LoraSection(rank=8, alpha=16))
    await replica.carry_out(PAUSE, adapters(1), PROBE, resume(1))
    assert "receive 1 as adapters" in replica.engine.calls
    assert replica.receiver.policy_version == 1


@pytest.mark.parametrize(
    ("lora", "command", "said"),
    [
        (LoraSection(), adapters(2), r"\(8, 16.0\) for \(0, 0.0\)"),
        (LoraSection(rank=8, alpha=16), transfer(2), r"\(0, 0.0\) for \(8, 16.0\)"),
        (LoraSection(rank=8, alpha=16), adapters(2, rank=4), r"\(4, 16.0\) for \(8, 16.0\)"),
        (LoraSection(rank=8, alpha=16), adapters(2, alpha=32.0), r"\(8, 32.0\) for \(8, 16.0\)"),
    ],
)
async def test_what_the_configuration_does_not_say_is_refused_before_the_engine_hears_of_it(lora, command, said):
    replica = Replica(lora=lora)
    await replica.carry_out(PAUSE)
    with pytest.raises(ServiceFailed, match=said):
        await replica.carry_out(command)
    assert replica.engine.calls == ["pause"]
