# The two commands of the README: `make study` and `make test`. Everything is installed into .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)

STUDY ?= moham_arvr
OUTPUT ?= results/$(STUDY)

.DEFAULT_GOAL := help
.PHONY: help study test test-all bench lint types docs check wheel lock locked audit sbom clean

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.run: setup.cfg pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mohsearch needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	"$(PYTHON)" -m venv $(VENV)
	$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(PIP_INSTALL) --editable '.[test]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	$(PIP_INSTALL) --editable '.[test,dev]'
	@touch $@

study: $(VENV)/.run ## search the AR/VR workload at paper scale; results, table and pictures in results/
	$(BIN)/mohsearch study run $(STUDY) --output $(OUTPUT) --workers $(WORKERS)
	$(BIN)/mohsearch plot front $(OUTPUT) --output $(OUTPUT)/front.png
	$(BIN)/mohsearch plot gantt $(OUTPUT) --output $(OUTPUT)/gantt.png
	$(BIN)/mohsearch plot convergence $(OUTPUT) --output $(OUTPUT)/convergence.png

test: $(VENV)/.test ## run the tests (a few minutes)
	$(BIN)/python -m pytest -n $(WORKERS)

$(VENV)/.all: $(VENV)/.test
	$(PIP_INSTALL) --editable '.[test,cbc,cpsat,dask,gp,rl,torch]'
	@touch $@

test-all: $(VENV)/.all ## run all tests, the slow ones and those of the extras (PyTorch, OR-Tools, Dask) too
	$(BIN)/python -m pytest -n $(WORKERS) -m "not benchmark"

bench: $(VENV)/.test ## print the speed figures
	$(BIN)/python -m pytest tests/benchmarks -m benchmark -p no:xdist --benchmark-columns=min,median,max,rounds -s

lint: $(VENV)/.dev ## style, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.dev ## static types
	$(BIN)/mypy

$(VENV)/.docs: $(VENV)/.run
	$(PIP_INSTALL) --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs ## build the site into build/docs, warnings are errors (90 s; continuous integration leaves it out)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

check: lint types test ## all of the above

wheel: $(VENV)/.dev ## build sdist and wheel into dist/
	rm -rf build dist
	$(BIN)/python -m build --outdir dist .

$(VENV)/.supply: $(VENV)/.run
	$(PIP_INSTALL) --editable '.[supply]'
	@touch $@

lock: $(VENV)/.supply ## renew requirements-dev.lock: every dependency, its version and its hashes
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--extra test --extra dev --custom-compile-command 'make lock' -o requirements-dev.lock setup.cfg

locked: ## install for development exactly what requirements-dev.lock names
	"$(PYTHON)" -m venv $(VENV)
	$(PIP_INSTALL) --require-hashes --requirement requirements-dev.lock
	$(PIP_INSTALL) --no-deps --editable .
	@touch $(VENV)/.run $(VENV)/.test $(VENV)/.dev

audit: $(VENV)/.supply ## known faults of the locked dependencies (asks PyPI)
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r requirements-dev.lock

sbom: $(VENV)/.supply ## bill of materials (CycloneDX) and licences of the locked dependencies into build/
	@mkdir -p build
	rm -rf build/locked
	"$(PYTHON)" -m venv --without-pip build/locked
	$(BIN)/uv pip install --quiet --python build/locked/bin/python --require-hashes -r requirements-dev.lock
	$(BIN)/cyclonedx-py environment --output-reproducible --of JSON -o build/sbom.json build/locked/bin/python
	$(BIN)/pip-licenses --python build/locked/bin/python --format markdown --output-file build/licences.md
	rm -rf build/locked

clean: ## remove everything that was built
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache $(VENV)
