# make demo   the main job on recorded machines, within a minute
# make test   everything that is tested
# make lint   style, types and the layers of the house
# make bench  figures, each beside a reference measured in the same run
.PHONY: demo test lint bench docs environment test-environment controlplane catalogue clean
PYTHON ?= python3
BIN := .venv/bin
checks := $(wildcard checks/*.yaml checks/*/*.yaml)

demo: environment catalogue
	@$(BIN)/python -m nodeguard.cli.main --version >/dev/null
	@$(BIN)/python scripts/demo.py

test: test-environment controlplane catalogue
	$(BIN)/python -m pytest $(ARGS)

lint: environment catalogue
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: environment catalogue controlplane
	@for figure in bench/*.py; do $(BIN)/python $$figure || exit 1; done

environment:
	@PYTHON=$(PYTHON) scripts/environment

test-environment:
	@PYTHON=$(PYTHON) scripts/environment cc openssl promtool

# Kubernetes for the tests, without containers: built once, into ~/.cache/nodeguard.
controlplane: test-environment
	@scripts/controlplane >/dev/null

# The compiled catalogue: what a start reads instead of YAML.
catalogue: checks/compiled.msgpack
checks/compiled.msgpack: $(checks) $(wildcard nodeguard/catalog/*.py nodeguard/model/*.py nodeguard/sources/*.py) | environment
	@$(BIN)/python setup.py --quiet compile_catalogue

# The page of checks, from the catalogue.
docs: environment catalogue
	$(BIN)/nodeguard checks -o markdown > docs/checks.md

clean:
	rm -rf .venv build dist *.egg-info checks/compiled.msgpack
