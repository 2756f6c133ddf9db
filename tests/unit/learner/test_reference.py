"""Where a reference lies, and that it changes places with the policy; a GPU's tensors are stood in for by hand."""

import pytest
import torch  # noqa: TID253

from services.learner.reference import ReferenceSnapshot


class OnGpu(torch.Tensor):
    """A tensor that says it is on a GPU; copied to the CPU it is a plain one."""

    is_cuda = True

    def cpu(self):
        return self.as_subclass(torch.Tensor).clone()


def snapshot(weight, offload):
    kept = ReferenceSnapshot({"weight": weight}, rank=0, ranks=1, divided=False, offload=offload)
    kept.take()
    return kept


def kinds(kept):
    return [type(tensor) for tensor in kept._kept.values()]


@pytest.mark.parametrize("offload", [True, False])
def test_a_reference_leaves_the_gpu_only_if_told_so_also_when_it_is_taken_anew(offload):
    kept = snapshot(torch.tensor([1.0, 2.0]).as_subclass(OnGpu), offload)
    assert kinds(kept) == [torch.Tensor if offload else OnGpu]
    kept.take()
    assert kinds(kept) == [torch.Tensor if offload else OnGpu]


@pytest.mark.parametrize("offload", [True, False])
@pytest.mark.parametrize("kind", [torch.Tensor, OnGpu])
def test_wherever_it_lies_it_is_a_copy_and_changes_places_with_the_policy(kind, offload):
    weight = torch.tensor([1.0, 2.0]).as_subclass(kind)
    kept = snapshot(weight, offload)
    weight += 1.0
    assert weight.tolist() == [2.0, 3.0]
    with kept.in_place():
        assert weight.tolist() == [1.0, 2.0]
    assert weight.tolist() == [2.0, 3.0]
    kept.take()
    with kept.in_place():
        assert weight.tolist() == [2.0, 3.0]
