"""How many prompts may be admitted: arithmetic, and a whole run's bookkeeping in numbers."""

from hypothesis import given
from hypothesis import strategies as st

from pacs.transport.interface import Ledger
from services.control.admission import admissible

COUNTS = st.integers(0, 200)


@given(trained=COUNTS, in_flight=COUNTS, dropped=COUNTS, live=COUNTS, capacity=COUNTS, wanted=COUNTS)
def test_never_more_than_fits_and_never_more_than_wanted(trained, in_flight, dropped, live, capacity, wanted):
    ledger = Ledger(trained + in_flight + dropped, trained, in_flight, {"late": dropped})
    free = admissible(ledger, live, capacity, wanted)
    assert free >= 0
    if free:
        standing = trained + in_flight
        assert standing + free - live <= capacity
        assert standing + free <= wanted


def test_dropped_groups_are_made_up_for():
    assert admissible(Ledger(10, 10, 0), 10, 4, 10) == 0
    assert admissible(Ledger(10, 7, 0, {"late": 2, "invalid": 1}), 10, 4, 10) == 3


def test_trained_groups_hold_their_slots_until_their_weights_are_live():
    assert admissible(Ledger(4, 4, 0), 0, 4, 100) == 0
    assert admissible(Ledger(4, 4, 0), 4, 4, 100) == 4
    assert admissible(Ledger(4, 0, 4), 4, 4, 100) == 4, "acknowledged later: live is what counts"


def test_a_learner_rolled_back_behind_what_was_admitted_gets_no_more_at_first():
    assert admissible(Ledger(20, 12, 8), 0, 8, 100) == 0


class Pipeline:
    """Admission, loss, training and publication in numbers, in whatever order hypothesis finds."""

    def __init__(self, capacity, batch, wanted):
        self.capacity, self.batch, self.wanted = capacity, batch, wanted
        self.admitted = self.dropped = self.trained = self.live = 0

    def ledger(self):
        return Ledger(self.admitted, self.trained, self.in_flight, {"late": self.dropped})

    @property
    def in_flight(self):
        return self.admitted - self.dropped - self.trained

    def step(self, action):
        if action == "admit":
            self.admitted += admissible(self.ledger(), self.live, self.capacity, self.wanted)
        elif action == "drop" and self.in_flight:
            self.dropped += 1
        elif action == "train" and self.in_flight >= self.batch:
            self.trained += self.batch
        elif action == "publish":
            self.live = self.trained


@given(
    staleness=st.integers(0, 3),
    batch=st.integers(1, 5),
    steps=st.integers(1, 6),
    actions=st.lists(st.sampled_from(["admit", "drop", "train", "publish"]), max_size=80),
)
def test_in_flight_is_bounded_and_every_run_ends(staleness, batch, steps, actions):
    capacity, wanted = (staleness + 1) * batch, steps * batch
    pipeline = Pipeline(capacity, batch, wanted)
    for action in actions:
        pipeline.step(action)
        assert pipeline.in_flight <= capacity
        # A group admitted now is trained at most `staleness` versions later: at most that many batches are before it.
        assert pipeline.in_flight + pipeline.trained - pipeline.live <= capacity
    for _ in range(steps):  # whatever happened, with nothing more lost the run comes to its end
        for action in ("publish", "admit", "train", "publish"):
            pipeline.step(action)
    assert pipeline.trained == wanted
