"""vLLM itself: what it samples is what Hugging Face computes, before, during and after publications of weights."""

import asyncio
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import numpy as np
import pytest

from pacs.errors import DeadlineExceeded, PacsError
from pacs.wire.groups import Prompt
from services.rollout.engine import PromptTooLong, SamplingAborted

pytest.importorskip("vllm", reason="vLLM is not installed")
import torch  # noqa: TID253 - after the skip
from transformers import AutoModelForCausalLM  # noqa: TID253 - after the skip

from pacs.transport.broadcast import BroadcastGroup, Rendezvous
from pacs.transport.weights import describe, plan_buckets, send
from services.rollout.vllm_engine import VllmEngine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::ResourceWarning"),
]
MAX_MODEL_TOKENS = 512
BUCKET_BYTES = 20_000  # several buckets, several tensors in some
TIMEOUT_SECONDS = 20.0
TOLERANCE = 1e-4  # nats, fp32


@asynccontextmanager
async def running_engine(model, **options):
    engine = await VllmEngine.start(
        model,
        dtype="float32",
        seed=0,
        max_model_tokens=MAX_MODEL_TOKENS,
        max_sequences=64,
        kv_cache_gib=0.25,
        **options,
    )
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture(scope="module")
async def engine(tiny_models):
    async with running_engine(tiny_models[0], worker_extension_cls="faulty_transfer.ScramblingWorker") as started:
        yield started


@pytest.fixture(scope="module")
def models(tiny_models):
    """The models old and new as the learner holds them."""
    return tuple(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval() for path in tiny_models)


def make_prompt(sequence, *, tokens=12, group_size=8, max_tokens=32, temperature=1.0):
    ids = np.random.default_rng(sequence).integers(10, 250, tokens).astype(np.int32)
    return Prompt(
        sequence=sequence,
        prompt_id=f"p{sequence}",
        token_ids=ids,
        text="",
        task="exact",
        answer="",
        group_size=group_size,
        max_tokens=max_tokens,
        temperature=temperature,
    )


@torch.no_grad()
def reference_logprobs(model, token_ids, temperature=1.0):
    """Hugging Face's log-probs of tokens 1…T-1, [T-1]."""
    ids = torch.as_tensor(np.asarray(token_ids), dtype=torch.int64)
    logits = model(ids[None]).logits[0, :-1].float() / temperature
    return torch.log_softmax(logits, -1).gather(1, ids[1:, None])[:, 0].numpy()


def gap(model, prompt, completion, first=0, last=None):
    """max |engine - Hugging Face| over the completion's tokens [first, last)."""
    whole = np.concatenate([prompt.token_ids, completion.token_ids])
    expected = reference_logprobs(model, whole, prompt.temperature)[len(prompt.token_ids) - 1 :]
    return float(np.abs(completion.logprobs - expected)[first:last].max(initial=0.0))


async def probe_gap(engine, model):
    ids = make_prompt(99, tokens=200).token_ids
    return float(np.abs(await engine.probe(ids) - reference_logprobs(model, ids)).max())


@asynccontextmanager
async def communicator(engine, timeout_seconds=TIMEOUT_SECONDS):
    """The learner as rank 0 and the engine as rank 1."""
    rendezvous = Rendezvous.open("127.0.0.1", timeout_seconds)
    forming = asyncio.to_thread(
        BroadcastGroup.form, rendezvous, backend="gloo", rank=0, world_size=2, timeout_seconds=timeout_seconds
    )
    group, _ = await asyncio.gather(
        forming, engine.join_communicator(rendezvous.address, rank=1, world_size=2, timeout_seconds=timeout_seconds)
    )
    try:
        yield group
    finally:
        group.close()


def manifest_of(model):
    return [describe(name, parameter) for name, parameter in model.named_parameters()]


async def publish(engine, model, version):
    """One whole publication; returns the digests sent and received."""
    await engine.pause()
    manifest = manifest_of(model)
    async with communicator(engine) as group:
        sent, received = await asyncio.gather(
            asyncio.to_thread(send, group, model.named_parameters(), manifest, BUCKET_BYTES, TIMEOUT_SECONDS),
            engine.receive_weights(version, manifest, BUCKET_BYTES),
        )
    await engine.resume()
    return sent, received


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_groups_are_whole_and_their_logprobs_are_those_of_the_sampling_distribution(engine, models, temperature):
    await publish(engine, models[0], 1)
    prompts = [make_prompt(i, temperature=temperature) for i in range(4)]

    groups = await asyncio.gather(*[engine.sample(prompt) for prompt in prompts])

    for prompt, group in zip(prompts, groups, strict=True):
        assert [c.sample_id for c in group.completions] == [f"{prompt.sequence}/{i}" for i in range(8)]
        for completion in group.completions:
            assert gap(models[0], prompt, completion) < TOLERANCE
            assert [(s.policy_version, s.start, s.end) for s in completion.versions] == [
                (1, 0, len(completion.token_ids))
            ]
            assert isinstance(completion.text, str)
            assert "<end>" not in completion.text


async def test_every_end_of_sequence_id_stops_and_is_part_of_the_completion(engine, models):
    ends = models[0].generation_config.eos_token_id
    assert len(ends) == 2
    groups = await asyncio.gather(*[engine.sample(make_prompt(i, max_tokens=120)) for i in range(16)])

    completions = [c for group in groups for c in group.completions]
    stopped = [c for c in completions if c.finish_reason == "stop"]
    assert {int(c.token_ids[-1]) for c in stopped} == set(ends)
    assert all(len(c.token_ids) == 120 for c in completions if c.finish_reason == "length")
    assert not any(np.isin(c.token_ids[:-1], ends).any() for c in completions)
    assert {c.finish_reason for c in completions} == {"stop", "length"}


async def test_prompt_beyond_the_engines_context_is_refused_by_name(engine):
    with pytest.raises(PromptTooLong, match=r"512 tokens, got 500 \+ 13"):
        await engine.sample(make_prompt(0, tokens=500, max_tokens=13))


async def test_published_weights_are_the_learners(engine, models):
    old, new = models
    await publish(engine, old, 2)
    long_prompt = make_prompt(5, tokens=300)  # several cache blocks, which must not outlive the weights
    await engine.sample(long_prompt)
    assert await probe_gap(engine, new) > 0.1

    sent, received = await publish(engine, new, 3)

    assert sent == received
    assert len(set(sent)) > 10
    assert await probe_gap(engine, new) < TOLERANCE
    group = await engine.sample(long_prompt)
    assert max(gap(new, long_prompt, completion) for completion in group.completions) < TOLERANCE
    assert min(group.versions) == 3


async def test_round_trip_over_scrambled_weights(engine, models):
    sent, _ = await publish(engine, models[0], 4)
    await engine._llm.collective_rpc("scramble")
    assert await probe_gap(engine, models[0]) > 0.1

    again, received = await publish(engine, models[0], 5)

    assert sent == again == received
    assert await probe_gap(engine, models[0]) < TOLERANCE


async def test_requests_in_flight_go_on_with_the_new_weights(engine, models):
    old, new = models
    await publish(engine, old, 6)
    prompts = [make_prompt(i, tokens=150, max_tokens=350) for i in range(4)]
    sampling = [asyncio.create_task(engine.sample(prompt)) for prompt in prompts]
    await tokens_flow(engine, at_least=30)

    await publish(engine, new, 7)
    assert await probe_gap(engine, new) < TOLERANCE  # asked while those requests run
    groups = await asyncio.gather(*sampling)

    crossed = 0
    for prompt, group in zip(prompts, groups, strict=True):
        assert len(group.completions) == 8
        for completion in group.completions:
            spans = completion.versions
            assert [s.start for s in spans] == [0, *[s.end for s in spans[:-1]]]
            assert spans[-1].end == len(completion.token_ids)
            for span in spans:
                model = {6: old, 7: new}[span.policy_version]
                assert gap(model, prompt, completion, span.start, span.end) < TOLERANCE
            crossed += [s.policy_version for s in spans] == [6, 7]
    assert crossed > 0


async def tokens_flow(engine, at_least, within_seconds=30.0):
    """Wait until some sequence has `at_least` tokens."""
    deadline = time.monotonic() + within_seconds
    states = engine._llm.output_processor.request_states
    while not any(state.detokenizer.num_output_tokens() >= at_least for state in states.values()):
        assert time.monotonic() < deadline, "no request in flight got that far"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("paused", [False, True])
async def test_aborted_requests_raise_and_the_engine_goes_on(engine, paused):
    sampling = asyncio.create_task(engine.sample(make_prompt(1, max_tokens=400)))
    await tokens_flow(engine, at_least=3)
    if paused:
        await engine.pause()

    await engine.abort_all()

    with pytest.raises(SamplingAborted, match="prompt 1 was aborted"):
        await asyncio.wait_for(sampling, 10)
    await engine.resume()
    assert len((await engine.sample(make_prompt(2))).completions) == 8


async def test_weights_are_not_received_while_sampling(engine, models):
    with pytest.raises(PacsError, match="only while paused"):
        await engine.receive_weights(8, manifest_of(models[0]), BUCKET_BYTES)


DYING_SENDER = """
import os, sys, torch
from pacs.transport.broadcast import BroadcastGroup, Deadline, Rendezvous
rendezvous = Rendezvous.open("127.0.0.1", 20)
print(rendezvous.address, flush=True)
group = BroadcastGroup.form(rendezvous, backend="gloo", rank=0, world_size=2, timeout_seconds=20)
for size in map(int, sys.argv[1:]):
    group.broadcast(torch.zeros(size, dtype=torch.uint8), Deadline(20))
sys.stdin.readline()
os._exit(1)
"""


async def test_sender_that_dies_in_the_middle_leaves_an_engine_that_takes_the_next_publication(engine, models):
    await publish(engine, models[0], 9)
    manifest = manifest_of(models[1])
    sizes = [str(bucket.nbytes) for bucket in plan_buckets(manifest, BUCKET_BYTES)]
    command = [sys.executable, "-c", DYING_SENDER, *sizes[:-2]]
    sender = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        address = (await asyncio.wait_for(sender.stdout.readline(), TIMEOUT_SECONDS)).decode().strip()
        await engine.pause()
        await engine.join_communicator(address, rank=1, world_size=2, timeout_seconds=TIMEOUT_SECONDS)
        receiving = asyncio.create_task(engine.receive_weights(10, manifest, BUCKET_BYTES))
        await asyncio.wait_for(sender.communicate(b"die\n"), TIMEOUT_SECONDS)
        with pytest.raises(PacsError, match=r"communicator broke while waiting for \d+ bytes of weights"):
            await asyncio.wait_for(receiving, TIMEOUT_SECONDS)
    finally:
        if sender.returncode is None:
            sender.kill()
            await sender.wait()

    with pytest.raises(PacsError, match="half-loaded"):
        await engine.resume()
    await engine.check_health()
    sent, received = await publish(engine, models[1], 11)
    assert sent == received
    assert await probe_gap(engine, models[1]) < TOLERANCE


async def test_sender_that_falls_silent_is_named_within_the_deadline(engine, models):
    manifest = manifest_of(models[0])
    await engine.pause()
    async with communicator(engine, timeout_seconds=2.0):
        began = time.monotonic()
        with pytest.raises(PacsError, match=r"waited 2 s for \d+ bytes of weights \(model.embed_tokens.weight to"):
            await engine.receive_weights(12, manifest, BUCKET_BYTES)
        assert time.monotonic() - began < 10

    await publish(engine, models[0], 13)
    assert await probe_gap(engine, models[0]) < TOLERANCE


async def test_publication_that_lacks_a_tensor_is_refused_with_its_name(engine, models):
    tensors = [(n, p) for n, p in models[1].named_parameters() if not n.endswith("layers.1.mlp.down_proj.weight")]
    manifest = [describe(name, parameter) for name, parameter in tensors]
    await engine.pause()
    async with communicator(engine) as group:
        sending = asyncio.to_thread(send, group, tensors, manifest, BUCKET_BYTES, TIMEOUT_SECONDS)
        _, fault = await asyncio.gather(
            sending, engine.receive_weights(14, manifest, BUCKET_BYTES), return_exceptions=True
        )
    assert isinstance(fault, PacsError)
    assert "whole model" in str(fault)
    assert "model.layers.1.mlp.down_proj.weight" in str(fault)

    await publish(engine, models[1], 15)
    assert await probe_gap(engine, models[1]) < TOLERANCE


async def test_rank_that_never_comes_is_named(engine):
    rendezvous = Rendezvous.open("127.0.0.1", 5)
    with pytest.raises(PacsError, match=r"ranks \[0, 2\] of 3 to join"):
        await engine.join_communicator(rendezvous.address, rank=1, world_size=3, timeout_seconds=1.0)


async def test_probe_of_a_paused_engine_names_what_it_waited_for(engine, monkeypatch):
    monkeypatch.setattr("services.rollout.vllm_engine._ANSWER_SECONDS", 0.5)
    await engine.pause()
    with pytest.raises(DeadlineExceeded, match="log-probs of a probe of 4 tokens"):
        await engine.probe(np.arange(10, 14, dtype=np.int32))
    monkeypatch.undo()
    await engine.resume()


async def test_probe_catches_a_stale_head_that_digests_cannot_see(tiny_models, models):
    from faulty_transfer import STALE_HEAD

    async with running_engine(
        tiny_models[0],
        weight_backend=STALE_HEAD,
        worker_extension_cls="faulty_transfer.WeightTransferWorker",
    ) as stale:
        assert await probe_gap(stale, models[0]) < TOLERANCE
        sent, received = await publish(stale, models[1], 1)
        assert sent == received
        assert await probe_gap(stale, models[1]) > 1e-2
