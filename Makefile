# Every target sets itself up: one stamp for each part of the environment, and each command is shown as it runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

.PHONY: help setup demo check docs test proof bench lock clean
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

setup: $(VENV)/.production ## Install all that runs in production: real models, PostgreSQL, telemetry

demo: $(VENV)/.core ## Run a task, kill its worker, see it recover and finish (no key, no network)
	$(BIN)/python -m client.demo

check: $(VENV)/.dev ## Lint, types, import contracts, computed pages of docs/, what is in deploy/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m client.docs --check
	$(BIN)/python -m tests.deploy.validators

docs: $(VENV)/.core ## Write the pages of docs/ that are computed from the code
	$(BIN)/python -m client.docs

test: check ## The checks, and every fast test
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow"

proof: $(VENV)/.dev $(VENV)/.proof-system ## The slow proofs: every kill point, server kills, long waits
	$(BIN)/pytest -n 2 --dist loadfile -m slow --durations 10 -rs

bench: $(VENV)/.dev ## What it costs: start, latency, recovery, a step (docs/benchmarks.md says how to read it)
	$(BIN)/python -m bench.start
	$(BIN)/python -m bench.latency
	$(BIN)/python -m bench.recovery
	$(BIN)/python -m bench.step_cost

# The lock files: versions with hashes, no addresses. core = demo, production = core + models, PostgreSQL, telemetry.
lock: ## Resolve the versions anew (needs uv)
	uv pip compile pyproject.toml $(PRODUCTION) --extra dev -o requirements/all.lock $(LOCK)
	sed -nE 's/^([a-zA-Z0-9._-]+==[^ ;]+).*/\1/p' requirements/all.lock > requirements/constraints.txt
	uv pip compile pyproject.toml requirements/build.in -c requirements/constraints.txt -o requirements/core.lock $(LOCK)
	uv pip compile pyproject.toml requirements/build.in $(PRODUCTION) -c requirements/constraints.txt -o requirements/production.lock $(LOCK)
	rm requirements/constraints.txt
PRODUCTION := --extra model --extra postgres --extra telemetry
LOCK := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet

clean: ## Remove the environment (never the data folder)
	rm -rf $(VENV) *.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.system: deploy/system-packages.sh
	sh deploy/system-packages.sh
	@mkdir -p $(VENV) && touch $@

$(VENV)/.python: | $(VENV)/.system
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: requirements/core.lock pyproject.toml | $(VENV)/.python
	$(PIP) --require-hashes --no-deps -r requirements/core.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.production: requirements/production.lock | $(VENV)/.core
	$(PIP) --require-hashes --no-deps -r requirements/production.lock
	@touch $@

$(VENV)/.test-system: deploy/system-packages.sh | $(VENV)/.system
	sh deploy/system-packages.sh test
	@touch $@

$(VENV)/.proof-system: deploy/system-packages.sh | $(VENV)/.system
	sh deploy/system-packages.sh proof
	@touch $@

$(VENV)/.dev: requirements/all.lock | $(VENV)/.core $(VENV)/.test-system
	$(PIP) --require-hashes --no-deps -r requirements/all.lock
	@touch $@
