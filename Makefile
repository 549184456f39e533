# Every target sets up what it needs, from a bare checkout with Python 3.11 or newer, make and a C toolchain.
PYTHON ?= python3
BIN := .venv/bin
# uv resolves differently and does not see locally provided wheels, so pip it is.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: install demo test test-all system-packages golden lint format docs benchmark clean

install: .venv/installed

demo: .venv/installed
	$(BIN)/kgqa evaluate method=arg llm=embedded run.limit=200
	$(BIN)/kgqa report "$$(ls -td runs/synthetic-arg-embedded-*/ | head -n 1)"

# Before each commit: one real instance of each component, and all tests but the exhaustive ones.
test: .venv/installed-test system-packages lint
	$(BIN)/pytest -m "not exhaustive" -n 2 --dist loadgroup --durations=15

# Everything. The unit tests use both cores; the integration tests start servers of their own and run one by one.
test-all: .venv/installed-test system-packages lint golden
	$(BIN)/pytest -n 2 --dist loadgroup --durations=15 --ignore=tests/integration
	$(BIN)/pytest --durations=30 tests/integration

system-packages:
	infra/install-virtuoso.sh
	infra/install-chromium.sh
	infra/install-prometheus.sh
	infra/install-kubectl.sh

# Compare call keys and answers of every method on every kind of data with the recorded ones: a refactor changes none.
golden: .venv/installed-test
	$(BIN)/python -m tests.golden compare

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/installed-test
	$(BIN)/mkdocs build --strict --quiet

benchmark: .venv/installed-test
	$(BIN)/kgqa benchmark all

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

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
