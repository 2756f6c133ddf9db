#!/usr/bin/env bash
# Makes .venv with the whole CPU stack. Safe to run again: does nothing while lock and project file are unchanged.
# PYTHON=… chooses the interpreter; PIP_ARGS=… is handed to pip (for an index that has torch's CPU wheels, say).
set -euo pipefail
cd "$(dirname "$0")/.."
lock=requirements/cpu-py311.lock
python=${PYTHON:-python3.11}

fail() { printf 'setup: %s\n' "$1" >&2; exit 2; }

command -v "$python" >/dev/null || fail "Python 3.11 is needed, but there is no '$python' on PATH; install it or set PYTHON=/path/to/python3.11"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ "$version" = 3.11 ] || fail "Python 3.11 is needed (the lock is for it), got $version from '$python'; set PYTHON=/path/to/python3.11"
"$python" -c 'import venv, ensurepip' 2>/dev/null || fail "Python's venv module is needed; on Debian install python3.11-venv"
command -v cc >/dev/null || command -v gcc >/dev/null || fail "a C compiler is needed (Ray and vLLM build small parts at run time); on Debian install gcc"

stamp=.venv/.installed
wanted=$(cat "$lock" pyproject.toml | sha256sum | cut -d' ' -f1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    echo "setup: .venv is up to date"
    exit 0
fi

total=$(grep -c '==' "$lock")
echo "setup: making .venv with $version and $total packages (about 4 GB, two to ten minutes)"
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25' 'setuptools>=77' wheel
# shellcheck disable=SC2086  # PIP_ARGS is meant to be split
.venv/bin/python -m pip install --disable-pip-version-check --progress-bar off --no-deps ${PIP_ARGS:-} -r "$lock" |
    awk -v total="$total" '/^(Collecting|Requirement already)/ { n++; if (n % 25 == 0 || n == total) printf "setup: %d of %d packages fetched\n", n, total; fflush() }
        /^Installing collected/ { print "setup: unpacking"; fflush() }'
log=.venv/setup.log
.venv/bin/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation --editable . >"$log" 2>&1 ||
    { tail -20 "$log" >&2; fail "the project itself could not be installed; the end of $log is above"; }
.venv/bin/python -c 'import torch, vllm, ray, deepspeed, transformers' >>"$log" 2>&1 ||
    fail "the packages are there but do not import; run .venv/bin/python -c 'import torch, vllm, ray, deepspeed' to see why"
echo "$wanted" >"$stamp"
echo "setup: done"
