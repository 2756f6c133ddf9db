"""Adapters published into vLLM itself: it samples from base and adapters merged, however often and after what."""

import asyncio
import dataclasses

import numpy as np
import pytest

from pacs.errors import PacsError
from pacs.runtime.base_model import fingerprint
from pacs.transport.manifest import Adapters

pytest.importorskip("vllm", reason="vLLM is not installed")
import torch  # noqa: TID253 - after the skip
from test_vllm_engine import (
    BUCKET_BYTES,
    TIMEOUT_SECONDS,
    TOLERANCE,
    communicator,
    gap,
    make_prompt,
    publish,
    reference_logprobs,
    running_engine,
)
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM  # noqa: TID253 - after the skip

from pacs.transport.weights import describe, send

pytestmark = [
    pytest.mark.engine,
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::ResourceWarning"),
]
RANK, ALPHA = 4, 8.0
PROBE_IDS = make_prompt(99, tokens=200).token_ids


@pytest.fixture(scope="module")
async def engine(tiny_models):
    async with running_engine(tiny_models[0], worker_extension_cls="faulty_transfer.ScramblingWorker") as started:
        yield started


@pytest.fixture(scope="module")
def adapters(tiny_models):
    return Adapters(RANK, ALPHA, fingerprint(tiny_models[0]))


def base_model(path):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def make_pairs(model, seed, layers=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")):
    """Adapters of some layers, large enough to change what is sampled."""
    generator = torch.Generator().manual_seed(seed)
    pairs = {}
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in layers:
            pairs[f"{name}.lora_A.weight"] = 0.1 * torch.randn(RANK, module.in_features, generator=generator)
            pairs[f"{name}.lora_B.weight"] = 0.1 * torch.randn(module.out_features, RANK, generator=generator)
    return pairs


def unmerged(path, pairs):
    """The learner's model: peft's layers beside those of the base."""
    from peft import LoraConfig, inject_adapter_in_model

    targets = sorted({name.split(".")[-3] for name in pairs})
    model = base_model(path)
    inject_adapter_in_model(LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets), model)
    for name, parameter in model.named_parameters():
        if (short := name.replace(".default", "")) in pairs:
            parameter.data.copy_(pairs[short])
    return model.eval()


async def publish_adapters(engine, pairs, version, adapters, manifest=None):
    """One whole publication of adapters; returns the digests sent and received."""
    await engine.pause()
    manifest = manifest or [describe(name, tensor) for name, tensor in pairs.items()]
    async with communicator(engine) as group:
        sent, received = await asyncio.gather(
            asyncio.to_thread(send, group, pairs.items(), manifest, BUCKET_BYTES, TIMEOUT_SECONDS),
            engine.receive_weights(version, manifest, BUCKET_BYTES, adapters),
        )
    await engine.resume()
    return sent, received


async def probe_gap(engine, model):
    return float(np.abs(await engine.probe(PROBE_IDS) - reference_logprobs(model, PROBE_IDS)).max())


@pytest.mark.parametrize("layers", [("q_proj", "v_proj"), ("gate_proj",), ("k_proj", "o_proj", "down_proj", "up_proj")])
async def test_published_adapters_are_the_learners_policy(engine, tiny_models, adapters, layers):
    base = base_model(tiny_models[0])
    pairs = make_pairs(base, 1, layers)
    learner = unmerged(tiny_models[0], pairs)
    sent, received = await publish_adapters(engine, pairs, 1, adapters)
    assert sent == received
    assert len(sent) == len(pairs)
    assert await probe_gap(engine, base) > 0.1
    assert await probe_gap(engine, learner) < TOLERANCE
    group = await engine.sample(make_prompt(5, tokens=50))
    assert max(gap(learner, make_prompt(5, tokens=50), completion) for completion in group.completions) < TOLERANCE
    assert min(group.versions) == 1


async def test_the_same_adapters_give_the_same_bits_whatever_was_there_before(engine, tiny_models, adapters):
    base = base_model(tiny_models[0])
    pairs, others = make_pairs(base, 1), make_pairs(base, 2)
    await publish_adapters(engine, pairs, 2, adapters)
    first = await engine.probe(PROBE_IDS)
    for version in range(3, 6):
        await publish_adapters(engine, others, version, adapters)
    assert await probe_gap(engine, unmerged(tiny_models[0], others)) < TOLERANCE
    await engine._llm.collective_rpc("scramble")
    assert np.abs(await engine.probe(PROBE_IDS) - first).max() > 0.1
    await publish_adapters(engine, pairs, 6, adapters)
    np.testing.assert_array_equal(await engine.probe(PROBE_IDS), first)


async def test_adapters_that_are_zero_are_the_base_bit_for_bit(engine, tiny_models, adapters):
    base = base_model(tiny_models[0])
    await publish(engine, base, 7)
    whole = await engine.probe(PROBE_IDS)
    pairs = make_pairs(base, 1)
    await publish_adapters(engine, pairs, 8, adapters)
    await publish_adapters(engine, {n: t * (".lora_A." in n) for n, t in pairs.items()}, 9, adapters)
    np.testing.assert_array_equal(await engine.probe(PROBE_IDS), whole)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"base": "0" * 64}, "must have the same base"), ({"rank": RANK + 1}, f"pairs of rank {RANK + 1}")],
)
async def test_adapters_for_something_else_are_refused_and_the_next_are_taken(
    engine, tiny_models, adapters, change, said
):
    base = base_model(tiny_models[0])
    pairs = make_pairs(base, 1)
    manifest = [describe(name, tensor) for name, tensor in pairs.items()]
    await engine.pause()
    with pytest.raises(PacsError, match=said):
        await engine.receive_weights(10, manifest, BUCKET_BYTES, dataclasses.replace(adapters, **change))
    with pytest.raises(PacsError, match="half-loaded"):
        await engine.resume()
    await publish_adapters(engine, pairs, 11, adapters)
    assert await probe_gap(engine, unmerged(tiny_models[0], pairs)) < TOLERANCE


async def test_a_head_of_its_own_stays_the_bases(tiny_models, tmp_path):
    torch.manual_seed(3)
    Qwen3ForCausalLM(Qwen3Config.from_pretrained(tiny_models[0], tie_word_embeddings=False)).save_pretrained(
        tmp_path, max_shard_size="200KB"
    )
    for file in tiny_models[0].glob("tokenizer*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert len(list(tmp_path.glob("*.safetensors"))) > 1, "in several files"
    pairs = make_pairs(base_model(tmp_path), 1)
    async with running_engine(tmp_path) as untied:
        await publish_adapters(untied, pairs, 1, Adapters(RANK, ALPHA, fingerprint(tmp_path)))
        assert await probe_gap(untied, base_model(tmp_path)) > 0.1
        assert await probe_gap(untied, unmerged(tmp_path, pairs)) < TOLERANCE
