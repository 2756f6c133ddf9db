from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import ValidationError

from pacs.errors import BadInput
from pacs.runtime.config import AlgorithmSection
from pacs.runtime.config_file import load_config, write_config
from pacs.testing import make_config

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*.yaml"))


@pytest.fixture
def write(tmp_path):
    """Writes the small valid configuration with changes laid over it; returns the file."""

    def written(**sections):
        tree = yaml.safe_load(yaml.safe_dump(make_config().model_dump(mode="json")))
        for section, values in sections.items():
            tree[section] = {**tree.get(section, {}), **values} if isinstance(values, dict) else values
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(tree))
        return path

    return written


def complaint(path, overrides=()):
    with pytest.raises(BadInput) as caught:
        load_config(path, overrides)
    text = str(caught.value)
    assert "\n" not in text, "one sentence"
    return text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_shipped_configuration_is_valid(path):
    assert load_config(path).run.name


def test_there_are_shipped_configurations():
    assert len(EXAMPLES) >= 2


def test_unknown_keys_are_named(write):
    assert "unknown setting rollout.group_sise=8" in complaint(write(rollout={"group_sise": 8}))
    assert "unknown setting rolout=" in complaint(write(rolout={"group_size": 8}))


def test_missing_keys_are_named(write):
    path = write()
    tree = yaml.safe_load(path.read_text())
    del tree["run"]["max_steps"]
    path.write_text(yaml.safe_dump(tree))
    assert "run.max_steps is required" in complaint(path)


def test_values_out_of_range_are_named_with_what_was_given(write):
    assert "learner.learning_rate" in (text := complaint(write(learner={"learning_rate": -1})))
    assert "-1" in text
    assert "model.dtype" in complaint(write(model={"dtype": "float16"}))


def test_more_than_one_complaint_is_counted(write):
    assert "(and 1 more)" in complaint(write(run={"seed": -1}, rollout={"temperature": 0}))


CONTRADICTIONS = {
    ("data.source", "data.path"): {"data": {"path": None}},
    ("data.source", "data.family"): {"data": {"family": "chain_sum"}},
    ("data.source=reasoning_gym", "data.family"): {"data": {"source": "reasoning_gym", "path": None}},
    ("data.source=reasoning_gym", "data.path"): {"data": {"source": "reasoning_gym", "family": "chain_sum"}},
    ("data.heldout_path", "data.heldout_rows"): {"data": {"heldout_path": "x.jsonl", "heldout_rows": 3}},
    ("rollout.group_size", "algorithm.score"): {"rollout": {"group_size": 1}},
    ("data.max_prompt_tokens", "model.max_tokens"): {"model": {"max_tokens": 20}},
    ("rollout.max_sequences", "rollout.group_size"): {"rollout": {"max_sequences": 1}},
    ("learner.minibatch_groups", "run.groups_per_step"): {
        "run": {"groups_per_step": 4},
        "learner": {"minibatch_groups": 3},
    },
    ("control.grpc_port", "control.http_port"): {"control": {"http_port": 9000, "grpc_port": 9000}},
    ("redis.port", "learner.metrics_port"): {"redis": {"port": 9000}, "learner": {"metrics_port": 9000}},
    ("data.template", "{prompt}"): {"data": {"template": "no place for it"}},
    ("algorithm.gradient=full", "algorithm.name=grpo"): {"algorithm": {"name": "grpo", "gradient": "full"}},
    ("algorithm.beta=2.0", "algorithm.name=rloo"): {"algorithm": {"name": "rloo", "beta": 2}},
    ("algorithm.label_smoothing", "algorithm.name=dr_grpo"): {"algorithm": {"name": "dr_grpo", "label_smoothing": 0.1}},
    ("algorithm.clip_high=0.3", "algorithm.name=pacs"): {"algorithm": {"clip_high": 0.3}},
    ("algorithm.clip_low=0.1", "set algorithm.name to a baseline's name"): {"algorithm": {"clip_low": 0.1}},
    ("algorithm.trace_decay=1.0", "algorithm.name=pacs", "to ppo"): {"algorithm": {"trace_decay": 1}},
    ("algorithm.value_clip=0.0", "algorithm.name=grpo", "to ppo"): {"algorithm": {"name": "grpo", "value_clip": 0}},
    ("algorithm.beta=2.0", "algorithm.name=ppo", "to pacs"): {"algorithm": {"name": "ppo", "beta": 2}},
    ("algorithm.score=grpo", "algorithm.reference=batch"): {"algorithm": {"score": "grpo"}},
    ("algorithm.score=grpo", "learner.max_grad_norm=0"): {
        "algorithm": {"score": "grpo", "reference": "manual"},
        "learner": {"max_grad_norm": 0},
    },
    ("algorithm.reference=manual", "algorithm.log_ratio=mean_logprob"): {
        "algorithm": {"reference": "manual", "log_ratio": "mean_logprob"}
    },
    ("algorithm.reference=interval", "reset.every_steps=0"): {"algorithm": {"reference": "interval"}},
    ("algorithm.reference=batch", "reset.every_steps=5"): {"reset": {"every_steps": 5}},
    ("algorithm.reference=stall", "evaluation.every_steps=0"): {"algorithm": {"reference": "stall"}},
    ("algorithm.reference=drift", "algorithm.name=grpo"): {"algorithm": {"name": "grpo", "reference": "drift"}},
    ("rollout.group_size", "algorithm.name=grpo"): {"algorithm": {"name": "grpo"}, "rollout": {"group_size": 1}},
    ("rollout.group_size", "algorithm.uniform_groups=drop"): {
        "algorithm": {"name": "reinforce", "uniform_groups": "drop"},
        "rollout": {"group_size": 1},
    },
    ("algorithm.importance_cap must be 0", "algorithm.importance_cap=0.5"): {"algorithm": {"importance_cap": 0.5}},
}


@pytest.mark.parametrize(("keys", "changes"), CONTRADICTIONS.items(), ids=lambda v: " ".join(v))
def test_contradictions_name_both_keys(write, keys, changes):
    text = complaint(write(**changes))
    assert all(key in text for key in keys), text


def test_one_completion_a_prompt_is_allowed_where_the_score_needs_no_others(write):
    config = load_config(write(rollout={"group_size": 1}, algorithm={"score": "naive"}))
    assert config.rollout.group_size == 1
    for name in ("reinforce", "ppo"):
        config = load_config(write(rollout={"group_size": 1}, algorithm={"name": name}))
        assert config.rollout.group_size == 1


def test_the_grpo_score_is_allowed_where_log_ratios_differ_from_the_start(write):
    config = load_config(write(algorithm={"score": "grpo", "log_ratio": "mean_logprob"}))
    assert config.algorithm.score == "grpo"


def test_settings_without_effect_may_stand_at_their_defaults(write):
    """As they do in the complete configuration that a run writes."""
    config = load_config(write(algorithm={"name": "grpo", "beta": 1.0, "gradient": "pathwise"}))
    assert config.algorithm.clip_high == 0.2


def test_every_objective_that_can_be_named_exists():
    from pacs.algo import BASELINES

    assert get_args(AlgorithmSection.model_fields["name"].annotation) == ("pacs", *BASELINES, "ppo")


def test_a_redis_of_ones_own_needs_no_port(write):
    config = load_config(write(redis={"url": "redis://there", "port": 8400}, control={"http_port": 8400}))
    assert "redis.port" not in config.ports


def test_set_lies_over_the_file(write):
    config = load_config(
        write(), ["run.max_steps=7", "data.family_options.digits=3", "model.dtype=bfloat16", "data.heldout_path=a=b"]
    )
    assert (config.run.max_steps, config.model.dtype) == (7, "bfloat16")
    assert config.data.family_options == {"digits": 3}
    assert config.data.heldout_path == Path("a=b")


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("run.max_steps", "section.key=value"),
        ("=7", "section.key=value"),
        ("run.max_steps.deep=1", "max_steps"),
        ("run.max_step=1", "run.max_step"),
        ("run.max_steps=many", "run.max_steps"),
        ("run.name=[", "run.name=["),
    ],
)
def test_a_wrong_set_is_one_sentence(write, override, named):
    assert named in complaint(write(), [override])


@pytest.mark.parametrize(
    ("text", "named"), [("run: [", "must be YAML"), ("- a\n- b", "must hold sections"), ("", "must hold sections")]
)
def test_a_file_that_is_no_configuration_is_one_sentence(tmp_path, text, named):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    assert named in complaint(path)


def test_no_file_is_one_sentence(tmp_path):
    assert "does not exist" in complaint(tmp_path / "none.yaml")


def test_nothing_can_be_changed_afterwards():
    config = make_config()
    with pytest.raises(ValidationError):
        config.run = None
    with pytest.raises(ValidationError):
        config.run.seed = 3


def test_what_is_written_reads_back_the_same(tmp_path):
    config = make_config({"data.heldout_rows": 2, "learner.adam_betas": (0.5, 0.9)})
    write_config(config, tmp_path / "full.yaml")
    assert load_config(tmp_path / "full.yaml") == config


def test_capacity_and_tolerance_follow_from_the_settings():
    assert make_config({"run.max_staleness": 0, "run.groups_per_step": 5}).capacity == 5
    assert make_config({"run.max_staleness": 2, "run.groups_per_step": 5}).capacity == 15
    assert make_config().logprob_tolerance == 1e-4
    assert 1e-4 < make_config({"model.dtype": "bfloat16"}).logprob_tolerance < 1
    assert make_config({"publication.max_logprob_gap": 0.7}).logprob_tolerance == 0.7


@pytest.mark.parametrize(
    ("lora", "said"),
    [
        ({"alpha": 16}, "model.lora.alpha=16.0 has no effect with model.lora.rank=0"),
        ({"target_modules": ["q_proj"]}, "has no effect with model.lora.rank=0"),
        ({"rank": 8, "target_modules": ["q_proj", "lm_head"]}, "got ['lm_head']"),
        ({"rank": 8, "target_modules": ["embed_tokens"]}, "got ['embed_tokens']"),
        ({"rank": 8, "target_modules": ["layers.0.q_proj"]}, "got ['layers.0.q_proj']"),
        ({"rank": 8, "dropout": 0.1}, "unknown setting model.lora.dropout=0.1"),
        ({"rank": -1}, "model.lora.rank"),
    ],
)
def test_adapters_that_cannot_be_meant_are_refused(write, lora, said):
    assert said in complaint(write(model={"lora": lora}))


def test_adapters_are_off_by_default_and_survive_being_written_in_full(write, tmp_path):
    config = load_config(write())
    assert config.model.lora.rank == 0
    for given in (config, load_config(write(model={"lora": {"rank": 8, "target_modules": ["q_proj", "v_proj"]}}))):
        write_config(given, tmp_path / "full.yaml")
        assert load_config(tmp_path / "full.yaml") == given
