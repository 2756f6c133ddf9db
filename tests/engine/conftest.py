"""Tiny random models that load in a second, and worlds of a few ranks, for tests of the real engines."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pacs.local.ports import free_port

HERE = Path(__file__).parent
WORLD_SECONDS = 420.0
LONGEST_TRIED = 512  # tokens; a row's softmax is over blocks of as many
EOS_TOKENS = [2, 7]  # two, as many instruction-tuned models have

os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")  # as the learner does, before anything here multiplies


@pytest.fixture(scope="session")
def alike_tokens():
    """Tokens up to which this CPU's products give a row the same bits, however long it and its company are padded."""
    import torch

    generator = torch.Generator().manual_seed(0)
    weights_LL = torch.rand(LONGEST_TRIED, LONGEST_TRIED, generator=generator).tril()  # as attention's, row by row
    values_LD = torch.randn(LONGEST_TRIED, 32, generator=generator)
    lengths = range(16, LONGEST_TRIED + 1, 16)
    products = {padded: weights_LL[:padded, :padded] @ values_LD[:padded] for padded in lengths}
    alike = 0
    for padded in lengths:
        if not all(torch.equal(products[padded][:shorter], products[shorter]) for shorter in range(16, padded, 16)):
            break
        alike = padded
    return alike


@pytest.fixture(scope="session")
def anyio_backend():
    """One event loop for a module's engine and its tests."""
    return "asyncio"


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory):
    """Two directories with the same architecture (Qwen3, tied embeddings) and different weights."""
    root = tmp_path_factory.mktemp("models")
    return tuple(_make_model(root / f"seed-{seed}", seed) for seed in (0, 1))


def _make_model(path: Path, seed: int) -> Path:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = _byte_tokenizer()
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer) + 3,  # not a multiple of vLLM's padding
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        initializer_range=0.15,  # far from uniform, so that wrong weights show
        eos_token_id=EOS_TOKENS,
        bos_token_id=None,
        pad_token_id=0,
    )
    model = Qwen3ForCausalLM(config).to(torch.float32)
    model.generation_config.eos_token_id = EOS_TOKENS
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def _byte_tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    symbols = ["<pad>", "<start>", "<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>")


@pytest.fixture(scope="session")
def run_world(tiny_models, tmp_path_factory):
    """Runs scenarios on some ranks; a scenario's folder is its name in the world's own folder."""

    def run(name, ranks, scenarios, persistent_elements=0):
        root = tmp_path_factory.mktemp(name)
        for key, spec in scenarios.items():
            spec.setdefault("model", str(tiny_models[0]))
            spec.setdefault("folder", str(root / key))
        spec_file, results = root / "spec.json", root / "results.json"
        spec_file.write_text(
            json.dumps({"scenarios": scenarios, "results": str(results), "persistent_elements": persistent_elements})
        )
        _run_ranks(root, ranks, spec_file)
        return {key: {**spec, **result} for (key, spec), result in zip(
            scenarios.items(), json.loads(results.read_text()).values(), strict=True
        )}  # fmt: skip

    return run


def _run_ranks(root, ranks, spec_file):
    port = free_port()
    processes = []
    inherited = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}  # the engine sets it itself
    for rank in range(ranks):
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
        with (root / f"rank{rank}.log").open("w") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, HERE / "ranks_worker.py", spec_file],
                    env={**inherited, "MASTER_ADDR": "127.0.0.1", **{key: str(value) for key, value in own.items()}},
                    stdout=log,
                    stderr=log,
                )
            )
    deadline = time.monotonic() + WORLD_SECONDS
    try:
        for process in processes:  # rank 0 first: the others end with it
            process.wait(max(0.1, deadline - time.monotonic()))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    logs = "\n".join(f"rank {rank}: …{(root / f'rank{rank}.log').read_text()[-3000:]}" for rank in range(ranks))
    assert [process.returncode for process in processes] == [0] * ranks, logs
