# Every verb makes .venv by itself when it is missing or older than the files that define it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
PLAIN := .venv/.plain
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup demo test test-all test-wheel check docs bench campaign clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -e ".[dev]"
	touch $(STAMP)

# Users' packages alone, for those who only want to see it run.
$(PLAIN): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) -e .
	touch $(PLAIN)

demo: $(or $(wildcard $(STAMP)),$(PLAIN))
	$(BIN)/vicinal demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow and not campaign"

test-all: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not campaign"

# Builds sdist and wheel, installs the wheel into an empty environment, and uses it as a new user would.
test-wheel: $(STAMP)
	$(BIN)/python -m pytest -q -n 0 tests/wheel

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/house.py
	$(BIN)/python -m pytest -q --doctest-modules vicinal
	$(BIN)/zensical build --strict

docs: $(STAMP)
	$(BIN)/zensical build --strict

bench: $(STAMP)
	$(BIN)/python benchmarks/objectives.py
	$(BIN)/python benchmarks/evaluation.py

campaign: $(STAMP)
	PYTHONPATH=campaign $(BIN)/python campaign/run.py
	$(BIN)/python -m pytest -n 2 -q -m campaign

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
