"""The folder of a run: one worker, one run, secrets readable by their owner only."""

import stat

import pytest

from pacs.errors import BadInput
from pacs.local.workspace import Workspace, newest_run
from pacs.testing import make_config


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return Workspace(tmp_path / "runs" / "some")


def begin(workspace, changes=None, fresh=False):
    with workspace.prepared(make_config(changes), fresh):
        return workspace.token


def test_token_and_folder_outlive_a_start(workspace):
    assert begin(workspace) == begin(workspace)
    assert stat.S_IMODE(workspace.token_file.stat().st_mode) == 0o600


def test_fresh_removes_what_was_there(workspace):
    before = begin(workspace)
    (workspace.path / "metrics.jsonl").write_text("{}\n")
    assert begin(workspace, fresh=True) != before
    assert not (workspace.path / "metrics.jsonl").exists()


def test_two_processes_may_not_work_in_one_folder(workspace):
    with workspace.prepared(make_config(), False), pytest.raises(BadInput, match="one process"):
        begin(Workspace(workspace.path))


@pytest.mark.parametrize(
    ("key", "value"), [("run.seed", 5), ("rollout.group_size", 4), ("rollout.temperature", 0.5), ("data.task", "math")]
)
def test_a_different_run_is_not_continued(workspace, key, value):
    begin(workspace)
    with pytest.raises(BadInput, match=key.removesuffix(".task")):
        begin(workspace, {key: value})
    begin(workspace, {key: value}, fresh=True)


def test_more_steps_continue_the_same_run(workspace):
    begin(workspace)
    begin(workspace, {"run.max_steps": 999, "learner.learning_rate": 0.001})


def test_the_newest_run_is_the_one_started_last(tmp_path):
    for name in ("first", "second", "first"):
        begin(Workspace(tmp_path / name))
    assert newest_run(tmp_path).path.name == "first"


def test_no_run_is_said(tmp_path):
    with pytest.raises(BadInput, match="there must be a run"):
        newest_run(tmp_path)
