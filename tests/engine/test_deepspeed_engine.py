"""Runs `deepspeed_checks.py` in a process of its own: DeepSpeed sets up torch.distributed for the whole process."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

CHECKS = Path(__file__).with_name("deepspeed_checks.py")


def test_the_learners_engine_computes_what_it_should():
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CHECKS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
