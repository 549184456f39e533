# `make demo` and `make test` set up whatever they need, from a bare checkout with Python 3.11+, make and a C toolchain.
PYTHON ?= python3
BIN := .venv/bin
# uv resolves differently and does not see locally provided wheels, so pip it is.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: install demo test unit-tests integration-tests lint format benchmark clean

install: .venv/installed

demo: .venv/installed
	$(BIN)/kgqa evaluate method=arg llm=embedded run.limit=200
	$(BIN)/kgqa report "$$(ls -td runs/sample-arg-embedded-*/ | head -n 1)"

test: .venv/installed-test
	infra/install-virtuoso.sh
	infra/install-chromium.sh
	infra/install-prometheus.sh
	infra/install-kubectl.sh
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) --no-print-directory --jobs=2 --output-sync=line unit-tests integration-tests

# Run beside each other, as the second half mostly waits for servers. What the first prints stands together for
# --output-sync; what is marked with + is printed as it comes.
unit-tests: .venv/installed-test
	$(BIN)/pytest --durations=20 --ignore=tests/integration

integration-tests: .venv/installed-test
	+$(BIN)/pytest --durations=40 tests/integration

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

benchmark: .venv/installed-test
	$(BIN)/kgqa benchmark all

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install --constraint constraints.txt --editable .
	touch $@

# torch first and alone: with it in place, nothing below can pull in a CUDA build. vLLM asks for packages of images and
# sounds whose builds do not fit that torch; transformers fails on them where they are, and nothing here misses them.
.venv/installed-test: .venv/installed
	$(PIP) install --constraint constraints.txt torch
	$(PIP) install --constraint constraints.txt --editable '.[test,notebooks]'
	$(PIP) uninstall --yes torchvision torchaudio torchcodec
	touch $@
