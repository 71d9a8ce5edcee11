# Two commands on a fresh machine: `make demo` and `make test`. Everything is installed into .venv.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin

.PHONY: demo test lint docs bench bench-quick torture requirements clean

demo: $(VENV)/ready
	$(RUN)/python examples/demo.py

test: $(VENV)/ready
	$(RUN)/python -m pytest -n auto --dist worksteal

lint: $(VENV)/ready
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

docs: $(VENV)/ready
	$(RUN)/python -m holdfast.cli.reference > docs/CLI.md
	$(RUN)/python -m holdfast.cli.error_reference > docs/reference/errors.md
	$(RUN)/python -m holdfast.flow.reference > docs/reference/flow.md
	$(RUN)/python -m holdfast.settings.reference < holdfast.example.yaml > docs/reference/settings.md
	$(RUN)/python -c "from holdfast.flow.schema import schema_text; print(schema_text(), end='')" > docs/flow.schema.json
	$(RUN)/python tests/screens.py

torture: $(VENV)/ready
	HOLDFAST_TORTURE=1 $(RUN)/python -m pytest tests/crash tests/recovery tests/seeds tests/unit/flow

bench: $(VENV)/bench-ready
	$(VENV)/bench/bin/python -m benchmarks all
	$(VENV)/bench/bin/python -m benchmarks.steps
	$(VENV)/bench/bin/python -m benchmarks.recovery
	$(VENV)/bench/bin/python -m benchmarks.flows

bench-quick: $(VENV)/bench-ready
	$(VENV)/bench/bin/python -m benchmarks conversation --quick

requirements:
	$(RUN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --generate-hashes --no-emit-index-url --group dev pyproject.toml -o requirements.txt

$(VENV)/bin/uv:
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/ready: requirements.txt pyproject.toml | $(VENV)/bin/uv
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(RUN)/uv pip sync --quiet --require-hashes requirements.txt
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(RUN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/bench-ready: benchmarks/requirements.in pyproject.toml | $(VENV)/bin/uv
	$(RUN)/uv venv --quiet --allow-existing $(VENV)/bench
	VIRTUAL_ENV=$(CURDIR)/$(VENV)/bench $(RUN)/uv pip install --quiet -e . -r benchmarks/requirements.in
	touch $@

clean:
	rm -rf $(VENV)
