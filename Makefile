# make demo      a fleet on recorded machines, with faults and their handling, in 1 to 3 minutes
# make quick     the tests that need no control plane, Prometheus or root, without the slow ones: three to four minutes
# make test-cluster  the tests that `make quick` leaves out, without those in pods
# make test      all tests, those in pods where the machine can run pods; ARGS selects: make test ARGS=tests/judge
# make test-pods only the tests with images, a kubelet and pods: as root
# make lint      style, types, layers, and links of the documentation
# make docs      the reference pages, dashboards and pictures of output, and the documentation as a site in build/site
# make manifests the manifests of daemonset/ from the Helm chart
# make fixtures  the synthetic bundles that tests, figures and the demo use
# make release   wheel, sdist, chart, bill of materials and checksums of the commit, in dist/
# make bench     figures, each beside a reference measured in the same run
.PHONY: demo quick test test-cluster test-pods lint bench fixtures docs manifests release environment quick-environment test-environment controlplane catalogue clean
PYTHON ?= python3
BIN := .venv/bin
# Bytecode is written: without it, each process of pytest compiles all test modules, half of the time of its collection.
export PYTHONDONTWRITEBYTECODE :=
# Marks of the tests that need more than Python, a compiler and a few seconds. The tests of `make quick`, those of
# `make test-cluster` and those of `make test-pods` are all tests.
SYSTEM := cluster or promtool or slurm or shells or root or slow
checks := $(wildcard checks/*.yaml checks/*/*.yaml)

demo: environment catalogue
	@$(BIN)/python -m nodeguard.cli.main --version >/dev/null
	@$(BIN)/python scripts/demo.py

quick: quick-environment catalogue
	$(BIN)/python -m pytest -n $$(($$(nproc) + 1)) -m "not kubelet and not ($(SYSTEM))" $(ARGS)

test: quick-environment catalogue
ifeq ($(strip $(ARGS)),)
	@scripts/test
else
	@$(BIN)/python -m tests.tools $(ARGS)
	$(BIN)/python -m pytest $(ARGS)
endif

test-cluster: quick-environment catalogue
	@scripts/test "not kubelet and ($(SYSTEM))"

test-pods: quick-environment catalogue
	@$(BIN)/python -m tests.tools -m kubelet
	$(BIN)/python -m pytest -m kubelet

lint: environment catalogue
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/mkdocs build --strict
	@$(BIN)/python -m scripts.driver_formats

bench: environment catalogue controlplane
	@for figure in bench/*.py; do $(BIN)/python $$figure || exit 1; done

environment:
	@PYTHON=$(PYTHON) scripts/environment

quick-environment:
	@PYTHON=$(PYTHON) scripts/environment cc openssl

test-environment:
	@PYTHON=$(PYTHON) scripts/environment cc openssl promtool

# Kubernetes for tests and figures: built once, into ~/.cache/nodeguard.
controlplane: test-environment
	@scripts/controlplane kubernetes kueue owners >/dev/null

# The compiled catalogue: what a start reads instead of YAML.
catalogue: checks/compiled.msgpack
checks/compiled.msgpack: $(checks) $(wildcard nodeguard/catalog/*.py nodeguard/model/*.py nodeguard/sources/*.py) | environment
	@$(BIN)/python setup.py --quiet compile_catalogue

fixtures: environment
	@$(BIN)/python -m fixtures.bundles

# The reference pages, from the code; then the site.
docs: environment catalogue
	$(BIN)/python -m scripts.reference
	$(BIN)/python -m scripts.dashboards
	$(BIN)/python -m scripts.pictures
	$(BIN)/mkdocs build --strict

# With the Helm of `make controlplane`, or the installed one.
manifests: environment
	$(BIN)/python -m scripts.manifests

# The same bytes for each build of one commit. The workflow of the forge adds images and provenance.
release: environment
	$(BIN)/python -m scripts.release

clean:
	rm -rf .venv build dist *.egg-info checks/compiled.msgpack fixtures/generated
