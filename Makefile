# Each target does all its own set-up on a fresh Debian machine with Python 3.11+.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Many tests wait for processes of their own: with five workers two cores were busy for 83 % of the time.
WORKERS ?= 6
# Hundreds of tests start processes: each would compile Haru anew.
export PYTHONDONTWRITEBYTECODE :=

# The packages without input and output, and small servers in virtual time: no processes, nothing that waits.
FAST ?= tests/accounting tests/api tests/cel tests/dra tests/engine tests/explain tests/http2 tests/kube tests/lint \
	tests/test_*.py

PYTHONS ?= 3.11 3.12 3.13 3.14
# Whose seeds the long runs have.
NIGHT ?= $(shell date +%-j)

.PHONY: demo test tests fast matrix bytecode coverage docs lint nightly conformance bench golden golden-record golden-explanations release setup clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml hatch_build.py tools/setup.sh frontend/package-lock.json $(wildcard src/haru/proto/*.proto)
	PYTHON=$(PYTHON) VENV=$(VENV) sh tools/setup.sh
	touch $@

demo: setup
	$(BIN)/python examples/demo/demo.py

# Each worker would make the bytecode of all tests anew. One core makes it: docs and lint begin on the other one, and fail
# the run as tests do.
test: setup
	$(MAKE) -k -j2 tests docs lint BEFORE=bytecode

tests: setup $(BEFORE)
	MAKEFLAGS= $(BIN)/python tools/run_tests.py -m "not nightly" -n $(WORKERS) --dist worksteal --durations=40 --durations-min=3 $(TESTS)

fast: setup
	$(BIN)/python -m pytest -q -m "not nightly" -n $(WORKERS) --dist worksteal $(FAST)

# Each Python that this machine has, in a virtual environment of its own.
matrix:
	@set -e; for version in $(PYTHONS); do \
	  if python$$version -c "" 2>/dev/null; then $(MAKE) fast PYTHON=python$$version VENV=.venv-$$version; \
	  else echo "not run: python$$version is not installed"; fi; \
	done

bytecode: setup
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest -qq -m "not nightly" --collect-only >/dev/null || echo "not collected: the run of the tests says why" >&2

coverage: setup
	mkdir -p .coverage && rm -f .coverage/data*
	$(BIN)/python -m pytest -m "not nightly" -n $(WORKERS) --dist worksteal --cov --cov-report=
	$(BIN)/coverage html
	$(BIN)/coverage report --sort=cover | tail -40

docs: setup
	NO_COLOR=1 $(BIN)/zensical build --strict

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_structure.py

nightly: setup
	HARU_NIGHTLY=1 HARU_NIGHT=$(NIGHT) $(BIN)/python -m pytest --durations=80 --durations-min=30 $(TESTS)

# Recorded answers of kube-apiserver 1.36, compared with those of Haru's API server.
conformance: setup
	$(BIN)/python tools/api_conformance.py

bench: setup
	$(BIN)/python -m benchmarks

# Recorded decisions and explanations, made again: a change of structure leaves all of them as they are.
golden golden-record golden-explanations: setup
	PYTHONPATH=tests:tests/engine:tests/golden $(BIN)/python -m golden_journal $(or $(patsubst golden-%,%,$(filter golden-%,$@)),check)

# sdist, wheel, image, bill of materials and checksums in dist/.
release: setup
	$(BIN)/python tools/release.py

clean:
	rm -rf $(VENV) .venv-* build .cache .coverage .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
