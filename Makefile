.DEFAULT_GOAL := help
.PHONY: help demo test test-server test-fast test-all test-versions test-oldest test-faults lint types docs docs-serve pages results fuzz bench bench-scale format lock licences audit-deps release-check clean

# The first of these that is Python 3.11 or later and can make a venv; or say `make PYTHON=...`.
CANDIDATES := python3.11 python3
USABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in $(CANDIDATES); do $$p -c '$(USABLE)' 2>/dev/null && echo $$p && break; done)
# delta-spark 4.4.1 has no jars in the Maven repository.
PINS := pyspark==4.2.0 delta-spark==4.4.0
READY := .venv/.installed
DEMO_READY := .venv/.demo

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

.venv/bin/python:
	@$(if $(PYTHON),,echo "no usable Python: need 3.11 or later with venv, looked for $(CANDIDATES)" >&2; exit 1)
	@"$(PYTHON)" -m venv .venv

$(READY): requirements.lock setup.py | .venv/bin/python
	@echo "setting up .venv with all that tests need (once, a minute or two)"
	@.venv/bin/python .ci/install.py requirements.lock
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(DEMO_READY) $@

# What the embedded default needs: no Spark, no tools of tests.
$(DEMO_READY): requirements-demo.lock setup.py | .venv/bin/python
	@echo "setting up .venv for the demo (once, half a minute)"
	@.venv/bin/python .ci/install.py requirements-demo.lock
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(DEMO_READY) ## reconcile two models on the bundled example
	.venv/bin/redcal demo

# Two processes: one has all tests that start a JVM, the other one the rest. Compiled files are kept:
# tests start processes.
PYTEST := PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder

test: $(READY) ## run a test of every feature, on every engine (12 minutes at most)
	$(PYTEST) -m "not slow" --durations=25

test-fast: $(READY) ## run those of them that start no JVM (3 minutes)
	$(PYTEST) -m "not slow and not spark"

test-all: $(READY) ## run every test, whole matrices and all seeds (hours); goes on where it stopped: SAVE=docs/results/test_all.json
	$(PYTEST) -n 3 -p tests.going_on $(if $(SAVE),--save $(SAVE))

test-server: $(READY) ## build the S3 server of the tests, once a machine; needs go
	.venv/bin/python -m tests.object_store

lint: $(READY) ## check rules and layout (ruff)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: $(READY) ## check types (mypy, strict)
	.venv/bin/mypy

# Not --quiet: it hides warnings from --strict, too.
docs: $(READY) ## build the site of docs/ into out/site; a broken link fails it
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict
	@echo "out/site/index.html"

docs-serve: $(READY) ## show the site at http://127.0.0.1:8000 while you write
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs serve

pages: $(READY) ## write anew what the pages tell of code, commands and docs/results
	.venv/bin/python -m tests.docs

results: $(READY) ## measure docs/results anew (an hour on a quiet machine), then the pages
	.venv/bin/python -m tests.bench core tables --save docs/results/bench.json
	.venv/bin/python -m tests.bench spark --save docs/results/bench_obvious.json
	.venv/bin/python -m tests.bench speed --work bench_speed --save docs/results/bench_spark.json
	.venv/bin/python -m tests.bench.scale bench_scale --save docs/results/scale.json
	.venv/bin/python -m tests.docs

test-versions: $(READY) ## run on all Sparks and libraries that are supported; goes on where it stopped: ROWS="oldest"
	.venv/bin/python -m tests.versions $(ROWS) --save docs/results/versions.json
	.venv/bin/python -m tests.docs

test-oldest: $(READY) ## a run, a merge and a stream on the oldest Spark, in an environment of its own
	.venv/bin/python -m tests.versions oldest --quick

test-faults: $(READY) ## kill parts of a cluster: make test-faults KILLS=50 SEED=1
	.venv/bin/python -m tests.faults --kills $(or $(KILLS),50) --seed $(or $(SEED),1)

fuzz: $(READY) ## hostile input: make fuzz CASES=20000 SEED=1
	.venv/bin/python -m tests.fuzz --cases $(or $(CASES),20000) --seed $(or $(SEED),1)

bench: $(READY) ## measure speed
	.venv/bin/python -m tests.bench

bench-scale: $(READY) ## measure how cost grows; goes on where it stopped: SCALE=folder QUICK=1
	.venv/bin/python -m tests.bench.scale $(or $(SCALE),bench_scale) $(if $(QUICK),--quick)

format: $(READY) ## mend what ruff can mend
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

LOCKED := --universal --fork-strategy fewest --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

lock: $(READY) ## resolve both lock files anew
	@printf '%s\n' $(PINS) > .venv/pins.txt
	.venv/bin/uv pip compile setup.py --quiet --upgrade --all-extras --constraint .venv/pins.txt \
		$(LOCKED) -o requirements.lock
	@printf 'setuptools\nwheel\n' > .venv/builders.txt
	.venv/bin/uv pip compile setup.py .venv/builders.txt --quiet --upgrade --extra report \
		--constraint requirements.lock $(LOCKED) -o requirements-demo.lock

licences: $(READY) ## list the licences of all that is locked
	.venv/bin/python .ci/licences.py

audit-deps: $(READY) ## look for known vulnerabilities in all that is locked
	.venv/bin/python .ci/audit_deps.py

release-check: $(READY) ## build wheel and source archive, and try both in clean environments
	.venv/bin/python .ci/release.py

clean: ## remove .venv, caches and build leftovers
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
