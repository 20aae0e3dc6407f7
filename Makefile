# Each target does all its own set-up on a fresh Debian machine with Python 3.11+.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Many tests wait for processes of their own: it takes four of them to keep two cores busy.
WORKERS ?= 4
export PYTHONDONTWRITEBYTECODE ?=

.PHONY: demo test lint nightly bench setup clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml tools/setup.sh
	PYTHON=$(PYTHON) VENV=$(VENV) sh tools/setup.sh
	touch $@

demo: setup
	$(BIN)/python examples/demo/demo.py

test: setup lint
	$(BIN)/python -m pytest -m "not nightly" -n $(WORKERS) --dist worksteal --durations=40 --durations-min=3

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

nightly: setup
	HARU_NIGHTLY=1 $(BIN)/python -m pytest

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
