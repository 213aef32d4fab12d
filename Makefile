# Everything a contributor runs. Needs Python 3.11 or newer and make; `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

BIN := .venv/bin
UV := $(BIN)/uv
INSTALLED := .venv/.installed
# What depends on the server; drivers and the embedded server itself are tested once.
STORE_TESTS = tests/store tests/operations tests/migration --ignore=tests/store/test_connections.py --ignore=tests/store/test_embedded.py
ON_NEWEST_TOO = $(addprefix tests/store/,test_connections.py test_embedded.py test_plans.py test_schedule_plans.py)
SERVICE_TESTS = $(filter-out $(addprefix tests/,__pycache__/ migration/ operations/ process/ simulation/ store/),$(wildcard tests/*/)) $(ON_NEWEST_TOO)
OLDEST = /usr/lib/postgresql/15/bin

PYTEST_ARGS ?=
ARGS ?=
PARTS ?=
SEEDS ?= 200
SEED ?= 1
MINUTES ?= 10
HOURS ?= 1
FIGURES := .cache/bench
SCENARIOS ?= drain herd latency submit

# Where this is set, Python compiles every module at every start, and the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

# A mirror that pip knows from the environment serves uv as well.
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  \033[1m%-15s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(INSTALLED) ## Make .venv with Sexton (editable), the embedded PostgreSQL and the tools, at pinned versions

.PHONY: dev
dev: setup ## Run Sexton here: API, scheduler and worker over an embedded PostgreSQL, with the demo app (ARGS=…, SEXTON_*)
	@exec $(BIN)/sexton dev $(ARGS)

# Three tiers. A test is in the lowest that has room for it: docs/testing.md.
.PHONY: check
check: lint ## Tier 1, under 3 minutes: lint, the domain, the store on PostgreSQL 18 (PYTEST_ARGS=…)
	$(BIN)/pytest -n 2 --dist=worksteal tests/unit $(STORE_TESTS) $(PYTEST_ARGS)

.PHONY: test
test: setup system ## Tier 2, 12 minutes: lint and all tests, on PostgreSQL 18, the store's on 15, the oldest that is supported
	@# Process tests wait most of the time, and for seconds that a promise names: the others have lower priority.
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target test-process-and-store test-services test-simulation

.PHONY: nightly
nightly: setup system ## Tier 3, hours: what takes longer, part by part; goes on where it was interrupted (PARTS='chaos soak')
	$(BIN)/python -m tools.nightly $(PARTS)

.PHONY: test-process
test-process: setup ## Only the tests with real processes: SIGKILL, SIGSTOP, outages, PgBouncer
	$(BIN)/pytest -n 2 --dist=worksteal tests/process $(PYTEST_ARGS)

# One after the other: together they take as long as each of the other two parts.
.PHONY: test-process-and-store
test-process-and-store: test-process
	@# Where there is no 15, on 18.
	nice $(BIN)/pytest -n 2 --dist=worksteal $(STORE_TESTS) $$(test -x $(OLDEST)/postgres && echo --postgres=15) $(PYTEST_ARGS)

.PHONY: test-services
test-services: setup
	@nice $(MAKE) --no-print-directory lint
	nice $(BIN)/pytest -n 2 --dist=worksteal $(SERVICE_TESTS) $(PYTEST_ARGS)

.PHONY: test-simulation
test-simulation: setup
	nice $(BIN)/pytest -n 2 --dist=worksteal tests/simulation $(PYTEST_ARGS)

.PHONY: test-versions
test-versions: setup ## Only the store's tests, on PostgreSQL 15, 16 and 18
	$(BIN)/python -m tools.nightly --again store-15 store-16 store-18

.PHONY: lint
lint: setup ## Check style, types and the import rules of the design
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

.PHONY: fmt
fmt: setup ## Format, and fix what can be fixed
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

.PHONY: docs
docs: setup ## Write docs/reference/ anew from the code
	$(BIN)/python -m tools.reference

.PHONY: schema
schema: setup ## Write src/sexton/store/schema.sql anew from a migrated database
	$(BIN)/python -m tools.schema

.PHONY: bench
bench: setup ## Measure every scenario and write docs/performance.md (an hour; SCENARIO=drain for one)
ifdef SCENARIO
	$(BIN)/python -m bench $(SCENARIO) --json
else
	@mkdir -p $(FIGURES)
	$(BIN)/python -m bench all --json > $(FIGURES)/figures.jsonl
	@# The flame graph is drawn where py-spy is installed.
	test ! -x $(BIN)/py-spy || $(BIN)/python -m bench.profile $(FIGURES)/stacks.txt
	@# The embedded server has no contrib modules: statements are counted on Debian's, where there is one.
	for bin in /usr/lib/postgresql/*/bin; do test ! -x "$$bin/postgres" || \
		$(BIN)/python -m bench drain --postgres-bin "$$bin" --json > $(FIGURES)/statements.jsonl; done
	$(BIN)/python -m bench.studies.knobs > $(FIGURES)/knobs.jsonl
	$(BIN)/python -m bench.page $(FIGURES)
endif

.PHONY: compare
compare: setup ## Measure the working tree against a commit, in turns (BASE=COMMIT; 25 minutes; SCENARIOS='drain herd'; ARGS='--pairs 2')
	@test -n "$(BASE)" || { echo 'make compare needs a commit: make compare BASE=HEAD~1' >&2; exit 2; }
	$(BIN)/python -m bench compare --base $(BASE) $(ARGS) $(SCENARIOS)

.PHONY: peers
peers: setup ## Measure Sexton beside other job queues, which it installs in .cache/peers (ARGS=…)
	$(BIN)/python -m bench peers --install
	@mkdir -p $(FIGURES)
	$(BIN)/python -m bench peers --json $(ARGS) | tee $(FIGURES)/peers.jsonl

.PHONY: simulate
simulate: setup ## The stepped simulation over more seeds, and without each safeguard (SEEDS=500; 17-17 replays one)
	$(BIN)/pytest tests/simulation --timeout 400 --seeds=$(if $(findstring -,$(SEEDS)),$(SEEDS),0-$(shell expr $(SEEDS) - 1)) $(PYTEST_ARGS)

.PHONY: chaos
chaos: setup system ## Real processes, and everything that can happen to them; report in chaos/report (MINUTES=10 SEED=1)
	$(BIN)/python -m chaos --minutes $(MINUTES) --seed $(SEED) $(ARGS)

.PHONY: chaos-failover
chaos-failover: setup ## Kill the primary of a replicated PostgreSQL under load (Patroni, etcd, HAProxy; ARGS='--mode async')
	$(BIN)/python -m chaos.failover $(ARGS)

.PHONY: chaos-upgrade
chaos-upgrade: setup ## The last release and this tree on one database, migrated under load (ARGS='--seconds 120')
	$(BIN)/python -m chaos.upgrade $(ARGS)

.PHONY: mutants
mutants: setup ## Hand-made slips in copies of the tree, each against the tests that must catch it; 95 % at least (ARGS='--count 20')
	nice $(BIN)/python -m tools.mutants $(ARGS)

.PHONY: soak
soak: setup ## 500 jobs/s for an hour: memory, connections, files and tables stay as they are (HOURS=1)
	$(BIN)/python -m chaos.soak --hours $(HOURS) $(ARGS)

.PHONY: lock
lock: $(UV) ## Bring constraints.txt to the newest versions that pyproject.toml allows
	$(UV) pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 --upgrade \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet --output-file constraints.txt

.PHONY: system
system: # What tests need from the machine itself; says so in one line where it cannot be installed
	@tools/system_packages.sh

.PHONY: clean
clean: ## Remove .venv, caches and build output
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints.txt | $(UV)
	$(UV) pip install --quiet --python $(BIN)/python --constraints constraints.txt --editable '.[embedded]' --group dev
	@touch $@

$(UV): constraints.txt
	@for python in python3.11 python3 missing; do \
		"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	done; \
	if [ "$$python" = missing ]; then echo 'Sexton needs Python 3.11 or newer as python3.11 or python3.' >&2; exit 1; fi; \
	"$$python" -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	@touch $@
