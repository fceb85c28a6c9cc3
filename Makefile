# Everything runs in .venv, which `tools/venv` makes from whatever Python >= 3.11 is here.
.DEFAULT_GOAL := help
.PHONY: help run play test test-all check lint types services format bench bench-core bench-cron bench-worker bench-api fuzz docs clean

BIN := .venv/bin
# xdist would only add its start-up on one core
WORKERS := $(shell nproc 2>/dev/null || echo 2)

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | expand -t 14

run: .venv/.run ## start Mainspring with example jobs, on the embedded Postgres; Ctrl-C stops it
	@$(BIN)/mainspring dev

play: .venv/.run ## try schedules out: type one, see what it means and when it fires
	@$(BIN)/mainspring cron play

test: lint types services ## everything that guards main: lint, types, import contract, all tests in their ordinary size
	$(BIN)/pytest -n $(WORKERS) -m "not long" --matrix

check: lint types ## the quick part of `test`, for the inner loop
	$(BIN)/pytest -q tests/unit

test-all: lint types services ## `test` plus the long sizes: every zone, every change of the clock (about ten minutes)
	MAINSPRING_EXAMPLES=5000 $(BIN)/pytest -n $(WORKERS) --matrix -o faulthandler_timeout=1800

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

services: ## install what the tests need beside Python, if it is missing and we may
	@tools/services

format: .venv/.dev ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: bench-cron bench-core bench-worker bench-api ## every figure we publish

bench-core: .venv/.bench ## fires/s, jobs/s, herd, lag, bytes: ours, PgQueuer, Procrastinate (about five minutes)
	$(BIN)/python bench/core.py

bench-worker: .venv/.bench ## ms per run in each mode, HTTP runs/s, pickup, submits/s (about three minutes)
	$(BIN)/python bench/worker.py

bench-api: .venv/.bench ## p99 of status reads at 3,000/s and creates at 1,000/s beside 500 fires/s: ours, Starlette (about eleven minutes)
	$(BIN)/python bench/api.py

bench-cron: .venv/.bench ## next()/s and DST score: ours, croniter, cronsim, APScheduler
	$(BIN)/python bench/cron.py

fuzz: .venv/.dev ## 100,000 generated requests to a real server: no 5xx, nothing undescribed (about 20 minutes on two cores)
	$(BIN)/python tools/fuzz.py --requests 100000

docs: .venv/.docs ## build the documentation site into site/
	$(BIN)/zensical build --clean

clean: ## remove what the targets made
	rm -rf .venv build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/.run: pyproject.toml constraints.txt
	@echo "Setting up .venv (once)"
	@tools/venv
	@touch $@

.venv/.%: pyproject.toml constraints.txt
	@echo "Setting up .venv for $* (once)"
	@tools/venv $*
	@touch $@
