import numpy as np
import pytest
import torch  # noqa: TID253

from pacs.algo import coefficients
from pacs.testing import make_config, make_labeled_group
from services.learner.batches import make_batch
from services.learner.engine import SequenceLogprobs
from services.learner.objective import make_objective
from services.learner.step_signal import StepLogprobs

BASELINES = ["grpo", "dr_grpo", "rloo", "reinforce"]
TRUNCATED = [[1, 0, 1], [0, 0, 0]]


def batch_of(labels, truncated=None):
    groups = []
    for n, group in enumerate(labels):
        labeled = make_labeled_group(n, group)
        for i, completion in enumerate(labeled.group.completions):
            cut = truncated is not None and truncated[n][i]
            object.__setattr__(completion, "finish_reason", "length" if cut else "stop")
        groups.append(labeled)
    return make_batch(groups)


def spread(sums, batch):
    """Log-probs of responses with these sums."""
    return SequenceLogprobs(
        tuple(np.full(n, s / n, dtype=np.float32) for s, n in zip(sums, batch.response_tokens_B, strict=True)), 0.0
    )


def of(logprobs, rows):
    """Those of some responses."""
    return SequenceLogprobs(tuple(logprobs.tokens_B[row] for row in rows), 0.0)


def unmoved(old, rows):
    return StepLogprobs(of(old, rows), of(old, rows), of(old, rows))


def signal(labels, policy=None, truncated=None, **settings):
    """The signal of a batch whose old policy gave its responses log-probs −1, −2, −3, …"""
    batch = batch_of(labels, truncated)
    rows = np.arange(len(batch.label_B))
    old = spread(-np.arange(1.0, len(rows) + 1), batch)
    now = old if policy is None else spread(policy, batch)
    objective = make_objective(make_config({f"algorithm.{key}": value for key, value in settings.items()}))
    got = objective(StepLogprobs(now, old, old), batch, objective.select(batch), rows)
    return got, np.split(got.coefficient_n, batch.response_tokens_B.cumsum()[:-1])


def by_sequence(labels, *args, **settings):
    """The coefficients of an objective that has one a sequence."""
    _, rows = signal(labels, *args, **settings)
    assert all(len(set(row.tolist())) == 1 for row in rows)
    return np.array([row[0] for row in rows])


def test_at_the_reference_correct_samples_are_pushed_up_and_wrong_ones_down():
    got, rows = signal([(1, 0, 0, 0), (1, 1, 1, 0)])
    signs = [np.sign(row).tolist() for row in rows]
    assert [s[0] for s in signs] == [-1, 1, 1, 1, -1, -1, -1, 1], "descending c·logp raises logp where c is negative"
    assert [len(s) for s in signs] == [1, 2, 3, 4] * 2, "one a response token"
    assert got.score_b.tolist() == [0] * 8
    assert got.loss > 0


def test_pacs_gives_each_token_the_very_coefficient_of_its_sequence():
    batch = batch_of([(1, 0, -1, 1), (0, 0, 1, 1)])
    rng = np.random.default_rng(0)
    old, now = (
        SequenceLogprobs(tuple(rng.normal(size=n).astype(np.float32) for n in batch.response_tokens_B), 0.0)
        for _ in range(2)
    )
    objective, rows = make_objective(make_config()), np.arange(8)
    got = objective(StepLogprobs(now, old, old), batch, objective.select(batch), rows)
    tensors = (torch.from_numpy(a) for a in (now.sum_B, old.sum_B, batch.label_B, batch.valid_B))
    expected = coefficients(*tensors, group_size=4, count=7).numpy()
    assert got.coefficient_n.tolist() == np.repeat(expected, batch.response_tokens_B).tolist(), "to the bit"


def test_a_gradient_within_a_group_sums_to_nothing():
    got = by_sequence([(1, 0, 0, 0), (1, 1, 0, 0)], policy=np.linspace(-5, -0.1, 8))
    assert got.reshape(2, 4).sum(1) == pytest.approx([0, 0], abs=1e-12)


@pytest.mark.parametrize("labels", [(1, 1, 1), (0, 0, 0), (-1, -1, -1), (1, -1, -1)])
@pytest.mark.parametrize("name", ["pacs", *BASELINES])
def test_groups_in_which_nothing_is_to_be_told_apart_teach_nothing(name, labels):
    assert np.abs(signal([labels], name=name)[0].coefficient_n).max() < 1e-12


def test_samples_nobody_judged_have_no_part():
    with_invalid, without = by_sequence([(1, -1, 0, -1)]), by_sequence([(1, 0)], policy=[-1.0, -2.0])
    assert with_invalid[[1, 3]].tolist() == [0, 0]
    assert with_invalid[[0, 2]] == pytest.approx(without)


def test_the_loss_falls_when_the_correct_one_becomes_likelier():
    losses = [signal([(1, 0)], policy=[-1.0 + d, -2.0 - d])[0].loss for d in (-1.0, 0.0, 1.0, 3.0)]
    assert losses == sorted(losses, reverse=True)


def test_the_settings_reach_the_maths():
    policy = [-0.5, -3.0]
    pathwise, _ = signal([(1, 0)], policy)
    small, large = signal([(1, 0)], policy, beta=0.5)[0], signal([(1, 0)], policy, beta=2.0)[0]
    assert large.score_b == pytest.approx(4 * small.score_b)
    assert not np.allclose(signal([(1, 0)], policy, gradient="full")[0].coefficient_n, pathwise.coefficient_n)
    assert signal([(1, 0)], policy, class_weight="positive_only")[0].loss != pytest.approx(pathwise.loss)
    assert signal([(1, 0)], policy, label_smoothing=0.2)[0].loss > pathwise.loss
    without_reference, _ = signal([(1, 0)], policy, log_ratio="mean_logprob")
    assert without_reference.score_b == pytest.approx([-0.5 + 1.5, -1.5 + 0.5]), "per token: −0.5 and −3/2"


def test_the_baselines_settings_reach_the_maths():
    policy = [-0.5, -3.0]  # ratio e^½ of the correct one
    clipped, unclipped = (by_sequence([(1, 0)], policy, name="rloo", clip_high=high)[0] for high in (0.2, 0.0))
    assert clipped == 0.0
    assert unclipped == pytest.approx(-np.exp(0.5) / 2)
    dr_grpo = by_sequence([(1, 0)], name="dr_grpo")
    assert dr_grpo == pytest.approx(np.array([-0.5, 0.5]) / (2 * 16)), "16: rollout.max_response_tokens"


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_raise_the_correct_and_lower_the_wrong(name):
    got, rows = signal([(1, 0, 0), (1, 1, 0)], name=name)
    assert [np.sign(row[0]) for row in rows] == [-1, 1, 1, -1, -1, 1]
    assert got.score_b is None


def test_the_baseline_of_reinforce_is_the_mean_of_the_whole_batch_and_not_of_the_optimizer_step():
    batch = batch_of([(1, 1), (1, 0)])
    old = spread([-1.0, -2.0, -3.0, -4.0], batch)
    objective, rows = make_objective(make_config({"algorithm.name": "reinforce"})), np.arange(2)
    got = objective(unmoved(old, rows), batch, objective.select(batch), rows)
    assert got.coefficient_n.tolist() == [-0.25 / 2] * 3, "A = 1 − 3/4, over the two completions of the step"


@pytest.mark.parametrize("name", ["pacs", *BASELINES])
def test_optimizer_steps_of_a_batch_see_their_own_groups(name):
    """With the policy unmoved, two steps of half a batch give together twice the coefficients of one step."""
    batch = batch_of([(1, 0, -1), (1, 1, 0)])
    old = spread(-np.arange(1.0, 7.0), batch)
    objective = make_objective(make_config({"algorithm.name": name}))
    selection = objective.select(batch)
    whole, *halves = (
        objective(unmoved(old, rows), batch, selection, rows).coefficient_n
        for rows in (np.arange(6), np.arange(3), np.arange(3, 6))
    )
    assert np.concatenate([halves[0] * 2 / 5, halves[1] * 3 / 5]) == pytest.approx(whole), "2 and 3 judged of 5"


@pytest.mark.parametrize("name", ["pacs", *BASELINES])
def test_truncated_completions_are_what_the_setting_says(name):
    labels = [(1, 0, 1), (1, 0, 0)]  # the two correct ones of the first group were cut
    plain = signal(labels, name=name)[0].coefficient_n
    same = signal(labels, truncated=TRUNCATED, name=name)[0].coefficient_n
    assert same.tolist() == plain.tolist()
    wrong = with_truncated("wrong", labels, name)
    relabelled = signal([(0, 0, 0), (1, 0, 0)], name=name)[0].coefficient_n
    assert wrong.tolist() == relabelled.tolist()
    dropped = np.split(with_truncated("dropped", labels, name), np.cumsum([1, 2, 3, 1, 2]))
    assert not dropped[0].any()
    assert not dropped[2].any()
    assert dropped[3].any()


def with_truncated(setting, labels, name):
    batch = batch_of(labels, TRUNCATED)
    old, rows = spread(-np.arange(1.0, 7.0), batch), np.arange(6)
    objective = make_objective(make_config({"algorithm.name": name, "algorithm.truncated": setting}))
    return objective(unmoved(old, rows), batch, objective.select(batch), rows).coefficient_n


def test_a_dropped_completion_stays_in_the_baseline_of_policy_gradients_and_leaves_that_of_pacs():
    labels = [(1, 0, 1), (1, 0, 0)]
    rloo = np.split(with_truncated("dropped", labels, "rloo"), np.cumsum([1, 2, 3, 1, 2]))
    assert rloo[1].tolist() == [1 / 4] * 2, "A = 0 − 1 against the two that were cut; 4 completions are left"
    pacs = np.split(with_truncated("dropped", labels, "pacs"), np.cumsum([1, 2, 3, 1, 2]))
    assert not pacs[1].any(), "alone it has no score"


@pytest.mark.parametrize("name", ["pacs", *BASELINES])
def test_dropped_uniform_groups_leave_loss_and_counts(name):
    kept = signal([(1, 0), (1, 1)], policy=[-1.1, -2.1, -3.3, -4.4], name=name)[0]
    dropped = signal([(1, 0), (1, 1)], policy=[-1.1, -2.1, -3.3, -4.4], name=name, uniform_groups="drop")[0]
    assert not dropped.coefficient_n[3:].any()
    assert dropped.coefficient_n[:3] == pytest.approx(2 * kept.coefficient_n[:3]), "2 completions count, not 4"
    if name == "pacs":
        assert kept.coefficient_n[3:].any(), "kept, they pull scores together"


@pytest.mark.parametrize("name", ["pacs", *BASELINES])
def test_importance_weights_multiply_what_there_is(name):
    """The engine's log-probs are −0.5, −1, …; the old policy's are −s/n a token, the same in sum only by chance."""
    labels = [(1, 0), (1, -1)]
    plain, capped = (signal(labels, name=name, importance_cap=cap)[1] for cap in (0.0, 1.25))
    old, engine = [[-1.0], [-1.0, -1.0], [-3.0]], [[-0.5], [-0.5, -1.0], [-0.5]]
    for row in range(3):
        gap = np.array(old[row]) - np.array(engine[row])
        if name in ("pacs", "rloo"):
            gap = gap.sum()
        assert capped[row] == pytest.approx(plain[row] * np.minimum(np.exp(gap), 1.25)), row
    assert not capped[3].any()


@pytest.mark.parametrize("name", ["pacs", *BASELINES])
def test_a_policy_that_is_not_finite_shows(name):
    assert not np.isfinite(signal([(1, 0)], policy=[np.nan, -1.0], name=name)[0].coefficient_n).all()


@pytest.mark.parametrize("name", ["pacs", *BASELINES])
def test_a_batch_in_which_nothing_takes_part_has_a_zero_gradient(name):
    got, _ = signal([(-1, -1), (-1, -1)], policy=[np.nan, -1.0, -2.0, -np.inf], name=name, importance_cap=2.0)
    assert got.loss == 0.0
    assert not got.coefficient_n.any()


@pytest.mark.parametrize("name", ["pacs", *BASELINES])
def test_a_log_prob_that_the_engine_lacks_spoils_only_what_needs_it(name):
    batch = batch_of([(1, 0, -1)])
    batch.engine_logprobs_B[2][:] = np.nan
    old, rows = spread([-1.0, -2.0, -3.0], batch), np.arange(3)
    objective = make_objective(make_config({"algorithm.name": name, "algorithm.importance_cap": 2.0}))
    got = objective(unmoved(old, rows), batch, objective.select(batch), rows)
    assert np.isfinite(got.coefficient_n).all()
    assert not got.coefficient_n[3:].any()


@pytest.mark.parametrize(
    ("name", "gradient"), [("pacs", "pathwise"), ("pacs", "full"), *((name, "pathwise") for name in BASELINES)]
)
def test_with_the_policy_unmoved_zeros_do_in_place_of_its_log_probs(name, gradient):
    """What lets the first pass be left out."""
    batch = batch_of([(1, 0, -1), (1, 1, 0)])
    objective = make_objective(make_config({"algorithm.name": name, "algorithm.gradient": gradient}))
    known, zeros = spread(-np.arange(1.0, 7.0), batch), SequenceLogprobs.zeros(batch.response_tokens_B)
    selection, rows = objective.select(batch), np.arange(6)
    assert not objective.reads_start
    signals = [objective(unmoved(logprobs, rows), batch, selection, rows) for logprobs in (known, zeros)]
    assert signals[0].coefficient_n.tolist() == signals[1].coefficient_n.tolist()
    assert signals[0].loss == signals[1].loss


@pytest.mark.parametrize(
    ("settings", "reads"),
    [
        ({}, (False, False, True)),
        ({"log_ratio": "mean_logprob"}, (True, False, False)),
        ({"importance_cap": 2.0}, (True, True, True)),
        ({"name": "grpo"}, (False, True, False)),
        ({"name": "grpo", "importance_cap": 2.0}, (True, True, False)),
    ],
)
def test_objectives_say_which_log_probs_they_read(settings, reads):
    objective = make_objective(make_config({f"algorithm.{key}": value for key, value in settings.items()}))
    assert (objective.reads_start, objective.reads_old, objective.has_reference) == reads
