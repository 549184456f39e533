# Every target installs its requirements in a fresh checkout. Needs Python 3.11 or newer and GNU make. The targets that
# install the test requirements need a C toolchain too.
PYTHON ?= python3
BIN := .venv/bin
# Let Python keep compiled files. Without them, each of the many processes that the tests start compiles all anew.
unexport PYTHONDONTWRITEBYTECODE
# pip, not uv: uv resolves differently and does not find local wheels.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: install demo test test-all test-large system-packages golden lint compiled-tests format docs benchmark benchmark-compare clean

install: .venv/installed

demo: .venv/installed
	$(BIN)/kgqa sweep docs/bundled-model/demo.txt llm=embedded run.limit=200 run.dir=runs/demo
	$(BIN)/kgqa report runs/demo
	@echo 'Two methods, ArG and SRP, answered the same 200 questions with the same small Llama. The table above has their'
	@echo 'scores, and the report shows them by the number of hops that a question needs.'
	@echo 'Next, type: . $(BIN)/activate && kgqa losses runs/demo    (where the right answers were lost, and why)'

# To run before each commit: all tests except the exhaustive ones, with one real instance of each component.
test: .venv/installed-test system-packages
	$(MAKE) --jobs=2 lint compiled-tests
	$(BIN)/pytest -m "not exhaustive" --hypothesis-profile=quick -n 3 --durations=15

# All tests. They start their own servers. Three processes share them, as tests wait for servers a part of their time.
# Those of Ray and of real models run in one process.
test-all: .venv/installed-test system-packages
	$(MAKE) --jobs=2 lint compiled-tests
	$(BIN)/pytest -n 3 --durations=30

# The largest sizes, for a release: 10,000 questions over misbehaving servers, 10,000 changed run folders, 100,000
# changed answers of servers for each property, 100,000 texts for each parser, each configuration of a sweep alone, each
# damaged file in each command, markers in all names for each preset, a requeued job of Slurm. They take more than an
# hour.
test-large: .venv/installed-test system-packages
	$(BIN)/pytest -m large -n 3
	$(BIN)/pytest --hypothesis-profile=large --timeout=0 -k "changed or damaged or stray" -n 3 \
		tests/llm/test_misbehaving_server.py tests/kg/test_damaged_results.py

system-packages:
	infra/install-virtuoso.sh
	infra/install-chromium.sh
	infra/install-prometheus.sh
	infra/install-slurm.sh

# Compare call keys and answers of every method with the recorded ones. A refactoring must not change them.
golden: .venv/installed-test
	$(BIN)/python -m tests.golden compare

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Rewrite the assertions of new tests once, on the processor that lint leaves free: each process of the tests would do it.
compiled-tests: .venv/installed-test
	$(BIN)/pytest --collect-only > /dev/null

format: .venv/installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/installed-test
	$(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

benchmark: .venv/installed-test
	$(BIN)/kgqa benchmark all

# Compare the speed of the main job at another commit with this tree's: `make benchmark-compare BASE=<commit>`.
benchmark-compare: .venv/installed-test
	$(BIN)/python -m tests.compare_commits $(BASE) $(WORDS)

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install --constraint constraints.txt --editable .
	touch $@

# Install torch first, so that no other package installs a CUDA build. vLLM requires image and audio packages that are
# not compatible with this torch. transformers fails if they are installed, and nothing here uses them. JupyterLab is left
# out: with what it installs, `import ray` takes one second more, in each of the eight processes of a cluster.
.venv/installed-test: .venv/installed
	$(PIP) install --constraint constraints.txt torch
	$(PIP) install --constraint constraints.txt --editable '.[test]'
	$(PIP) uninstall --yes torchvision torchaudio torchcodec
	touch $@
