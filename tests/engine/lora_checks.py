"""Adapters in the DeepSpeed engine against transformers, peft and autograd. Run by `test_deepspeed_engine.py`."""

import json

import numpy as np
import pytest
import torch  # noqa: TID253 - run in a process of its own
from deepspeed_checks import by_token, every, train, transformers_logprobs, weights
from transformers import AutoModelForCausalLM  # noqa: TID253

from pacs.errors import BadInput
from pacs.testing import make_config, make_labeled_group
from services.learner.batches import make_batch
from services.learner.deepspeed_engine import DeepSpeedEngine

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]  # of DeepSpeed, peft and transformers, not ours

RANK, ALPHA = 4, 8.0
SCALE = ALPHA / RANK
LINEAR = {"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}
STAGES = (0, 1, 2, 3)


@pytest.fixture
def start(tiny_models):
    def started(lora=None, **overrides):
        settings = {
            "model.path": tiny_models[0],
            "model.lora": {"rank": RANK, "alpha": ALPHA, **(lora or {})},
            "learner.microbatch_tokens": 24,
            "learner.logit_chunk_tokens": 3,
            "learner.learning_rate": 1e-2,
            "learner.max_grad_norm": 0.0,
        }
        return DeepSpeedEngine.start(make_config({**settings, **overrides}))

    return started


@pytest.fixture
def reference(tiny_models):
    return AutoModelForCausalLM.from_pretrained(str(tiny_models[0]), dtype=torch.float32)


@pytest.fixture
def batch():
    responses = [[20, 31, 42, 53, 64], [75], [86, 97, 108], [119, 12, 23, 34, 45, 56, 67, 78]]
    prompts = [np.array([5, 6, 7], dtype=np.int32), np.array([9, 8, 7, 6, 5, 4], dtype=np.int32)]
    return make_batch(
        [make_labeled_group(n, (1, 0, 0, 1), responses=responses, token_ids=ids) for n, ids in enumerate(prompts)]
    )


def trained(engine, batch, steps=3):
    for seed in range(steps):
        train(engine, batch, seed)
    return engine


def expected_logprobs(model, batch):
    return [transformers_logprobs(model, batch, row).detach().numpy() for row in every(batch)]


def gap(engine, model, batch):
    pairs = zip(engine.logprobs(batch, every(batch)).tokens_B, expected_logprobs(model, batch), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


@pytest.mark.parametrize("stage", STAGES)
def test_only_adapters_are_trained_published_and_counted(start, batch, stage):
    engine = start(**{"learner.zero_stage": stage})
    before = {name: getattr(p, "ds_tensor", p).detach().clone() for name, p in engine._policy.named_parameters()}
    assert trained(engine, batch, 1)._schedule_steps == 1
    moved = {n for n, p in engine._policy.named_parameters() if not torch.equal(getattr(p, "ds_tensor", p), before[n])}
    assert len(moved) == 2 * 7, "B of every layer; A has no gradient while B is 0"
    assert all(".lora_B." in name for name in moved)
    trained(engine, batch, 1)
    moved = {n for n, p in engine._policy.named_parameters() if not torch.equal(getattr(p, "ds_tensor", p), before[n])}
    assert moved == {n for n in before if ".lora_" in n}
    names = [meta.name for meta in engine.manifest()]
    layers = {"mlp": ("gate_proj", "up_proj", "down_proj"), "self_attn": ("q_proj", "k_proj", "v_proj", "o_proj")}
    assert sorted(names) == sorted(
        f"model.layers.{n}.{part}.{layer}.lora_{side}.weight"
        for n in range(2)
        for part, inner in layers.items()
        for layer in inner
        for side in "AB"
    )
    assert {meta.name: meta.shape for meta in engine.manifest()} == {
        n: tuple(t.shape) for n, t in weights(engine).items()
    }
    optimizer = getattr(engine._engine.optimizer, "optimizer", engine._engine.optimizer)
    optimized = sum(state["exp_avg"].numel() for state in optimizer.state.values())
    published = sum(tensor.numel() for tensor in weights(engine).values())
    assert published <= optimized <= published + 2 * len(names), "but for padding"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_adapters_that_were_not_touched_leave_the_base_as_it_is(start, tiny_models, batch, dtype):
    engine, plain = start(**{"model.dtype": dtype}), start(lora={"rank": 0, "alpha": 32.0}, **{"model.dtype": dtype})
    for mine, base in zip(*(e.logprobs(batch, every(batch)).tokens_B for e in (engine, plain)), strict=True):
        np.testing.assert_array_equal(mine, base)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_gradient_is_the_chain_rules(start, reference, batch, checkpointing):
    """dL/dB = scale · dL/dW · Aᵀ and dL/dA = scale · Bᵀ · dL/dW, with dL/dW from the merged model."""
    engine = trained(start(**{"learner.gradient_checkpointing": checkpointing}), batch)
    pairs = weights(engine)
    merge_by_hand(reference, pairs)
    coefficient_N = np.random.default_rng(3).normal(size=int(batch.response_tokens_B.sum()))
    engine.backward(batch, every(batch), coefficient_N)
    weight = {row: torch.from_numpy(coefficient_N[batch.places(np.array([row]))]).float() for row in every(batch)}
    sum((weight[r] * transformers_logprobs(reference, batch, r)).sum() for r in every(batch)).backward()
    of_weights = {name: p.grad for name, p in reference.named_parameters()}
    checked = 0
    for name, p in engine._policy.named_parameters():
        if not p.requires_grad:
            assert p.grad is None
            continue
        a_name = name.replace("lora_B", "lora_A").replace(".default", "")
        a, b = pairs[a_name], pairs[a_name.replace("lora_A", "lora_B")]
        of_weight = of_weights[a_name.replace(".lora_A", "")]
        expected = SCALE * (of_weight @ a.T if ".lora_B." in name else b.T @ of_weight)
        torch.testing.assert_close(p.grad, expected, rtol=2e-3, atol=5e-4, msg=lambda m, name=name: f"{name}: {m}")
        checked += 1
    assert checked == len(pairs)


def merge_by_hand(model, pairs):
    for name, p in model.named_parameters():
        module = name.removesuffix(".weight")
        if f"{module}.lora_A.weight" in pairs:
            p.data += SCALE * pairs[f"{module}.lora_B.weight"] @ pairs[f"{module}.lora_A.weight"]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_checkpoint_has_no_base_weights_and_continues_bit_for_bit(start, batch, tmp_path, stage, dtype):
    settings = {"learner.zero_stage": stage, "model.dtype": dtype, "learner.warmup_steps": 3}
    engine = trained(start(**settings), batch, 2)
    engine.save(tmp_path)
    saved = weights(engine)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.pt")}
    base = {n: p for n, p in engine._policy.state_dict(keep_vars=True).items() if not getattr(p, "requires_grad", True)}
    assert "lm_head.weight" in base, "tied: a name of its own in the state, and none among the parameters"
    if stage < 3:
        for name, p in base.items():
            raw = p.detach().contiguous().view(torch.uint8).numpy().tobytes()
            assert not any(raw in content for content in files.values()), name
    adapters = sum(tensor.numel() for tensor in saved.values())
    assert sum(map(len, files.values())) < 4 * 4 * adapters + 150_000, "weights, masters, two moments, and headers"
    trained(engine, batch, 2)
    resumed = start(**settings)
    for continued in (resumed, engine):
        continued.load(tmp_path)
        assert all(torch.equal(tensor, saved[name]) for name, tensor in weights(continued).items())
    outcomes = [[train(e, batch, seed) for seed in (5, 6)] for e in (resumed, engine)]
    assert outcomes[0] == outcomes[1]
    expected = weights(engine)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(resumed).items())


def test_other_adapters_do_not_continue_a_checkpoint(start, batch, tiny_models, tmp_path):
    trained(start(), batch, 1).save(tmp_path)
    others = [{"lora": {"rank": 2}}, {"lora": {"alpha": 4.0}}, {"lora": {"target_modules": ["q_proj"]}}]
    others += [{"lora": {"rank": 0, "alpha": 32.0}}, {"model.path": tiny_models[1]}]
    for other in others:
        with pytest.raises(BadInput, match="a checkpoint of adapters is continued with the same adapters"):
            start(**other).load(tmp_path)
    start().load(tmp_path)


def test_a_checkpoint_of_all_weights_does_not_continue_with_adapters(start, batch, tmp_path):
    trained(start(lora={"rank": 0, "alpha": 32.0}), batch, 1).save(tmp_path)
    assert "lora" not in json.loads((tmp_path / "engine.json").read_text()), "as checkpoints ever were"
    with pytest.raises(BadInput, match=r"has off; set model\.lora"):
        start().load(tmp_path)


def test_an_export_is_a_model_of_its_own_and_the_adapters_for_peft(start, batch, tiny_models, tmp_path):
    from peft import PeftModel

    engine = trained(start(), batch)
    engine.export(tmp_path)
    merged = AutoModelForCausalLM.from_pretrained(str(tmp_path), dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(str(tiny_models[0]), dtype=torch.float32)
    assert set(merged.state_dict()) == set(base.state_dict())
    assert gap(engine, base, batch) > 0.1, "training must have left traces"
    assert gap(engine, merged, batch) < 1e-4
    adapted = PeftModel.from_pretrained(base, str(tmp_path / "adapter"))
    assert gap(engine, adapted, batch) < 1e-4
    assert (tmp_path / "tokenizer.json").is_file()
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], set(config["target_modules"])) == (RANK, ALPHA, LINEAR)


def test_a_run_can_start_from_an_export(start, batch, tmp_path):
    engine = trained(start(), batch)
    engine.export(tmp_path)
    again = start(**{"model.path": tmp_path})
    pairs = zip(*(e.logprobs(batch, every(batch)).tokens_B for e in (engine, again)), strict=True)
    assert max(float(np.abs(a - b).max()) for a, b in pairs) < 1e-4


def test_some_layers_can_be_chosen(start, batch, tmp_path):
    engine = trained(start(lora={"target_modules": ["v_proj", "q_proj"]}), batch)
    assert {meta.name.split(".")[-3] for meta in engine.manifest()} == {"q_proj", "v_proj"}
    engine.export(tmp_path)
    assert gap(engine, AutoModelForCausalLM.from_pretrained(str(tmp_path), dtype=torch.float32), batch) < 1e-4


def test_layers_that_are_not_there_are_refused_with_those_that_are(start):
    with pytest.raises(BadInput, match=r"linear layers \['down_proj', .*\], got \['query'\]"):
        start(lora={"target_modules": ["q_proj", "query"]})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_merged_and_separate_differ_by_less_than_a_publication_allows(start, batch, tmp_path, dtype):
    """The rollout samples from merged weights, the learner computes base and adapters apart."""
    engine = trained(start(**{"model.dtype": dtype}), batch, 8)
    engine.export(tmp_path)
    merged = start(lora={"rank": 0, "alpha": 32.0}, **{"model.path": tmp_path, "model.dtype": dtype})
    pairs = zip(*(e.logprobs(batch, every(batch)).tokens_B for e in (engine, merged)), strict=True)
    assert max(float(np.abs(a - b).max()) for a, b in pairs) < make_config({"model.dtype": dtype}).logprob_tolerance


def test_a_gradient_that_is_not_finite_leaves_the_adapters_alone(start, batch):
    engine = trained(start(), batch, 1)
    before = weights(engine)
    engine.backward(batch, every(batch), by_token(batch, np.full(8, np.inf)))
    assert not engine.step().applied
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(engine).items())
