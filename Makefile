# make demo      set everything up and run the sample messages
# make check     format, lint, types: under a minute
# make test      the daily loop: all that a change breaks quickly, the broker contract and a browser included
# make test-all  every test on this Python, then the others: chaos, full walks, fuzzing
# make core      build the compiled core and install it: needs cargo. make demo and make test do so if cargo is there
# make bench-compare  cost of recognition and of the agent against the last committed run: minutes
# make engines   install Spark, Ray, deltalake and pyiceberg for the tests of batch with them: 600 MB; Spark needs Java 17
# make models    train the models of the default: some minutes of CPU for each
PYTHON ?= python3
VENV ?= .venv
TESTS ?=
# Other interpreters for make test-all, as in DEID_TEST_PYTHONS=/usr/bin/python3.12:/usr/bin/python3.13
DEID_TEST_PYTHONS ?=
BIN := $(VENV)/bin

PYTEST := python -m pytest -n 2 --no-loadscope-reorder

.PHONY: demo test test-all test-pythons check format core check-core engines models lock lock-engines bench bench-compare release clean

demo: $(VENV)/.core
	@$(BIN)/deid-agent demo --out demo-out

test: $(VENV)/.core
	$(BIN)/$(PYTEST) -m "not full" $(TESTS)

test-all: $(VENV)/.core
	$(BIN)/$(PYTEST) $(TESTS)
	@$(MAKE) --no-print-directory test-pythons

# The other Pythons run the quick tests, without those of a broker, a browser, a wheel or a page: these do not depend on the interpreter.
# Python 3.12 runs those of recognition and messages without the compiled core, as a machine without cargo does.
WITHOUT_CORE := tests/property tests/contract $(addprefix tests/unit/,agent codec measure model nlp pipeline recognize rules surrogate)

test-pythons:
	@for python in $(subst :, ,$(DEID_TEST_PYTHONS)); do \
	  version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  if [ "$$version" = "$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')" ]; then continue; fi; \
	  echo "Python $$version"; \
	  ready=.core; tests="$(TESTS)"; \
	  if [ "$$version" = 3.12 ]; then ready=.ready; tests="$${tests:-$(WITHOUT_CORE)}"; fi; \
	  $(MAKE) --no-print-directory VENV=".venv-$$version" PYTHON="$$python" ".venv-$$version/$$ready" || exit 1; \
	  ".venv-$$version/bin/"$(PYTEST) -q -m "not full and not broker and not wheel" \
	    --ignore tests/docs --ignore tests/system $$tests || exit 1; \
	done

check: $(VENV)/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy deid_agent tests

format: $(VENV)/.ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# One wheel serves every supported Python: it uses the stable ABI.
CORE := $(wildcard core/src/*.rs) core/Cargo.toml core/Cargo.lock core/pyproject.toml core/README.md
WHEELS := core/target/wheels

core: $(WHEELS)/.built
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall $(WHEELS)/*.whl

$(WHEELS)/.built: $(CORE) | $(VENV)/.ready
	@rm -rf $(WHEELS)
	$(BIN)/maturin build --quiet --release --locked --compatibility linux --interpreter $(BIN)/python \
	  --manifest-path core/Cargo.toml --out $(WHEELS)
	@touch $@

check-core:
	cd core && cargo fmt --check
	cd core && cargo clippy --quiet --locked --release --all-targets -- -D warnings
	cd core && cargo test --quiet --locked --no-default-features

# Without a compiler, or if the build fails, the models run in Python.
$(VENV)/.core: $(CORE) $(VENV)/.ready
	@if ! command -v cargo > /dev/null; then echo "cargo is not installed: the models run in Python"; \
	  elif ! $(MAKE) --no-print-directory core; then echo "the compiled core was not built: the models run in Python"; fi
	@touch $@

# pyspark has no wheel. It is built by the setuptools of the lock file, so that nothing unpinned is fetched.
PIP_LOCKED := $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all:

engines: $(VENV)/.ready
	awk '/^[^ ]/ {wanted = /^setuptools==/} wanted' requirements-engines.lock > $(VENV)/engines-build.txt
	$(PIP_LOCKED) -r $(VENV)/engines-build.txt
	$(PIP_LOCKED) --no-binary pyspark --no-build-isolation -r requirements-engines.lock

models: $(VENV)/.ready
	$(BIN)/deid-agent train all --corpus corpus --out models
	$(BIN)/python .ci/pin_models.py

bench: $(VENV)/.ready
	for script in tests/bench/bench_*.py; do $(BIN)/python $$script || exit 1; done

# Wheel, sdist, SBOM, provenance and SHA256SUMS in dist, from a committed tree (docs/release.md).
release: $(VENV)/.ready
	$(BIN)/python .ci/make_release.py

# What costs more than in the last committed run, as ratios to a fixed loop. BENCH=--rivals also measures other programs.
bench-compare: $(VENV)/.ready
	$(BIN)/python tests/bench/suite.py --compare $(BENCH)

# Everything from the lock file, by digest, wheels only: no compiler, nothing unpinned.
$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else "deid-agent needs Python 3.11, 3.12 or 3.13; say which with: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Needs uv on the path; it resolves for every supported Python at once.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --custom-compile-command "make lock" --extra aws --extra batch --extra train --extra train-neural --extra vault --group dev pyproject.toml -o requirements.lock

# The versions that both files have are those of requirements.lock.
lock-engines:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --custom-compile-command "make lock-engines" --constraint requirements.lock \
	  --extra batch-spark --extra batch-ray --extra batch-delta --extra batch-iceberg --group engines pyproject.toml -o requirements-engines.lock

clean:
	rm -rf $(VENV) demo-out dist build
