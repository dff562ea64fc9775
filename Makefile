# Every target works in .venv at the root and makes it when it is missing or when its inputs changed.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(VENV)/bin/pip --disable-pip-version-check install --quiet --constraint tests/constraints.txt
# PyTorch's own index has the CPU build, a tenth of the CUDA build's size. Where it cannot be reached pip goes on without.
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu

# Tests that run at once. Most wait for a child process, so two keep two cores busy; of editors only one runs at a time.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 1); if [ $$n -gt 1 ]; then echo $$((1 + n / 2)); else echo 1; fi)
# Where it is set, every server and every child that tests start would read our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test train-smoke lint format pictures clean

$(VENV)/.ready: pyproject.toml tests/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-deps --retries 1 --extra-index-url $(TORCH_CPU_INDEX) torch==2.13.0
	$(PIP) --editable '.[dev]'
	touch $@

demo: $(VENV)/.ready  ## fill four kernels with the shipped checkpoint and print what each candidate is worth
	$(RUN) -m dice_lsp demo

test: $(VENV)/.ready  ## every test that this machine can run, in both editors too; VS Code is installed into .vscode-test
	$(RUN) -m pytest --numprocesses $(JOBS) --dist loadscope --no-loadscope-reorder --durations 15

train-smoke: $(VENV)/.ready  ## a few steps of fine-tuning and one of reinforcement on the CPU, which must come out the same twice
	$(RUN) -m pytest tests/training/test_train_smoke.py --durations 0

lint: $(VENV)/.ready  ## what CI refuses
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy --strict dice_lsp

format: $(VENV)/.ready  ## fix what can be fixed
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

pictures: $(VENV)/.ready  ## take the README's pictures in both editors again
	$(RUN) -m tests.nvim.picture
	$(RUN) -m tests.vscode.pictures

clean:  ## remove what the other targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .vscode-test
	rm -rf editors/vscode/node_modules editors/vscode/test/node_modules editors/vscode/dist editors/vscode/bundled
