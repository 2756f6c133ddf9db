import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacs.errors import CheckpointDamaged
from services.learner.checkpoints import MARKER, Checkpoints, CheckpointState
from services.learner.trained import TrainedSequences


def state(step, trained=()):
    seen = TrainedSequences()
    seen.add(trained)
    return CheckpointState(step=step, groups_trained=2 * step, policy_version=step + 1, trained=seen)


def write(text="weights"):
    def write_engine(directory):
        (directory / "engine").mkdir()
        (directory / "engine" / "weights.bin").write_text(text)

    return write_engine


def test_a_checkpoint_reads_back_what_was_written(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    assert checkpoints.newest() is None
    path = checkpoints.save(state(3, {0, 1, 2, 5}), write())
    found, read = checkpoints.newest()
    assert (found, read) == (path, state(3, {0, 1, 2, 5}))
    assert (found / "engine" / "weights.bin").read_text() == "weights"


def test_the_newest_is_found_by_number_and_old_ones_go(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (9, 10, 100, 11):
        checkpoints.save(state(step), write(str(step)))
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["step-00000011", "step-00000100"]
    assert checkpoints.newest()[1].step == 100


def test_one_that_was_not_finished_never_counts(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(state(1), write())

    def power_cut(directory):
        (directory / MARKER).write_text(json.dumps({"step": 2}))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(state(2), power_cut)
    assert (tmp_path / "step-00000002.tmp").exists()
    assert checkpoints.newest()[1].step == 1
    checkpoints.save(state(2), write("whole"))
    path, found = checkpoints.newest()
    assert found.step == 2
    assert (path / "engine" / "weights.bin").read_text() == "whole"
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000002"]


def test_the_state_is_written_last_so_that_the_engine_cannot_miss_it(tmp_path):
    seen = []
    Checkpoints(tmp_path, 1).save(state(1), lambda directory: seen.append(sorted(p.name for p in directory.iterdir())))
    assert seen == [[]]


class Disk:
    """What was done to it, in order: `synced` or `renamed`, with the path as it was then."""

    def __init__(self, monkeypatch):
        self.acts = []
        fsync, rename = os.fsync, os.rename

        def recording_fsync(descriptor):
            self.acts.append(("synced", Path(f"/proc/self/fd/{descriptor}").readlink()))
            fsync(descriptor)

        def recording_rename(source, target, **options):
            self.acts.append(("renamed", Path(source)))
            rename(source, target, **options)

        monkeypatch.setattr(os, "fsync", recording_fsync)
        monkeypatch.setattr(os, "rename", recording_rename)


def test_every_file_and_folder_is_on_the_disk_before_the_name_that_says_so(tmp_path, monkeypatch):
    written, checkpoints = set(), tmp_path / "run" / "checkpoints"

    def write_engine(directory):
        write()(directory)
        (directory / "engine" / "deeper").mkdir()
        (directory / "engine" / "deeper" / "moments.bin").write_text("moments")
        written.update([directory, *directory.rglob("*"), directory / MARKER])

    disk = Disk(monkeypatch)
    final = Checkpoints(checkpoints, keep=1).save(state(1), write_engine)
    renamed = disk.acts.index(("renamed", final.with_suffix(".tmp")))
    assert len(written) == 6
    assert {path for act, path in disk.acts[:renamed] if act == "synced"} >= written
    assert ("synced", checkpoints) in disk.acts[renamed:], "the new name"
    assert {("synced", tmp_path), ("synced", tmp_path / "run")} <= set(disk.acts), "folders that hold new folders"


@pytest.mark.parametrize(
    "damage",
    [
        lambda marker: marker.unlink(),
        lambda marker: marker.write_text('{"step": 2, "groups'),
        lambda marker: marker.write_text("[]"),
        lambda marker: marker.write_text('{"step": 2}'),
        lambda marker: marker.write_text(
            json.dumps({"step": 2, "groups_trained": 4, "policy_version": 3, "trained": {"below": 0, "above": 3}})
        ),
        lambda marker: marker.write_bytes(b"\xff\xfe\x00"),
    ],
)
def test_one_that_claims_to_be_whole_and_cannot_be_read_is_not_passed_over_in_silence(tmp_path, damage):
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(state(1), write())
    damage(checkpoints.save(state(2), write()) / MARKER)
    with pytest.raises(CheckpointDamaged, match=r"step-00000002.*remove the folder to continue from the one before"):
        checkpoints.newest()


@given(st.lists(st.integers(0, 60), unique=True))
def test_trained_numbers_are_a_set_that_stays_small(order):
    trained = TrainedSequences()
    for number in order:
        trained.add([number])
    assert [n in trained for n in range(62)] == [n in order for n in range(62)]
    assert all(number > trained.below for number in trained.above)
    assert trained.below not in trained
    again = TrainedSequences.from_json(json.loads(json.dumps(trained.to_json())))
    assert again == trained


def test_adding_again_changes_nothing():
    trained = TrainedSequences()
    trained.add(range(5))
    trained.add([2, 4, 7])
    assert (trained.below, trained.above) == (5, {7})
