# `make check` is what CI runs. The virtual environment is the one that the README makes.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)
COMPLETE := pickles containers layouts comparison# covered to the last branch

.PHONY: check lint test coverage truth fixtures bench docs

check: lint test coverage truth

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(PYTHON) -c "from importlinter.cli import lint_imports_command as lint; lint()"

test:
	$(PYTHON) -m pytest -n auto

coverage:
	$(PYTHON) -m pytest -n auto $(COMPLETE:%=tests/%) $(COMPLETE:%=--cov=ckpttool.%) --cov-branch --cov-fail-under=100

# Verdicts about scripts against what their resumes really do; every case with `--all`, in half an hour.
truth:
	$(PYTHON) -m tests.probe.agreement

# Needs the network, and the Pythons that the scripts in fixtures/scripts name.
fixtures:
	$(PYTHON) fixtures/scripts/make.py

# Writes about 4 GB into the temporary folder, and takes some minutes.
bench:
	$(PYTHON) -m tests.benchmarks

docs:
	$(PYTHON) -m ckpttool.cli.manual > docs/cli.md
	$(PYTHON) -m ckpttool.cli.rule_pages > docs/rules.md
