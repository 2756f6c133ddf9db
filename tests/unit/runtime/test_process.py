import signal
import subprocess
import sys

import pytest

from pacs.errors import BadInput, DeadlineExceeded, ServiceFailed
from pacs.runtime.config_file import write_config
from pacs.runtime.process import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_KILLED, exit_code_of, load_settings
from pacs.runtime.service_settings import ServiceSettings
from pacs.testing import make_config


def raising(error):
    def body():
        raise error

    return body


def test_exit_codes_tell_the_user_whose_turn_it_is(capsys, caplog):
    assert exit_code_of(lambda: None) == 0
    assert exit_code_of(raising(BadInput("data.path must exist"))) == EXIT_BAD_INPUT
    assert capsys.readouterr().err == "error: data.path must exist\n"
    assert exit_code_of(raising(DeadlineExceeded("a batch", 3))) == EXIT_FAILED
    assert "waited 3 s for a batch, in vain" in caplog.text


def test_errors_inside_task_groups_are_found():
    nested = ExceptionGroup("outer", [ExceptionGroup("inner", [ServiceFailed("engine died")])])
    assert exit_code_of(raising(nested)) == EXIT_FAILED


def test_faults_of_the_program_are_not_dressed_up():
    with pytest.raises(ExceptionGroup) as caught:
        exit_code_of(raising(ExceptionGroup("mixed", [BadInput("x"), ZeroDivisionError()])))
    assert caught.group_contains(ZeroDivisionError)
    assert not caught.group_contains(BadInput)


@pytest.fixture
def config_path(tmp_path):
    path = tmp_path / "run.yaml"
    write_config(make_config(), path)
    return path


def test_settings_come_from_the_file_and_the_environment(config_path, tmp_path, monkeypatch):
    (tmp_path / "token").write_text("sesame\n")
    monkeypatch.setenv("PACS_REDIS_URL", "redis://:secret@somewhere:1")
    monkeypatch.setenv("PACS_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setattr(sys, "argv", ["service", str(config_path)])
    settings = load_settings("control", ServiceSettings)
    assert settings.config == make_config()
    assert settings.bearer_token == "sesame"
    assert settings.control_target == "127.0.0.1:8401"
    assert settings.verifier_target == "127.0.0.1:8420"
    assert "secret" not in repr(settings)
    monkeypatch.setenv("PACS_CONTROL_ADDRESS", "control:1")
    monkeypatch.setenv("PACS_TOKEN", "direct")
    settings = load_settings("control", ServiceSettings)
    assert (settings.control_target, settings.bearer_token) == ("control:1", "direct")


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"PACS_REDIS_URL": "redis://x"}, "PACS_TOKEN"),
        ({"PACS_TOKEN": "t"}, "PACS_REDIS_URL"),
        ({"PACS_REDIS_URL": "redis://x", "PACS_TOKEN_FILE": "/nowhere/token"}, "/nowhere/token"),
    ],
)
def test_a_missing_setting_is_named(config_path, monkeypatch, environment, named):
    for name in ("PACS_REDIS_URL", "PACS_TOKEN", "PACS_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadInput, match=named):
        ServiceSettings.load(config_path)


def test_a_service_without_configuration_says_how_to_start_it(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["service"])
    with pytest.raises(BadInput, match=r"python -m services\.control CONFIG"):
        load_settings("control", ServiceSettings)


STUBBORN = """
import sys, threading
from pacs.runtime.process import stop_on_signals
stop = threading.Event()
stop_on_signals(stop.set)
print("ready", flush=True)
while True:
    threading.Event().wait(0.05)
    if stop.is_set():
        print("stopping", flush=True)
        stop.clear()
"""


def test_the_first_signal_asks_the_second_kills():
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stopping\n"
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == EXIT_KILLED


ORPHAN = """
import os, subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", "from pacs.runtime.process import exit_with_parent; exit_with_parent();"
     "print('up', flush=True); import time; time.sleep(60)"],
    env={**os.environ, "PACS_EXIT_WITH_PARENT": str(os.getpid())}, stdout=sys.stdout, start_new_session=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the Linux kernel")
def test_a_service_ends_with_the_process_that_started_it():
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout.readline() == "up\n"
        parent.kill()
        assert parent.stdout.read() == "", "the pipe closes when the child is gone too"
