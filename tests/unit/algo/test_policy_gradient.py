"""The baselines' losses and coefficients against figures computed by hand, in plain Python, and their properties."""

import math
import statistics

import pytest
import torch  # noqa: TID253
from hypothesis import given
from hypothesis import strategies as st

from pacs.algo import BASELINES, Step, clipped_surrogate, coefficients, differentiate

F64 = torch.float64

# Two groups of three, two of them mixed; lengths differ, so that every normalisation shows.
GROUP_SIZE = 3
LABELS = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]
LENGTHS = [1, 2, 3, 2, 1, 4]
LIMIT = 5
LOW, HIGH = 0.2, 0.3
OLD = [[-1.0], [-2.0, -0.5], [-0.1, -0.2, -0.3], [-1.5, -2.5], [-0.7], [-0.9, -0.8, -0.7, -0.6]]
MOVED = [[0.1], [-0.3, 0.05], [0.5, 0.0, -0.01], [0.4, -0.5], [0.26], [0.2, -0.1, -0.25, 0.3]]  # logp − old


def advantages_by_hand(name, labels):
    if name == "reinforce":
        return [label - statistics.mean(labels) for label in labels]
    out = []
    for start in range(0, len(labels), GROUP_SIZE):
        group = labels[start : start + GROUP_SIZE]
        mean = statistics.mean(group)
        for i, label in enumerate(group):
            others = group[:i] + group[i + 1 :]
            out.append(
                {
                    "grpo": (label - mean) / (statistics.stdev(group) + 1e-6),
                    "dr_grpo": label - mean,
                    "rloo": label - statistics.mean(others),
                }[name]
            )
    return out


def surrogate_by_hand(ratio, advantage):
    """The loss of one action and its derivative by log π."""
    clipped = min(max(ratio, 1 - LOW), 1 + HIGH)
    if ratio * advantage <= clipped * advantage:
        return -ratio * advantage, -ratio * advantage
    return -clipped * advantage, 0.0


def by_hand(name):
    """Loss and the coefficient of every token."""
    weight = {
        "grpo": lambda i: 1 / (LENGTHS[i] * len(LABELS)),
        "dr_grpo": lambda i: 1 / (LIMIT * len(LABELS)),
        "rloo": lambda i: 1 / len(LABELS),
        "reinforce": lambda i: 1 / len(LABELS),
    }[name]
    loss, coefficient_N = 0.0, []
    for i, advantage in enumerate(advantages_by_hand(name, LABELS)):
        actions = [math.fsum(MOVED[i])] if name == "rloo" else MOVED[i]
        pairs = [surrogate_by_hand(math.exp(moved), advantage) for moved in actions]
        loss += weight(i) * math.fsum(value for value, _ in pairs)
        slopes = [weight(i) * slope for _, slope in pairs]
        coefficient_N += slopes * LENGTHS[i] if name == "rloo" else slopes
    return loss, coefficient_N


def flat(rows):
    return torch.tensor([value for row in rows for value in row], dtype=F64)


def make_step(name, labels=LABELS, judged=None, trained=None, lengths=LENGTHS, group_size=GROUP_SIZE):
    label_B = torch.tensor(labels, dtype=F64)
    judged_B = torch.ones(len(labels), dtype=torch.bool) if judged is None else torch.tensor(judged)
    trained_B = judged_B if trained is None else torch.tensor(trained)
    advantage_PG = BASELINES[name].advantage(label_B.view(-1, group_size), judged_B.view(-1, group_size))
    length_B = torch.tensor(lengths)
    return Step(
        advantage_B=advantage_PG.flatten().masked_fill(~trained_B, 0.0),
        length_B=length_B,
        completions=max(1, int(trained_B.sum())),
        tokens=max(1, int(length_B[trained_B].sum())),
        max_response_tokens=LIMIT,
        clip_low=LOW,
        clip_high=HIGH,
    )


def evaluate(name, logp_N, old_logp_N, step):
    """Loss and coefficients by token of a whole step; a sequence objective gets sums and gives to each token."""
    row_N = torch.repeat_interleave(torch.arange(len(step.length_B)), step.length_B)
    if BASELINES[name].level == "token":
        return differentiate(lambda logp: BASELINES[name].loss(logp, old_logp_N, row_N, step), logp_N)
    zeros_B = torch.zeros(len(step.length_B), dtype=F64)
    logp_B, old_B = zeros_B.index_add(0, row_N, logp_N), zeros_B.index_add(0, row_N, old_logp_N)
    loss, coefficient_B = differentiate(
        lambda logp: BASELINES[name].loss(logp, old_B, torch.arange(len(zeros_B)), step), logp_B
    )
    return loss, coefficient_B[row_N]


@pytest.fixture(params=BASELINES)
def name(request):
    return request.param


def test_loss_and_coefficients_by_hand(name):
    loss, coefficient_N = evaluate(name, flat(OLD) + flat(MOVED), flat(OLD), make_step(name))
    expected_loss, expected_N = by_hand(name)
    assert loss.item() == pytest.approx(expected_loss, abs=1e-12)
    assert coefficient_N.tolist() == pytest.approx(expected_N, abs=1e-12)
    assert 0.0 in coefficient_N.tolist(), "the example must clip something"
    assert not coefficient_N.requires_grad


def test_advantages_in_numbers():
    """One correct of three, and two of three: means 1/3 and 2/3, deviations √(1/3)."""
    label_PG = torch.tensor(LABELS, dtype=F64).view(2, 3)
    judged_PG = torch.ones(2, 3, dtype=torch.bool)
    root = math.sqrt(1 / 3) + 1e-6
    expected = {
        "grpo": [2 / 3 / root, -1 / 3 / root, -1 / 3 / root, 1 / 3 / root, 1 / 3 / root, -2 / 3 / root],
        "dr_grpo": [2 / 3, -1 / 3, -1 / 3, 1 / 3, 1 / 3, -2 / 3],
        "rloo": [1, -1 / 2, -1 / 2, 1 / 2, 1 / 2, -1],
        "reinforce": [1 / 2, -1 / 2, -1 / 2, 1 / 2, 1 / 2, -1 / 2],
    }
    for name, baseline in BASELINES.items():
        assert baseline.advantage(label_PG, judged_PG).flatten().tolist() == pytest.approx(expected[name]), name


def test_at_the_old_policy_the_gradient_is_that_of_the_textbook(name):
    """Ratio 1: c = −A · (weight of the action), whatever the clips."""
    step = make_step(name)
    _, coefficient_N = evaluate(name, flat(OLD), flat(OLD), step)
    weight_B = {
        "grpo": 1 / (step.length_B * 6),
        "dr_grpo": torch.full((6,), 1 / (LIMIT * 6)),
        "rloo": torch.full((6,), 1 / 6),
        "reinforce": torch.full((6,), 1 / 6),
    }[name].double()
    expected_N = (-step.advantage_B * weight_B).repeat_interleave(step.length_B)
    assert torch.allclose(coefficient_N, expected_N, rtol=1e-7, atol=0)


@given(st.integers(1, 7))
def test_pacs_at_its_reference_is_rloo_with_advantages_weighed_by_how_hard_the_prompt_is(correct):
    """With p = P/G: PACS = rloo / (4·p·(1−p)) = grpo / (4·√(p(1−p))) · √(G/(G−1)), balanced weights, ψ = 0."""
    group_size, p = 8, correct / 8
    label_B = (torch.arange(group_size) < correct).double()
    zeros_B, all_B = torch.zeros(group_size, dtype=F64), torch.ones(group_size, dtype=torch.bool)
    pacs_B = coefficients(zeros_B, zeros_B, label_B, all_B, group_size=group_size, count=group_size)
    label_PG, all_PG = label_B.view(1, -1), all_B.view(1, -1)
    rloo_B = BASELINES["rloo"].advantage(label_PG, all_PG).flatten()
    grpo_B = BASELINES["grpo"].advantage(label_PG, all_PG).flatten()
    assert torch.allclose(-pacs_B * group_size, rloo_B / (4 * p * (1 - p)), rtol=1e-6, atol=0)
    # grpo's unbiased deviation is √(p(1−p)·G/(G−1)); its + 1e-6 is the tolerance.
    factor = math.sqrt(group_size / (group_size - 1)) / (4 * math.sqrt(p * (1 - p))) * group_size / (group_size - 1)
    assert torch.allclose(-pacs_B * group_size, grpo_B * factor, rtol=1e-5, atol=0)


@given(st.lists(st.integers(0, 2), min_size=13, max_size=13))
def test_shares_of_tokens_add_up(shares):
    """Every token on a rank of its own choosing: same loss, same coefficients."""
    for name in ("grpo", "dr_grpo", "reinforce"):
        step, old_N = make_step(name), flat(OLD)
        logp_N, row_N = old_N + flat(MOVED), torch.repeat_interleave(torch.arange(6), step.length_B)
        whole_loss, whole_N = evaluate(name, logp_N, old_N, step)
        total, pieces_N = 0.0, torch.zeros_like(whole_N)
        for share in range(3):
            mine = torch.tensor([s == share for s in shares])
            loss, pieces_N[mine] = differentiate(
                lambda logp, old_N=old_N[mine], row_N=row_N[mine], name=name, step=step: BASELINES[name].loss(
                    logp, old_N, row_N, step
                ),
                logp_N[mine],
            )
            total += loss.item()
        assert torch.equal(pieces_N, whole_N)
        assert total == pytest.approx(whole_loss.item(), abs=1e-12)


@given(st.permutations(range(6)), st.integers(1, 5))
def test_shares_of_sequences_add_up_in_any_order(order, cut):
    step, old_B = make_step("rloo"), torch.tensor([math.fsum(row) for row in OLD], dtype=F64)
    logp_B = old_B + torch.tensor([math.fsum(row) for row in MOVED], dtype=F64)
    loss = BASELINES["rloo"].loss
    _, whole_B = differentiate(lambda logp: loss(logp, old_B, torch.arange(6), step), logp_B)
    for part in (torch.tensor(order[:cut]), torch.tensor(order[cut:])):
        _, coefficient_b = differentiate(lambda logp, part=part: loss(logp, old_B[part], part, step), logp_B[part])
        assert torch.equal(coefficient_b, whole_B[part])


@given(st.permutations(range(2)), st.permutations(range(3)))
def test_order_of_groups_and_samples_does_not_matter(groups, samples):
    order = [g * 3 + s for g in groups for s in samples]
    for name in BASELINES:
        step = make_step(name)
        shuffled = make_step(name, labels=[LABELS[i] for i in order], lengths=[LENGTHS[i] for i in order])
        _, coefficient_N = evaluate(name, flat(OLD) + flat(MOVED), flat(OLD), step)
        old_N, moved_N = flat([OLD[i] for i in order]), flat([MOVED[i] for i in order])
        _, shuffled_N = evaluate(name, old_N + moved_N, old_N, shuffled)
        rows = coefficient_N.split(LENGTHS)
        assert torch.allclose(shuffled_N, torch.cat([rows[i] for i in order]), rtol=0, atol=1e-12)


@given(st.lists(st.sampled_from([1, 0, -1]), min_size=6, max_size=6))
def test_invalid_samples_have_no_coefficient_and_change_no_advantage(labels):
    """They may even lack a log-prob."""
    judged = [label >= 0 for label in labels]
    missing_N = torch.tensor([not j for j, n in zip(judged, LENGTHS, strict=True) for _ in range(n)])
    logp_N = (flat(OLD) + flat(MOVED)).masked_fill(missing_N, math.nan)
    for name in BASELINES:
        step = make_step(name, labels=labels, judged=judged)
        loss, coefficient_N = evaluate(name, logp_N, flat(OLD), step)
        assert math.isfinite(loss.item())
        assert coefficient_N[missing_N].tolist() == [0.0] * int(missing_N.sum())
        assert bool(coefficient_N.isfinite().all())
        turned = make_step(name, labels=[1 if label < 0 else label for label in labels], judged=judged)
        assert torch.equal(turned.advantage_B, step.advantage_B)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_groups_with_one_label_carry_no_signal(name, label):
    step = make_step(name, labels=[label] * 6)
    _, coefficient_N = evaluate(name, flat(OLD) + flat(MOVED), flat(OLD), step)
    assert coefficient_N.tolist() == [0.0] * 13


def test_a_sample_left_out_of_the_loss_still_makes_the_baseline_of_the_others(name):
    """Without the one wrong sample of the second group the right ones would have nothing to be better than."""
    step = make_step(name, trained=[True] * 5 + [False])
    whole = make_step(name)
    assert step.advantage_B[:5].tolist() == whole.advantage_B[:5].tolist()
    assert step.advantage_B[5].item() == 0.0
    assert step.completions == 5


def test_a_step_in_which_nothing_takes_part_has_a_zero_gradient(name):
    step = make_step(name, judged=[False] * 6)
    loss, coefficient_N = evaluate(name, torch.full((13,), math.nan, dtype=F64), flat(OLD), step)
    assert loss.item() == 0.0
    assert coefficient_N.tolist() == [0.0] * 13


def test_gradients_agree_with_finite_differences(name):
    step, old_N = make_step(name), flat(OLD)
    row_N = torch.repeat_interleave(torch.arange(6), step.length_B)
    logp_N = (old_N + flat(MOVED)).requires_grad_()
    if BASELINES[name].level == "token":
        assert torch.autograd.gradcheck(lambda logp: BASELINES[name].loss(logp, old_N, row_N, step), (logp_N,))
    else:
        zeros_B = torch.zeros(6, dtype=F64)
        old_B = zeros_B.index_add(0, row_N, old_N)
        assert torch.autograd.gradcheck(
            lambda logp: BASELINES[name].loss(zeros_B.index_add(0, row_N, logp), old_B, torch.arange(6), step),
            (logp_N,),
        )


def test_a_clip_of_zero_is_no_clip():
    ratio_N, advantage_N = torch.tensor([0.01, 50.0], dtype=F64), torch.tensor([-1.0, 1.0], dtype=F64)
    surrogate_N = clipped_surrogate(ratio_N.log(), torch.zeros(2, dtype=F64), advantage_N, clip_low=0, clip_high=0)
    assert surrogate_N.tolist() == pytest.approx([0.01, -50.0])


def test_a_new_objective_is_one_function():
    """DAPO's loss, the mean over all tokens of the step, written here and nowhere else."""

    def token_mean_loss(logp_N, old_logp_N, row_N, step):
        return -(step.advantage_B[row_N] * (logp_N - old_logp_N).exp()).sum() / step.tokens

    step, old_N = make_step("grpo"), flat(OLD)
    row_N = torch.repeat_interleave(torch.arange(6), step.length_B)
    _, coefficient_N = differentiate(lambda logp: token_mean_loss(logp, old_N, row_N, step), old_N)
    assert torch.allclose(coefficient_N, -step.advantage_B[row_N] / 13, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"completions": 0}, "must be positive"),
        ({"tokens": 0}, "must be positive"),
        ({"clip_low": -0.1}, "must not be negative"),
        ({"length_B": torch.ones(3)}, "one shape"),
    ],
)
def test_a_broken_step_is_refused(change, message):
    values = {
        "advantage_B": torch.ones(2), "length_B": torch.ones(2), "completions": 2, "tokens": 2, "max_response_tokens": 2
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        Step(**{**values, **change})


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        clipped_surrogate(torch.ones(2), torch.ones(3), torch.ones(2), clip_low=0.2, clip_high=0.2)
