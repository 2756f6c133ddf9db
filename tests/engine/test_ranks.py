"""The training engine on 1, 2 and 3 ranks at every ZeRO stage, over gloo: exact, repeatable, and dead when a rank dies.

Each world runs its scenarios in one go (`ranks_worker.py`): what takes time is starting processes and engines.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
SMALL = {"group_size": 4, "groups": 2}  # two groups over several micro-batches, and over the ranks
LONGEST_ROW = 32  # tokens, with its prompt and its padding
STAGES = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def model(tiny_models):
    return tiny_models[0]


@pytest.fixture(scope="module")
def untied_model(model, tmp_path_factory):
    """The same architecture with a head of its own."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    path = tmp_path_factory.mktemp("untied")
    torch.manual_seed(3)
    Qwen3ForCausalLM(Qwen3Config.from_pretrained(model, tie_word_embeddings=False)).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def alone(run_world):
    return run_world("alone", 1, {
        "first-0": {"scenario": "first_step", "stage": 0, "group_size": 2, "groups": 8},
        "first-1": {"scenario": "first_step", "stage": 1, "group_size": 8, "groups": 4, "max_grad_norm": 1.0},
        "first-2": {"scenario": "first_step", "stage": 2, "group_size": 64, "groups": 2},
        "first-3": {"scenario": "first_step", "stage": 3, "group_size": 8, "groups": 4},
        "continuation-0": {"scenario": "continuation", "stage": 0, **SMALL},
        "not-finite-0": {"scenario": "not_finite", "stage": 0, **SMALL},
        "reset-0": {"scenario": "reset", "stage": 0, **SMALL},
        **{f"reference-{stage}": {"scenario": "reference", "stage": stage, **SMALL} for stage in (0, 3)},
        "values-0": {"scenario": "values", "stage": 0, **SMALL},
    })  # fmt: skip


@pytest.fixture(scope="module")
def pair(run_world, untied_model):
    first = {"scenario": "first_step"}
    untied = {"model": str(untied_model), "gradient_checkpointing": True}
    return run_world("pair", 2, {
        "first-0": {**first, "stage": 0, "group_size": 8, "groups": 4},
        "first-1": {**first, "stage": 1, "group_size": 64, "groups": 2},
        "first-2": {**first, "stage": 2, "group_size": 2, "groups": 8, "max_grad_norm": 1.0},
        "first-3": {**first, "stage": 3, "group_size": 64, "groups": 2, "max_grad_norm": 1.0},
        "first-3-untied": {**first, "stage": 3, "group_size": 8, "groups": 4, **untied},
        **{f"continuation-{stage}": {"scenario": "continuation", "stage": stage, **SMALL} for stage in STAGES},
        **{f"not-finite-{stage}": {"scenario": "not_finite", "stage": stage, **SMALL} for stage in STAGES},
        **{f"reset-{stage}": {"scenario": "reset", "stage": stage, **SMALL} for stage in STAGES},
        **{f"reference-{stage}": {"scenario": "reference", "stage": stage, **SMALL} for stage in STAGES},
        **{f"rewarmed-{stage}": {"scenario": "rewarmed", "stage": stage, **SMALL} for stage in (0, 2, 3)},
        **{f"values-{stage}": {"scenario": "values", "stage": stage, **SMALL} for stage in STAGES},
    })  # fmt: skip


@pytest.fixture(scope="module")
def trio(run_world, pair):
    first, other = {"scenario": "first_step"}, {"scenario": "other_world", **SMALL}
    idle = {"group_size": 2, "groups": 1}  # two sequences for three ranks
    return run_world("trio", 3, {
        "first-0": {**first, "stage": 0, "group_size": 64, "groups": 2, "max_grad_norm": 1.0},
        "first-1": {**first, "stage": 1, **idle},
        "first-2": {**first, "stage": 2, "group_size": 8, "groups": 4},
        "first-3": {**first, "stage": 3, **idle},
        "not-finite-3": {"scenario": "not_finite", "stage": 3, **SMALL},
        "reset-3": {"scenario": "reset", "stage": 3, **SMALL},
        **{f"reference-{stage}": {"scenario": "reference", "stage": stage, **SMALL} for stage in (0, 3)},
        "other-0": {**other, "stage": 0, "folder": pair["continuation-0"]["folder"]},
        "other-2": {**other, "stage": 2, "folder": pair["continuation-2"]["folder"]},
        "reference-of-pair": _reference_of(pair),
    })  # fmt: skip


@pytest.fixture(scope="module")
def single(run_world, pair):
    """One rank again, after the pair."""
    return run_world("single", 1, {"reference-of-pair": _reference_of(pair)})


def _reference_of(pair):
    written = pair["reference-0"]["folder"]
    return {"scenario": "others_reference", "stage": 0, **SMALL, "written": written}


@pytest.fixture(scope="module")
def pair_bfloat16(run_world):
    bfloat16 = {"dtype": "bfloat16", **SMALL}
    return run_world("bfloat16", 2, {
        "first-0": {**bfloat16, "scenario": "first_step", "stage": 0, "group_size": 8},
        "first-3": {**bfloat16, "scenario": "first_step", "stage": 3, "group_size": 8},
        **{f"continuation-{stage}": {**bfloat16, "scenario": "continuation", "stage": stage} for stage in (0, 2)},
        **{f"not-finite-{stage}": {**bfloat16, "scenario": "not_finite", "stage": stage} for stage in (0, 2)},
        **{f"reset-{stage}": {**bfloat16, "scenario": "reset", "stage": stage} for stage in (0, 3)},
        **{f"reference-{stage}": {**bfloat16, "scenario": "reference", "stage": stage} for stage in (0, 2, 3)},
        **{f"values-{stage}": {**bfloat16, "scenario": "values", "stage": stage} for stage in (0, 3)},
    }, persistent_elements=100_000)  # fmt: skip


@pytest.fixture(scope="module")
def pair_of_adapters(run_world):
    lora = {"lora": True, "gradient_checkpointing": True}
    return run_world("adapters", 2, {
        **{
            f"{scenario}-{stage}": {"scenario": name, "stage": stage, **lora, **SMALL}
            for scenario, name in ADAPTER_SCENARIOS.items()
            for stage in STAGES
        },
        **{
            f"{scenario}-bfloat16-{stage}": {
                "scenario": name, "stage": stage, "dtype": "bfloat16", **lora, **SMALL
            }
            for scenario, name in ADAPTER_SCENARIOS.items()
            for stage in (0, 3)
            if scenario != "first"
        },
        **{f"values-{stage}": {"scenario": "values", "stage": stage, **lora, **SMALL} for stage in (0, 3)},
    })  # fmt: skip


@pytest.fixture(scope="module")
def pair_of_whole_adapters(run_world):
    """With DeepSpeed's threshold: what is as small as adapters stays whole on every rank beside the parts."""
    lora = {"lora": True, "gradient_checkpointing": True, "stage": 3, **SMALL}
    names = ("continuation", "reset", "reference")
    return run_world("whole-adapters", 2, {
        **{f"{name}-float32": {"scenario": name, **lora} for name in names},
        **{f"{name}-bfloat16": {"scenario": name, "dtype": "bfloat16", **lora} for name in names},
    }, persistent_elements=100_000)  # fmt: skip


ADAPTERS, WHOLE_ADAPTERS = "pair_of_adapters", "pair_of_whole_adapters"
ADAPTER_SCENARIOS = {
    "first": "first_step_of_adapters",
    "continuation": "continuation",
    "reset": "reset",
    "reference": "reference",
}
ADAPTER_KEYS = [*(str(stage) for stage in STAGES), "bfloat16-0", "bfloat16-3"]
DTYPES = ("float32", "bfloat16")
WORLDS = ("alone", "pair", "trio")
FIRST_STEPS = [
    *((world, f"first-{stage}") for world in WORLDS for stage in STAGES),
    ("pair", "first-3-untied"),
]
CONTINUATIONS = [("alone", "continuation-0"), *(("pair", f"continuation-{stage}") for stage in STAGES)]
NOT_FINITE = [
    ("alone", "not-finite-0"),
    *(("pair", f"not-finite-{stage}") for stage in STAGES),
    ("trio", "not-finite-3"),
]
RESETS = [
    ("alone", "reset-0"),
    *(("pair", f"reset-{stage}") for stage in STAGES),
    ("trio", "reset-3"),
    *((WHOLE_ADAPTERS, f"reset-{dtype}") for dtype in DTYPES),
]
BFLOAT16 = "pair_bfloat16"
REFERENCES = [
    *(("alone", f"reference-{stage}") for stage in (0, 3)),
    *(("pair", f"reference-{stage}") for stage in STAGES),
    *(("trio", f"reference-{stage}") for stage in (0, 3)),
    *((BFLOAT16, f"reference-{stage}") for stage in (0, 2, 3)),
    *((ADAPTERS, f"reference-{key}") for key in ADAPTER_KEYS),
    *((WHOLE_ADAPTERS, f"reference-{dtype}") for dtype in DTYPES),
]


VALUES = [("alone", "values-0"), *(("pair", f"values-{stage}") for stage in STAGES)]
BFLOAT16_VALUES = [(BFLOAT16, f"values-{stage}") for stage in (0, 3)]
ADAPTER_VALUES = [(ADAPTERS, f"values-{stage}") for stage in (0, 3)]


@pytest.fixture
def outcome(request):
    world, scenario = request.param
    return request.getfixturevalue(world)[scenario]


def each(cases):
    return pytest.mark.parametrize("outcome", cases, indirect=True, ids=["-".join(case) for case in cases])


@each(FIRST_STEPS)
def test_first_step_equals_whole_batch_autograd(outcome):
    assert outcome["logprob_error"] < 1e-4
    assert outcome["probe_error"] < 1e-4
    assert outcome["norm_error"] < 1e-6
    assert outcome["moved"] > 0.01, "the step must be large for its error to show"
    assert outcome["weight_error"] < 1e-6 * max(1.0, outcome["moved"]), "where a step is longer than the weights, of it"
    assert outcome["moved_error"] < 2e-5, "float32 weights round the step itself"


@each(FIRST_STEPS)
def test_untouched_policy_scores_zero(outcome, alike_tokens):
    floor = outcome["noise_floor"]
    alike = alike_tokens >= LONGEST_ROW
    assert floor == 0 if alike else floor < 1e-4, "no bit depends on what a row passes with, or on which rank"


@each([*FIRST_STEPS, (BFLOAT16, "first-3")])
def test_manifest_has_whole_shapes(outcome):
    assert outcome["manifest_is_whole"]
    assert outcome["dtypes"] == [outcome.get("dtype", "float32")]


@each([(BFLOAT16, "first-0"), (BFLOAT16, "first-3")])
def test_bfloat16_stays_within_its_own_noise(outcome):
    assert outcome["norm_error"] < 1e-2
    assert outcome["weight_error"] < 2e-2
    assert outcome["noise_floor"] < 0.5


@each([
    *CONTINUATIONS,
    *((BFLOAT16, f"continuation-{stage}") for stage in (0, 2)),
    *((ADAPTERS, f"continuation-{key}") for key in ADAPTER_KEYS),
    *((WHOLE_ADAPTERS, f"continuation-{dtype}") for dtype in DTYPES),
])  # fmt: skip
def test_a_loaded_checkpoint_continues_bit_for_bit(outcome):
    assert outcome["loaded"] == outcome["saved"]
    assert outcome["went_on"] != outcome["saved"]
    assert outcome["same_engine"] == outcome["went_on"]
    assert outcome["new_engine"] == outcome["went_on"]


@each([*NOT_FINITE, *((BFLOAT16, f"not-finite-{stage}") for stage in (0, 2))])
def test_a_gradient_that_is_not_finite_changes_nothing_on_any_rank(outcome):
    assert outcome["applied"] == [False, False]
    assert set(outcome["norms"]) <= {"nan", "inf"}
    assert outcome["unchanged"] == [True, True]
    assert outcome["steps"] == 1
    assert outcome["after_skips"] == outcome["without_skips"]


@each([
    *RESETS,
    *((BFLOAT16, f"reset-{stage}") for stage in (0, 3)),
    *((ADAPTERS, f"reset-{key}") for key in ADAPTER_KEYS),
])  # fmt: skip
def test_a_reset_optimizer_is_as_freshly_built(outcome):
    assert outcome["steps_before"] == 2
    assert outcome["changed"] > 0, "training must have left traces"
    assert {"states", "schedule_steps", "master 0"} <= set(outcome["names"])
    assert outcome["differences"] == 0, outcome["differences_here"]
    assert outcome["after_reset"] == outcome["fresh"]


@each(REFERENCES)
def test_a_reference_is_kept_to_the_bit_until_it_is_taken_anew(outcome):
    assert outcome["at_first"]
    assert not outcome["at_reference"]
    assert outcome["kept"]
    assert outcome["policy_moved"]
    assert outcome["policy_kept"]
    assert outcome["taken"]
    assert outcome["loaded"]
    assert outcome["continued"] == outcome["went_on"]


@each([(WHOLE_ADAPTERS, f"reference-{dtype}") for dtype in DTYPES])
def test_small_adapters_were_whole_when_they_changed_places_with_the_reference(outcome):
    assert outcome["kept_whole"] == 28


@each([("trio", "reference-of-pair"), ("single", "reference-of-pair")])
def test_a_reference_that_two_ranks_wrote_is_the_same_on_another_number_of_them(outcome, pair):
    written = pair["reference-0"]
    assert outcome["reference"] == written["first"]
    assert outcome["policy"] != outcome["reference"]
    assert _reference_in(outcome["folder"]) == _reference_in(written["folder"])


def _reference_in(folder):
    """Every tensor's bytes by name, whichever rank's file holds it."""
    from safetensors.torch import load_file

    parts = [load_file(path) for path in sorted(Path(folder).glob("reference-*.safetensors"))]
    found = {name: tensor.numpy().tobytes() for part in parts for name, tensor in part.items()}
    assert len(found) == sum(map(len, parts)) > 0, "each tensor is kept once"
    return found


@each([("pair", f"rewarmed-{stage}") for stage in (0, 2, 3)])
def test_the_learning_rate_rises_anew_after_a_reset_where_that_is_asked_for(outcome):
    rising, full = [0.01 / 3, 0.02 / 3, 0.01, 0.01], [0.01] * 4
    for name, after in (("anew", rising), ("on", full)):
        assert outcome[name]["reported"] == pytest.approx([*rising, *after])
        assert outcome[name]["used"] == outcome[name]["reported"], "by the optimizer, on every rank"


@each([(ADAPTERS, f"first-{stage}") for stage in STAGES])
def test_first_step_of_adapters_equals_the_chain_rule(outcome):
    assert outcome["pairs"] == 14
    assert outcome["tensors"] == 28
    assert outcome["moved"] > 1e-4
    assert outcome["norm_error"] < 1e-5
    assert outcome["weight_error"] < 1e-4


@each(VALUES)
def test_a_step_on_log_probs_and_values_equals_autograds(outcome):
    assert outcome["value_error"] < 1e-4
    assert outcome["backward_error"] < 1e-5
    assert outcome["norm_error"] < 1e-5
    assert outcome["weight_error"] < 1e-5
    assert outcome["moved"] > 0.1, "the step must be large for its error to show"
    assert outcome["value_error_after"] < 1e-4 * max(1.0, outcome["moved"])


@each([*BFLOAT16_VALUES, *ADAPTER_VALUES])
def test_values_in_bfloat16_or_over_adapters(outcome):
    assert outcome["value_error"] < (0.1 if outcome.get("dtype") else 1e-4)
    assert outcome.get("norm_error", 0.0) < 2e-2
    assert outcome.get("weight_error", 0.0) < 2e-2
    assert outcome["moved"] > 0.1


@each([*VALUES, *BFLOAT16_VALUES, *ADAPTER_VALUES])
def test_the_value_head_is_in_checkpoints_and_in_no_publication_or_export(outcome):
    from safetensors.torch import load_file

    assert outcome["kept_by_reset"]
    assert outcome["loaded"]
    assert outcome["continued"] == outcome["went_on"]
    assert not [name for name in outcome["names"] if "value" in name]
    exported = load_file(Path(outcome["folder"]) / "export" / "model.safetensors")
    assert set(exported) == set(load_file(Path(outcome["model"]) / "model.safetensors"))


def test_whole_state_continues_on_another_number_of_ranks(pair, trio):
    assert trio["other-0"]["loaded"] == pair["continuation-0"]["saved"]


def test_divided_state_on_another_number_of_ranks_is_refused_with_the_reason(trio):
    assert "'ranks': 3, 'zero_stage': 2" in trio["other-2"]["refused"]
    assert "'ranks': 2" in trio["other-2"]["refused"]
    assert "set learner.ranks" in trio["other-2"]["refused"]


@pytest.fixture
def driver(model, tmp_path):
    """Starts `ranks_driver.py` on two ranks as the learner would; gives the process once it is ready, and its log."""
    started = []

    def start(what, stage, launcher=()):
        config = {
            "run": {"name": "driver", "max_steps": 1, "groups_per_step": 1},
            "model": {"path": str(model), "max_tokens": 64},
            "data": {"path": str(tmp_path / "problems.jsonl"), "task": "exact", "max_prompt_tokens": 16},
            "rollout": {"group_size": 2, "max_response_tokens": 16},
            "learner": {"ranks": 2, "zero_stage": stage},
        }
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
        log = tmp_path / "driver.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, *launcher, HERE / "ranks_driver.py", tmp_path / "config.yaml", what, tmp_path / "out"],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        started.append(process)
        assert any(line == "ready\n" for line in process.stdout), log.read_text()
        return process, log

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def _children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _ended(pid, seconds=10.0):
    """Whether a process ends in time; one that nobody has reaped yet has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    "launcher", [(), ("-m", "torch.distributed.run", "--nproc-per-node=2")], ids=["by-rank-0", "by-torchrun"]
)
def test_ranks_export_together_and_end_with_rank_zero(driver, model, tmp_path, launcher):
    import torch
    from transformers import AutoModelForCausalLM

    process, log = driver("export", 3, launcher)
    children = _children(process.pid)
    assert len(children) == (2 if launcher else 1)
    assert process.wait(60) == 0, log.read_text()
    assert all(_ended(child) for child in children)
    exported, original = (AutoModelForCausalLM.from_pretrained(path) for path in (tmp_path / "out", model))
    for (name, value), other in zip(exported.named_parameters(), original.parameters(), strict=True):
        assert torch.equal(value, other), name
    assert (tmp_path / "out" / "tokenizer.json").is_file()


def test_a_rank_that_dies_is_reported_by_name_within_seconds(driver):
    process, log = driver("busy", 2)
    (follower,) = _children(process.pid)
    os.kill(follower, signal.SIGKILL)
    assert process.wait(30) == 70
    last = log.read_text().strip().splitlines()[-1]  # and not the collective's own complaint
    assert f"learner rank 1 (process {follower}) was killed by SIGKILL" in last


def test_ranks_die_with_a_killed_rank_zero(driver):
    process, _ = driver("idle", 0)
    (follower,) = _children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    assert _ended(follower)
