# Everything on a fresh machine with make and Python 3.11 or newer: `make demo`, `make test`.
# Another Python: make PYTHON=python3.13 …; more for a command: make test ARGS='-k approvals'.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ARGS   ?=

.PHONY: help setup demo test safeguards handlings check serve bench clean

help:
	@echo "make setup   prepare $(VENV), with $(BIN)/devfix in it"
	@echo "make demo    watch a defect being found and fixed"
	@echo "make test    run all tests"
	@echo "make safeguards  the proof that the crash campaign can fail (half an hour)"
	@echo "make handlings   the proof that the fault campaign can fail (half an hour on a busy machine)"
	@echo "make check   ruff, mypy and the floors"
	@echo "make serve   the LangGraph dev server with the agent"
	@echo "make bench   the figures"

setup: $(READY)

# Made anew when what is needed changes; a second run is a look at two dates.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is %d.%d: make PYTHON=python3.11 ..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[serve,dev]'
	@touch $@

demo: $(READY)
	$(BIN)/devfix demo $(ARGS)

test: $(READY)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal $(ARGS)

safeguards: $(READY)
	$(BIN)/python -m tests.safeguards $(ARGS)

handlings: $(READY)
	$(BIN)/python -m tests.handlings $(ARGS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

serve: $(READY)
	$(BIN)/python -m scripts.serve $(ARGS)

bench: $(READY)
	$(BIN)/devfix bench $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info
