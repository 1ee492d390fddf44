# Every verb makes .venv by itself when it is missing or older than the files that define it.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test test-all check docs bench campaign clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/demo.py

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow"

test-all: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q --doctest-modules vicinal
	$(BIN)/python -m mkdocs build --quiet --strict --site-dir .venv/site

docs: $(STAMP)
	$(BIN)/python -m mkdocs build --strict

bench: $(STAMP)
	$(BIN)/python benchmarks/objectives.py
	$(BIN)/python benchmarks/evaluation.py

campaign: $(STAMP)
	PYTHONPATH=campaign $(BIN)/python campaign/run.py

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
