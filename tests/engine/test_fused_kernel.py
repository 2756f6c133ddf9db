"""Runs the checks of the fused kernel in a process of its own: Triton reads there whether to interpret, once."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).parent / "fused_checks.py"
MISSING = [name for name in ("deepspeed", "liger_kernel", "triton") if importlib.util.find_spec(name) is None]


@pytest.mark.engine
@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_the_fused_kernel_computes_what_it_should():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CHECKS)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
