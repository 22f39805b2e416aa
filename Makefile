# Everything a contributor runs. Needs Python >= 3.11 and make; the rest is installed into .venv from the lock.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
PIP     := $(BIN)/python -m pip --disable-pip-version-check --no-input
# What is locked takes uv a quarter of pip's time, most of it spared by not compiling what nobody imports.
UV      := $(BIN)/uv pip install --quiet --python $(BIN)/python
LOCKED  := --require-hashes --only-binary :all: --requirement requirements-dev.lock
OURS    := policy workflows activities workers starter simulator demo
PYTHON  ?= python3
ARGS    ?=
# In seven processes, as much of it waits (tests/conftest.py); PARALLEL= runs all in one, as plain pytest does.
PARALLEL ?= --numprocesses 7 --no-loadscope-reorder
IMAGE   ?= nodewarden:dev
SBOM    ?= dist/nodewarden.cdx.json
LOCKS   ?= requirements.lock requirements-dev.lock requirements-build.lock

# Tests and the demo start `temporal` and `nodewarden` as a user would, by name.
export PATH := $(CURDIR)/$(BIN):$(PATH)

# Underlining the place in a traceback's line means parsing that line: a twelfth of what the tests of workflows do, as each failed attempt has one.
test test-fast: export PYTHONNODEBUGRANGES = 1

# Temporal's servers look a quarter as often for garbage: an eighth of what they do in these tests.
test test-fast: export GOGC = 400

# Where it is set, every process that tests start compiles all of its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show these targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: $(STAMP) ## Run the main job on a simulated cluster; KEEP=1 stays up, PLATFORM=ipmi|redfish|aws|gce|pdu, SCENARIO=observe
	@$(BIN)/python -m demo $(if $(PLATFORM),--platform $(PLATFORM)) $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(filter-out 0,$(KEEP)),--keep) $(ARGS)

.PHONY: test
test: $(STAMP) ## Run everything that CI runs; ARGS="-k permit" is handed to pytest
	@$(MAKE) --jobs 2 lint warmed
	@$(BIN)/python -m pytest $(PARALLEL) --durations=20 --durations-min=10 $(ARGS)

# Beside lint, whose tools have one process for most of their time. What fails here fails again where it is shown.
.PHONY: warmed
warmed: $(STAMP) ## Compile every module once, and not once in each process of the tests
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true

.PHONY: test-fast
test-fast: $(STAMP) ## Run the tests that need no whole system: seconds, not minutes
	@$(BIN)/python -m pytest -m "not system" $(ARGS)

# Two processes: each system that stands has an API server and an etcd of its own, and a worker or more.
.PHONY: test-real
test-real: $(STAMP) ## Run systems, security, chart on KUBEBUILDER_ASSETS=/folder with etcd and kube-apiserver; lists what it can't run
	@$(BIN)/python -m tests.system.real_api
	@$(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder tests/system tests/security tests/deploy tests/web/test_killed_worker.py $(ARGS)

# One arena: two workers, Temporal, a simulated cluster, a BMC each. Half a core, so several may run side by side.
.PHONY: chaos
chaos: $(STAMP) ## Kill, freeze and mislead a whole system, and judge it; SEED=7, MINUTES=10 or HOURS=8, NODES=96, WORKERS=3, ROUND=3
	@$(BIN)/python -m tests.system.chaos $(if $(SEED),--seed $(SEED)) $(if $(HOURS),--hours $(HOURS)) $(if $(MINUTES),--minutes $(MINUTES)) \
	    $(if $(NODES),--nodes $(NODES)) $(if $(WORKERS),--workers $(WORKERS)) $(if $(ROUND),--round $(ROUND)) $(ARGS)

.PHONY: lint
lint: $(STAMP) ## Check style, format, types and import contracts
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/pyrefly check --output-format min-text
	@$(BIN)/lint-imports --no-logo

.PHONY: format
format: $(STAMP) ## Put the code into the house format and mend what ruff can mend
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

.PHONY: bench
bench: $(STAMP) ## Run the benchmarks and print their figures
	@set -e; for file in benchmarks/[a-z]*.py; do \
	    echo "== $$file"; $(BIN)/python -m "benchmarks.$$(basename "$$file" .py)" $(ARGS); \
	done

.PHONY: docs
docs: $(STAMP) ## Build the site of docs/ into dist/site; a link that leads nowhere fails it
	@$(BIN)/zensical build --clean --strict

.PHONY: reference
reference: $(STAMP) ## Write anew what docs/ has from code: settings, commands, objects, workflows, metrics
	@$(BIN)/python -m tests.docs.reference
	@$(BIN)/python -m tests.docs.sentences

.PHONY: pictures
pictures: $(STAMP) ## Show a demo and the page, and take the pictures of docs/ anew
	@$(BIN)/python -m tests.docs.pictures
	@$(BIN)/python -m tests.web.pictures

LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock"

.PHONY: lock
lock: $(STAMP) ## Re-create the locks with today's versions of what pyproject.toml asks for
	@$(LOCK) pyproject.toml --extra ui --output-file requirements.lock
	@$(LOCK) pyproject.toml --extra local --extra otel --extra ui --group dev --constraint requirements.lock --output-file requirements-dev.lock
	@$(LOCK) --group build --constraint requirements-dev.lock --output-file requirements-build.lock

.PHONY: chart
chart: $(STAMP) ## Write what of deploy/chart and docs/install.md is made from our own tables
	@$(BIN)/python -m supply_chain.chart

.PHONY: sbom
sbom: $(STAMP) ## Write what the image is made of as CycloneDX to dist/nodewarden.cdx.json
	@mkdir -p $(dir $(SBOM))
	@$(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-reproducible --output-file $(SBOM)

.PHONY: audit
audit: $(STAMP) ## Hold the locks against ADVISORIES=file, OSV records as JSON or in a zip; needs no network
	@$(if $(ADVISORIES),,echo "make: expected ADVISORIES=file, such as OSV's all.zip of PyPI" >&2; exit 2;) \
	    $(BIN)/python -m supply_chain.audit $(ADVISORIES) $(LOCKS)

.PHONY: image
image: ## Build the worker's container image as nodewarden:dev
	docker build --tag $(IMAGE) .

.PHONY: clean
clean: ## Remove the environment, caches and build results
	rm -rf $(VENV) dist .cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(wildcard $(OURS)) tests benchmarks supply_chain -type d -name __pycache__ -prune -exec rm -rf {} +

# Hashes and wheels only: nothing is resolved, built or trusted anew on the user's machine. The project itself is installed
# with the locked build backend, so that this second step needs no network. What uv had got when a connection failed is in its
# cache: it tries once more in seconds, and pip takes a minute.
$(STAMP): requirements-dev.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is not on PATH; nodewarden needs Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "make: nodewarden needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V 2>&1); try: make PYTHON=python3.13 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "make: $(PYTHON) can't make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing locked dependencies into $(VENV)"
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.lock >$(VENV)/uv.lock
	@$(PIP) install --quiet --require-hashes --only-binary :all: --requirement $(VENV)/uv.lock
	@$(UV) $(LOCKED) || $(UV) $(LOCKED) || { echo "uv can't (see above); pip, which has its own settings, tries" >&2; $(PIP) install --quiet $(LOCKED); }
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
