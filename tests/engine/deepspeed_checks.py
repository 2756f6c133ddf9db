"""The DeepSpeed engine against transformers and autograd, on a tiny random model. Run by `test_deepspeed_engine.py`."""

import json
import shutil

import numpy as np
import pytest
import torch  # noqa: TID253 - run in a process of its own
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: TID253

from pacs.errors import BadInput, ServiceFailed
from pacs.testing import make_config, make_labeled_group
from services.learner import deepspeed_engine
from services.learner.batches import make_batch
from services.learner.deepspeed_engine import DeepSpeedEngine

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]  # of DeepSpeed and transformers, not ours

RESPONSES = [[20, 31, 42, 53, 64], [75], [86, 97, 108], [119, 12, 23, 34, 45, 56, 67, 78]]


@pytest.fixture
def start(tiny_models):
    def started(**overrides):
        settings = {
            "model.path": tiny_models[0],
            "learner.microbatch_tokens": 24,  # several micro-batches
            "learner.logit_chunk_tokens": 3,
            "learner.learning_rate": 1e-3,
            "learner.max_grad_norm": 0.0,
        }
        return DeepSpeedEngine.start(make_config({**settings, **overrides}))

    return started


@pytest.fixture
def reference(tiny_models):
    return AutoModelForCausalLM.from_pretrained(str(tiny_models[0]), dtype=torch.float32)


@pytest.fixture
def batch():
    prompts = [np.array([5, 6, 7], dtype=np.int32), np.array([9, 8, 7, 6, 5, 4], dtype=np.int32)]
    labels = (1, 0, 0, 1)
    return make_batch(
        [make_labeled_group(n, labels, responses=RESPONSES, token_ids=ids) for n, ids in enumerate(prompts)]
    )


def every(batch):
    return np.arange(len(batch.label_B))


def transformers_logprobs(model, batch, row, temperature=1.0):
    """Row by row, without padding and without chunks."""
    ids = torch.from_numpy(batch.token_ids_B[row].astype(np.int64))
    logp = torch.log_softmax(model(ids[None]).logits[0].float() / temperature, dim=-1)
    start = int(batch.prompt_tokens_B[row])
    return logp[torch.arange(start - 1, len(ids) - 1), ids[start:]]


def by_token(batch, coefficient_B):
    """The coefficient of a sequence for each of its response tokens."""
    return np.repeat(np.asarray(coefficient_B, dtype=np.float64), batch.response_tokens_B)


def weights(engine):
    return {name: tensor.clone() for name, tensor in engine.named_tensors()}


def train(engine, batch, seed):
    coefficient_B = np.random.default_rng(seed).normal(size=len(batch.label_B))
    engine.backward(batch, every(batch), by_token(batch, coefficient_B))
    return engine.step()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_are_those_of_transformers(start, reference, batch, temperature):
    engine = start(**{"rollout.temperature": temperature})
    rows = np.array([6, 0, 3, 5, 1])
    got = engine.logprobs(batch, rows)
    for row, tokens in zip(rows, got.tokens_B, strict=True):
        expected = transformers_logprobs(reference, batch, row, temperature).detach().numpy()
        np.testing.assert_allclose(tokens, expected, atol=2e-5)
    assert got.sum_B == pytest.approx([t.sum(dtype=np.float64) for t in got.tokens_B])
    assert 0 < got.entropy < np.log(reference.config.vocab_size)


def test_the_probe_is_at_temperature_one_whatever_is_sampled_at(start, reference):
    ids = np.array([5, 6, 7, 20, 31], dtype=np.int32)
    logp = torch.log_softmax(reference(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].float(), dim=-1)
    expected = logp[torch.arange(4), torch.from_numpy(ids[1:].astype(np.int64))].detach().numpy()
    np.testing.assert_allclose(start(**{"rollout.temperature": 0.6}).probe(ids), expected, atol=2e-5)


def test_a_policy_that_was_not_touched_scores_nothing_however_its_rows_are_packed(start, batch):
    """The score is a sum over tokens: what two passes differ by, without any update, is noise in it."""
    engine = start()
    together = engine.logprobs(batch, every(batch)).sum_B
    alone = np.array([engine.logprobs(batch, np.array([row])).sum_B[0] for row in every(batch)])
    halves = np.concatenate([engine.logprobs(batch, rows).sum_B for rows in np.split(every(batch)[::-1], 2)])[::-1]
    assert np.abs(together - alone).max() < 1e-4
    assert np.abs(together - halves).max() < 1e-4
    np.testing.assert_array_equal(together, engine.logprobs(batch, every(batch)).sum_B)


def test_a_model_with_dropout_is_trained_without(start, tiny_models, tmp_path, batch):
    model = tmp_path / "model"
    shutil.copytree(tiny_models[0], model)
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**settings, "attention_dropout": 0.5}))
    engine = start(**{"model.path": model})
    known = engine.logprobs(batch, every(batch))
    trained = engine.backward(batch, every(batch), by_token(batch, np.ones(8)))
    for before, with_gradient in zip(known.tokens_B, trained.tokens_B, strict=True):
        np.testing.assert_array_equal(before, with_gradient)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_gradient_is_autograds_over_all_micro_batches(start, reference, batch, checkpointing, temperature):
    engine = start(**{"learner.gradient_checkpointing": checkpointing, "rollout.temperature": temperature})
    coefficient_N = np.random.default_rng(3).normal(size=int(batch.response_tokens_B.sum()))
    rows = np.array([7, 0, 2, 5, 6])
    engine.backward(batch, rows, coefficient_N)
    weight = {row: torch.from_numpy(coefficient_N[batch.places(np.array([row]))]).float() for row in rows}
    sum((weight[r] * transformers_logprobs(reference, batch, r, temperature)).sum() for r in rows).backward()
    expected = {name: p.grad for name, p in reference.named_parameters()}
    got = {name.removeprefix("policy."): p.grad for name, p in engine._engine.module.named_parameters()}
    assert set(got) == set(expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-3, atol=2e-5, msg=lambda m, name=name: f"{name}: {m}")
    norm = torch.nn.utils.get_total_norm(list(expected.values()))
    assert engine.step().grad_norm == pytest.approx(float(norm), rel=1e-4)


def test_a_step_goes_against_the_gradient_and_clears_it(start, batch):
    engine = start()
    before = weights(engine)
    engine.backward(batch, every(batch), by_token(batch, np.linspace(-1, 1, 8)))
    gradient = {name: p.grad.clone() for name, p in engine._policy.named_parameters()}
    outcome = engine.step()
    assert outcome.applied
    assert outcome.learning_rate == 1e-3
    change = {name: tensor - before[name] for name, tensor in weights(engine).items()}
    assert sum(float((change[name] * gradient[name]).sum()) for name in change) < 0
    largest = max(float(c.abs().max()) for c in change.values())
    assert largest == pytest.approx(1e-3, rel=0.05), "AdamW's first step is the learning rate"
    after = weights(engine)
    assert engine.step().grad_norm == 0.0
    assert all(torch.equal(tensor, after[name]) for name, tensor in weights(engine).items()), "nothing was left over"


def test_the_correct_sample_becomes_likelier(start, batch):
    engine, before = start(), None
    before = engine.logprobs(batch, every(batch)).sum_B
    for _ in range(3):
        engine.backward(batch, every(batch), by_token(batch, np.where(batch.label_B == 1, -1.0, 1.0)))
        engine.step()
    moved = engine.logprobs(batch, every(batch)).sum_B - before
    assert moved[batch.label_B == 1].mean() > moved[batch.label_B == 0].mean()


def test_a_gradient_that_is_not_finite_is_skipped_and_leaves_no_trace(start, batch):
    spoiled, sound = start(), start()
    before = weights(spoiled)
    spoiled.backward(batch, every(batch), by_token(batch, np.full(8, np.inf)))
    outcome = spoiled.step()
    assert not outcome.applied
    assert not np.isfinite(outcome.grad_norm)
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(spoiled).items())
    assert train(spoiled, batch, 1) == train(sound, batch, 1)
    assert all(torch.equal(tensor, weights(sound)[name]) for name, tensor in weights(spoiled).items())


def test_a_discarded_gradient_leaves_no_trace(start, batch):
    discarding, sound = start(), start()
    discarding.backward(batch, every(batch), by_token(batch, np.full(8, 100.0)))
    discarding.discard_gradient()
    assert train(discarding, batch, 1) == train(sound, batch, 1)
    assert all(torch.equal(tensor, weights(sound)[name]) for name, tensor in weights(discarding).items())


def test_the_norm_is_clipped_where_a_limit_is_set(start, batch):
    free, clipped = start(), start(**{"learner.max_grad_norm": 1e-9})
    assert train(free, batch, 1).grad_norm == pytest.approx(train(clipped, batch, 1).grad_norm)
    before = weights(start())
    moved = [sum(float((t - before[n]).abs().sum()) for n, t in weights(e).items()) for e in (free, clipped)]
    assert moved[1] < moved[0] / 2, "so small a gradient drowns in AdamW's epsilon"


def test_the_learning_rate_warms_up(start, batch):
    engine = start(**{"learner.warmup_steps": 4})
    rates = [train(engine, batch, seed).learning_rate for seed in range(6)]
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3, 1e-3])


@pytest.mark.parametrize("offload", [True, False])
def test_the_reference_hears_where_it_is_to_be_kept(start, monkeypatch, offload):
    told = []
    monkeypatch.setattr(deepspeed_engine, "ReferenceSnapshot", lambda _, **settings: told.append(settings["offload"]))
    start(**{"algorithm.reference": "manual", "reset.offload": offload})
    assert told == [offload]


def test_a_resumed_engine_goes_on_bit_by_bit(start, batch, tmp_path):
    warm = {"learner.warmup_steps": 3, "learner.weight_decay": 0.1}
    straight = start(**warm)
    first = [train(straight, batch, seed) for seed in range(2)]
    broken = start(**warm)
    train(broken, batch, 0)
    broken.save(tmp_path)
    train(broken, batch, 7)  # what was not saved is gone
    resumed = start(**warm)
    resumed.load(tmp_path)
    assert train(resumed, batch, 1) == first[1]
    expected = weights(straight)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(resumed).items())


def test_no_checkpoint_is_said_in_one_sentence(start, tmp_path):
    with pytest.raises(BadInput, match="finds no checkpoint"):
        start().load(tmp_path)


def test_values_start_at_zero_and_only_ppo_has_them(start, batch):
    engine = start(**{"algorithm.name": "ppo"})
    got = engine.logprobs(batch, np.array([6, 1]))
    assert [values.tolist() for values in got.values_B] == [[0.0] * 3, [0.0]]
    plain = start()
    assert plain.logprobs(batch, every(batch)).values_B == ()
    coefficient_N = np.ones(int(batch.response_tokens_B.sum()))
    with pytest.raises(ServiceFailed, match=r"only where algorithm\.name is ppo"):
        plain.backward(batch, every(batch), coefficient_N, coefficient_N)


@pytest.mark.parametrize("names", [("ppo", "pacs"), ("pacs", "ppo")])
def test_a_checkpoint_with_a_value_head_is_for_ppo_and_one_without_is_not(start, tmp_path, names):
    writer, reader = (start(**{"algorithm.name": name}) for name in names)
    writer.save(tmp_path)
    with pytest.raises(BadInput, match=r"'value_head': True.*set .*algorithm\.name back"):
        reader.load(tmp_path)


def test_an_export_is_the_policy_in_hugging_face_format(start, batch, tmp_path):
    engine = start()
    train(engine, batch, 1)
    engine.export(tmp_path)
    exported = AutoModelForCausalLM.from_pretrained(str(tmp_path), dtype=torch.float32)
    for name, tensor in weights(engine).items():
        torch.testing.assert_close(dict(exported.named_parameters())[name].data, tensor, rtol=0, atol=0)
    assert AutoTokenizer.from_pretrained(str(tmp_path))("ab")["input_ids"]
    ids = batch.token_ids_B[0]
    logp = torch.log_softmax(exported(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].float(), -1)
    expected = logp[torch.arange(len(ids) - 1), torch.from_numpy(ids[1:].astype(np.int64))].detach().numpy()
    np.testing.assert_allclose(engine.probe(ids), expected, atol=2e-5)


def test_named_tensors_are_a_checkpoints_names_with_tied_ones_once(start, reference):
    names = [name for name, _ in start().named_tensors()]
    assert names == [name for name, _ in reference.named_parameters()]
    assert "lm_head.weight" not in names, "tied to the embedding"


def test_bfloat16_learns_too(start, batch):
    engine = start(**{"model.dtype": "bfloat16", "learner.learning_rate": 1e-2})
    before = weights(engine)
    assert {tensor.dtype for tensor in before.values()} == {torch.bfloat16}
    outcome = train(engine, batch, 1)
    assert outcome.applied
    assert outcome.grad_norm > 0
    assert any(not torch.equal(tensor, before[name]) for name, tensor in weights(engine).items())
    spoiled = weights(engine)
    engine.backward(batch, every(batch), by_token(batch, np.full(8, np.inf)))
    assert not engine.step().applied
    assert all(torch.equal(tensor, spoiled[name]) for name, tensor in weights(engine).items())


def test_a_folder_without_a_model_is_one_sentence(start, tmp_path):
    with pytest.raises(BadInput, match=r"model\.path must hold a causal language model"):
        start(**{"model.path": tmp_path})
