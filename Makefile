# Two commands, from a fresh checkout with only Python 3.11 or newer: `make demo` and `make test`.
# ARGS= passes flags through: make demo ARGS="--nodes 8", make test ARGS="-k ranks".

VENV   ?= .venv
# First the distribution's own Python, if it can make a virtual environment: it is built with optimisations that one from
# pyenv lacks, which takes a third more CPU time for the tests of the screen.
PYTHON ?= $(shell for p in /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11 \
	python3.13 python3.12 python3.11 python3.14 python3 python; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
PY     := $(VENV)/bin/python
ARGS   ?=

.PHONY: help demo quick test full campaign bench faults soak fuzz lint docs release clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    a cluster on this machine with a job on it, in the console (q quits)"
	@echo "make quick   lint, and the tests that fit into a minute; run it before each commit"
	@echo "make test    lint, types, import rules and all tests but the long ones: at most ten minutes"
	@echo "make full    make test, the long tests and a slice of the campaign: at most an hour"
	@echo "make campaign  what takes hours, a part at a time: ARGS=\"soak\"; without ARGS, the parts"
	@echo "make docs    the documentation as a site in build/site, and the manual page build/gconsole.1"
	@echo "make release wheel, sdist, SBOM and checksums in build/release, tried in a clean environment"
	@echo "make bench   the measurements; writes tests/bench/RESULTS.md"
	@echo "make fuzz    every parser of external input, a minute each; ARGS=\"--seconds 600 link\""
	@echo "make faults  every fault, measured; writes tests/faults/RESULTS.md"
	@echo "make soak    an hour of random faults: ARGS='--for 600' for ten minutes"

$(VENV)/.run: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "gconsole needs Python 3.11 or newer, and none is on the PATH"; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.test: $(VENV)/.run
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

demo: $(VENV)/.run
	@$(VENV)/bin/gconsole demo $(ARGS)

test: $(VENV)/.test $(VENV)/.docs
	@$(PY) tests/run.py $(ARGS)

quick: $(VENV)/.test
	@$(PY) tests/run.py --quick $(ARGS)

full: $(VENV)/.fuzz $(VENV)/.spark
	@$(PY) tests/run.py --full $(ARGS)

campaign: $(VENV)/.fuzz
	@$(PY) tests/campaign.py $(ARGS)

lint: $(VENV)/.test
	@$(PY) tests/lint.py

$(VENV)/.docs: $(VENV)/.run
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet $(ARGS)
	@$(PY) tools/reference.py man build/gconsole.1

$(VENV)/.release: $(VENV)/.run
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[release]'
	@touch $@

release: $(VENV)/.release
	@rm -rf build/release
	@$(PY) tools/release.py $(ARGS)

bench: $(VENV)/.test
	@$(PY) -m tests.bench $(ARGS)

$(VENV)/.fuzz: $(VENV)/.test
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]' || \
		echo "atheris is not available for this Python: inputs are mutated at random instead"
	@touch $@

$(VENV)/.spark: $(VENV)/.test
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[engines,spark]'
	@touch $@

fuzz: $(VENV)/.fuzz
	@$(PY) -m tests.fuzz $(ARGS)

faults: $(VENV)/.test
	@$(PY) -m tests.faults.results $(ARGS)

soak: $(VENV)/.test
	@$(PY) -m tests.faults.soak $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .fuzz .campaign
