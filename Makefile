# Headrace. `make serve` talks, `make test` proves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.headrace-installed
ARGS   ?=
VERSION = $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' services/common/version.py)

.DEFAULT_GOAL := help
.PHONY: help install serve test fleet-test unit lint format protos protos-check docs bench soak check clean

help:  ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  ARGS="..." adds flags to serve, test and bench.'

install: $(READY)  ## create .venv and install everything into it

$(READY): pyproject.toml
	@echo "[install] creating $(VENV) and installing: the downloads take a few minutes the first time"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip setuptools
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[all,dev]'
	@touch $@

serve: install  ## start everything on 127.0.0.1:30000 and show how to talk to it
	@exec $(BIN)/headrace up $(ARGS)

test: install  ## all tests but the fleets under deaths and the alerts on faults (minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --ignore=tests/fleet --ignore=tests/ops/test_alerts.py $(ARGS)

fleet-test: install  ## fleets of real programs under kills and rolling restarts, and a Prometheus that sees faults (minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/fleet tests/ops/test_alerts.py $(ARGS)

unit: install  ## unit tests (seconds)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/unit tests/test_layering.py $(ARGS)

lint: install  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/mypy headrace services gateway benchmarks tests

format: install  ## sort imports, apply ruff's safe fixes
	$(BIN)/ruff check --fix .

protos: install  ## generate the stubs from protos/
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. $$(find protos -name '*.proto')

protos-check: install  ## fail if the committed stubs are not what the contracts generate
	@$(BIN)/python tests/check_stubs.py

docs: install  ## write the generated pages of docs/ and the dashboards
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/dashboards.py

bench: install  ## load the running server; ARGS as for `headrace bench serve`
	$(BIN)/headrace bench serve $(ARGS)

soak: install  ## half an hour of twice the load the suite can bear; ARGS="--minutes 5" for less
	$(BIN)/python -m benchmarks.soak $(ARGS)

check: lint protos-check test fleet-test  ## what CI runs

clean:  ## remove the environment and caches inside the repository
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: helm-test ops-test rolling-restart images images-check

helm-test: install  ## the chart, its rules and dashboards: helm, kubectl and promtool on every ci/ file
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/helm $(ARGS)

ops-test: install  ## drain, rolling restart, metrics and alerts of the running suite (minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/ops $(ARGS)

rolling-restart: install  ## replace every pod of a release on this machine under load, and count failed requests
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.ops.rolling_restart $(ARGS)

images:  ## build all images as localhost/headrace-<program>:<version>
	for file in gateway/Dockerfile services/*/Dockerfile; do \
	  docker build --file $$file --tag localhost/headrace-$$(basename $$(dirname $$file)):$(VERSION) . || exit 1; done

images-check: install  ## the images' build steps in clean environments: size, no torch, healthy with a read-only root
	$(BIN)/python -m tests.helm.images $(ARGS)
