"""The learner's part in a publication: what it says of its tensors, and which orders it refuses."""

import pytest

from pacs.errors import ServiceFailed
from pacs.pb import control_pb2 as pb
from pacs.transport.broadcast import BroadcastGroup, Rendezvous
from pacs.transport.manifest import Adapters
from services.learner.publication import WeightSender, manifest_message
from services.learner.testing import FakeTrainingEngine

ADAPTERS = Adapters(8, 16.0, "f1")


@pytest.fixture
def joined():
    """A sender in a communicator of its own."""
    senders = []

    def make(adapters):
        sender = WeightSender(FakeTrainingEngine(), "127.0.0.1", 5.0, "gloo", adapters)
        sender._rendezvous = Rendezvous.open("127.0.0.1", 5.0)
        sender._group = BroadcastGroup.form(
            sender._rendezvous, backend="gloo", rank=0, world_size=1, timeout_seconds=5.0
        )
        senders.append(sender)
        return sender

    yield make
    for sender in senders:
        sender.close()


def order(sender, adapters):
    command = pb.TransferWeights(tensors=manifest_message(sender.manifest()), bucket_bytes=4096, adapters=adapters)
    return pb.Command(transfer_weights=command)


def test_what_the_tensors_are_is_said_as_configured(joined):
    assert joined(None).adapters_message() is None
    assert joined(ADAPTERS).adapters_message() == pb.Adapters(rank=8, alpha=16.0, base="f1")


@pytest.mark.parametrize("own", [None, ADAPTERS])
@pytest.mark.parametrize("change", [{"rank": 4}, {"alpha": 8.0}, {"base": "f2"}, None])
def test_an_order_for_other_adapters_is_refused(joined, own, change):
    sender = joined(own)
    if change is None:
        asked = pb.Adapters(rank=8, alpha=16.0, base="f1") if own is None else None
    else:
        asked = pb.Adapters(**{"rank": 8, "alpha": 16.0, "base": "f1", **change})
    with pytest.raises(ServiceFailed, match="a transfer must be of what the learner trains"):
        sender.carry_out(order(sender, asked))
