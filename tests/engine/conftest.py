"""Tiny random models that load in a second, for tests of the real engines."""

from pathlib import Path

import pytest

EOS_TOKENS = [2, 7]  # two, as many instruction-tuned models have


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
