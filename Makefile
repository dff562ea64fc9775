# Every target works in .venv at the root and makes it when it is missing or when its inputs changed.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: demo test lint format clean

$(VENV)/.ready: pyproject.toml tests/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint tests/constraints.txt torch==2.13.0
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint tests/constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/.ready  ## fill three kernels with the shipped checkpoint and print what each candidate is worth
	$(RUN) -m dice_lsp demo

test: $(VENV)/.ready  ## every test that this machine can run
	$(RUN) -m pytest

lint: $(VENV)/.ready  ## what CI refuses
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy --strict dice_lsp

format: $(VENV)/.ready  ## fix what can be fixed
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

clean:  ## remove what the other targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
