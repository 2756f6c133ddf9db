# One verb a task; CI runs the same ones. `make demo` and `make test` do everything on a fresh machine.
PYTHON ?= python3.11
PIP_ARGS ?=
export OMP_NUM_THREADS ?= 1
bin := .venv/bin

.PHONY: help setup demo test unit lint types format proto proto-check tiny-model wheel clean

help:  ## Show the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

setup:  ## Make .venv with everything (idempotent)
	@PYTHON="$(PYTHON)" PIP_ARGS="$(PIP_ARGS)" scripts/setup.sh

demo: setup  ## Set up, then watch a small model learn to add
	$(bin)/pacs run examples/arithmetic.yaml --fresh

test: setup  ## Set up, then run every test, the real engines included
	$(bin)/pytest

unit: setup  ## The quick tests only
	$(bin)/pytest tests/unit

lint: setup  ## Style, bugs, formatting
	$(bin)/ruff check .
	$(bin)/ruff format --check .

types: setup  ## mypy --strict
	$(bin)/mypy

format: setup  ## Apply formatting and safe fixes
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

proto: setup  ## Generate pacs/pb from proto/
	$(bin)/python -m grpc_tools.protoc -Iproto --python_out=. --pyi_out=. proto/pacs/pb/*.proto
	$(bin)/python -m grpc_tools.protoc -Iproto --grpc_python_out=. proto/pacs/pb/control.proto proto/pacs/pb/verifier.proto

proto-check: proto  ## Fail if the generated code is stale
	git diff --exit-code -- pacs/pb

tiny-model: setup  ## Make examples/models/tiny-arithmetic anew (about two CPU minutes)
	$(bin)/python examples/make_tiny_model.py

wheel: setup  ## Build the wheel into dist/
	$(bin)/python -m build --wheel --no-isolation

clean:  ## Remove what was made, .venv and runs/ aside
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
