"""Runs the checks of the engine in processes of their own: DeepSpeed sets up torch.distributed for the whole one."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent


@pytest.mark.parametrize("checks", ["deepspeed_checks.py", "lora_checks.py"])
def test_the_learners_engine_computes_what_it_should(checks):
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / checks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
