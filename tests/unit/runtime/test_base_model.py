"""Which files hold a base, and when two bases count as one."""

import json
import shutil

import pytest

from pacs.errors import BadInput
from pacs.runtime.base_model import adapters_of, fingerprint, weight_files
from pacs.testing import make_config
from pacs.transport.manifest import adapter_pair


@pytest.fixture
def folder(tmp_path):
    """A base in two files, one of them of some size."""
    path = tmp_path / "base"
    path.mkdir()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    (path / names[0]).write_bytes(bytes(range(256)) * 8192)
    (path / names[1]).write_bytes(b"small")
    weight_map = {"b.weight": names[1], "a.weight": names[0], "c.weight": names[1]}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return path


def test_the_index_names_the_files_unless_there_is_only_one(folder):
    assert [path.name[:11] for path in weight_files(folder)] == ["model-00001", "model-00002"]
    (folder / "model.safetensors").write_bytes(b"one")
    assert weight_files(folder) == [folder / "model.safetensors"]


def test_a_folder_without_safetensors_is_refused(folder, tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"old")
    with pytest.raises(BadInput, match="adapters need a base in safetensors format"):
        weight_files(tmp_path)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(BadInput, match=r"missing: \['model-00002-of-00002.safetensors'\]"):
        weight_files(folder)


def test_a_copy_has_the_same_fingerprint_and_trained_weights_another(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "README.md").write_text("moved")
    assert fingerprint(copy) == fingerprint(folder)
    first = folder / "model-00001-of-00002.safetensors"
    changed = bytearray(first.read_bytes())
    changed[len(changed) // 2 : len(changed) // 2 + 65536] = bytes(65536)  # a tensor of 16384 floats
    first.write_bytes(changed)
    assert fingerprint(copy) != fingerprint(folder)
    first.write_bytes((copy / first.name).read_bytes() + b"1")
    assert fingerprint(copy) != fingerprint(folder)


def test_the_settings_say_what_the_adapters_are(folder):
    assert adapters_of(make_config({"model.path": folder}).model) is None
    adapters = adapters_of(make_config({"model.path": folder, "model.lora": {"rank": 16, "alpha": 8}}).model)
    assert (adapters.rank, adapters.alpha, adapters.scale) == (16, 8.0, 0.5)
    assert adapters.base == fingerprint(folder)


def test_a_pair_is_named_after_the_weights_it_adapts():
    a, b = adapter_pair("model.layers.0.mlp.up_proj.weight")
    assert (a, b) == ("model.layers.0.mlp.up_proj.lora_A.weight", "model.layers.0.mlp.up_proj.lora_B.weight")
