"""The base from disk with the adapters merged, and what of a publication is refused before it is received."""

import dataclasses
import json

import pytest
import torch  # noqa: TID253
from safetensors.torch import save_file

from pacs.algo import merge_lora
from pacs.errors import BadInput
from pacs.runtime.base_model import fingerprint
from pacs.transport.manifest import Adapters, TensorMeta
from services.rollout.adapters import BaseModel

UP, DOWN, NORM = "layers.0.up.weight", "layers.0.down.weight", "norm.weight"
RANK = 2


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(*shape, generator=generator) for name, shape in ((UP, (6, 4)), (DOWN, (4, 6)), (NORM, (4,)))
    }


@pytest.fixture
def folder(tmp_path, tensors):
    """The base in two files."""
    for number, names in enumerate(((UP, NORM), (DOWN,))):
        save_file({name: tensors[name] for name in names}, tmp_path / f"part-{number}.safetensors")
    places = {UP: "part-0.safetensors", NORM: "part-0.safetensors", DOWN: "part-1.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return tmp_path


@pytest.fixture
def adapters(folder):
    return Adapters(RANK, 4.0, fingerprint(folder))


@pytest.fixture
def pair():
    generator = torch.Generator().manual_seed(1)
    return {
        "layers.0.up.lora_A.weight": torch.randn(RANK, 4, generator=generator),
        "layers.0.up.lora_B.weight": torch.randn(6, RANK, generator=generator),
    }


def manifest_of(pair, **changed):
    shapes = {name: tuple(tensor.shape) for name, tensor in pair.items()} | changed
    return [TensorMeta(name, "float32", shape) for name, shape in shapes.items() if shape is not None]


def test_every_tensor_comes_once_and_only_adapted_ones_differ(folder, tensors, pair, adapters):
    base = BaseModel(folder)
    base.check(adapters, manifest_of(pair))
    merged = list(base.merged(pair, adapters.scale, torch.float32))
    assert sorted(name for name, _ in merged) == sorted(tensors)
    found = dict(merged)
    assert torch.equal(found[NORM], tensors[NORM])
    assert torch.equal(found[DOWN], tensors[DOWN])
    assert torch.equal(found[UP], merge_lora(tensors[UP], *pair.values(), 2.0))


def test_any_number_of_publications_later_the_same_adapters_give_the_same_bits(folder, pair, adapters):
    base = BaseModel(folder)
    first = dict(base.merged(pair, adapters.scale, torch.float32))[UP].clone()
    for seed in range(3):
        other = {name: torch.randn_like(tensor) for name, tensor in pair.items()}
        assert not torch.equal(dict(base.merged(other, adapters.scale, torch.float32))[UP], first), seed
    assert torch.equal(dict(base.merged(pair, adapters.scale, torch.float32))[UP], first)


def test_the_base_is_rounded_as_the_learners_is_before_it_is_merged(folder, tensors, pair, adapters):
    low = {name: tensor.bfloat16() for name, tensor in pair.items()}
    merged = dict(BaseModel(folder).merged(low, adapters.scale, torch.bfloat16))[UP]
    assert merged.dtype == torch.bfloat16
    assert torch.equal(merged, merge_lora(tensors[UP].bfloat16(), *low.values(), 2.0))


def test_another_base_is_refused(folder, pair, adapters):
    other = dataclasses.replace(adapters, base="0" * 64)
    with pytest.raises(BadInput, match="must have the same base, got fingerprint 000000000000… there"):
        BaseModel(folder).check(other, manifest_of(pair))


A_NAME, B_NAME = "layers.0.up.lora_A.weight", "layers.0.up.lora_B.weight"


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({B_NAME: None}, rf"got 1 tensors .*{B_NAME}: missing for \(6, 2\)"),
        ({A_NAME: (3, 4), B_NAME: (6, 3)}, rf"got 2 tensors .*{A_NAME}: \(3, 4\) for \(2, 4\)"),
        ({A_NAME: (2, 5)}, rf"{A_NAME}: \(2, 5\) for \(2, 4\)"),
        ({"layers.7.up.lora_A.weight": (2, 4)}, r"layers.7.up.lora_A.weight: \(2, 4\) for nothing"),
        ({"layers.0.up.weight": (6, 4)}, r"layers.0.up.weight: \(6, 4\) for nothing"),
    ],
)
def test_tensors_that_are_no_pairs_of_this_base_are_refused_by_name(folder, pair, adapters, changed, complaint):
    with pytest.raises(BadInput, match=complaint):
        BaseModel(folder).check(adapters, manifest_of(pair, **changed))


def test_a_vector_cannot_be_adapted(folder, adapters):
    pair = {"norm.lora_A.weight": torch.zeros(RANK, 4), "norm.lora_B.weight": torch.zeros(4, RANK)}
    with pytest.raises(BadInput, match="for matrices of the base"):
        BaseModel(folder).check(adapters, manifest_of(pair))
