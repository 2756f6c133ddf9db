"""What is refused before anything heavy starts."""

from pathlib import Path

import pytest

from pacs.errors import BadInput
from pacs.local.preflight import check
from pacs.testing import make_config

DATA = Path(__file__).resolve().parents[3] / "examples" / "data" / "arithmetic_train.jsonl"


@pytest.fixture
def model(tmp_path):
    """A folder whose weights are in PyTorch's old format."""
    for name in ("config.json", "tokenizer.json", "pytorch_model.bin"):
        (tmp_path / name).write_text("{}")
    return tmp_path


@pytest.mark.parametrize("rank", [0, 8])
def test_adapters_need_a_base_that_can_be_mapped(model, rank, monkeypatch):
    monkeypatch.setattr("pacs.local.preflight.check_ports", lambda _: None)  # others may use this machine's
    config = make_config({"model.path": model, "model.lora": {"rank": rank}, "data.path": DATA, "data.task": "math"})
    if not rank:
        check(config)
        return
    with pytest.raises(BadInput, match="adapters need a base in safetensors format"):
        check(config)
