import numpy as np
import pytest

from pacs.runtime.config import AlgorithmSection
from pacs.testing import make_labeled_group
from services.learner.batches import make_batch
from services.learner.objective import Objective


def signal(labels, policy=None, **settings):
    batch = make_batch([make_labeled_group(n, group) for n, group in enumerate(labels)])
    rows = np.arange(len(batch.label_B))
    reference = -np.arange(1.0, len(rows) + 1)
    policy_b = reference if policy is None else np.asarray(policy, dtype=np.float64)
    return Objective(AlgorithmSection(**settings))(policy_b, reference, batch, rows)


def test_at_the_reference_correct_samples_are_pushed_up_and_wrong_ones_down():
    got = signal([(1, 0, 0, 0), (1, 1, 1, 0)])
    signs = np.sign(got.coefficient_b)
    assert signs.tolist() == [-1, 1, 1, 1, -1, -1, -1, 1], "descending c·logp raises logp where c is negative"
    assert got.score_b.tolist() == [0] * 8
    assert got.loss > 0


def test_a_gradient_within_a_group_sums_to_nothing():
    got = signal([(1, 0, 0, 0), (1, 1, 0, 0)], policy=np.linspace(-5, 0, 8))
    assert got.coefficient_b.reshape(2, 4).sum(1) == pytest.approx([0, 0], abs=1e-12)


@pytest.mark.parametrize("labels", [(1, 1, 1), (0, 0, 0), (-1, -1, -1), (1, -1, -1)])
def test_groups_in_which_nothing_is_to_be_told_apart_teach_nothing(labels):
    assert np.abs(signal([labels]).coefficient_b).max() < 1e-12


def test_samples_nobody_judged_have_no_part():
    with_invalid, without = signal([(1, -1, 0, -1)]), signal([(1, 0)], policy=[-1.0, -2.0])
    assert with_invalid.coefficient_b[[1, 3]].tolist() == [0, 0]
    assert with_invalid.coefficient_b[[0, 2]] == pytest.approx(without.coefficient_b)


def test_the_loss_falls_when_the_correct_one_becomes_likelier():
    losses = [signal([(1, 0)], policy=[-1.0 + d, -2.0 - d]).loss for d in (-1.0, 0.0, 1.0, 3.0)]
    assert losses == sorted(losses, reverse=True)


def test_the_settings_reach_the_maths():
    policy = [-0.5, -3.0]
    small, large = signal([(1, 0)], policy, beta=0.5), signal([(1, 0)], policy, beta=2.0)
    assert large.score_b == pytest.approx(4 * small.score_b)
    pathwise = signal([(1, 0)], policy)
    full = signal([(1, 0)], policy, gradient="full")
    assert not np.allclose(full.coefficient_b, pathwise.coefficient_b)
    one_sided = signal([(1, 0)], policy, class_weight="positive_only")
    assert one_sided.loss != pytest.approx(pathwise.loss)


def test_a_policy_that_is_not_finite_shows():
    assert not np.isfinite(signal([(1, 0)], policy=[np.nan, -1.0]).coefficient_b).all()
