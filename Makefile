# Two commands for a newcomer: `make compare` (the main job) and `make test` (the whole suite).
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
CPP := $(shell find cpp -name '*.[ch]pp')
EXTRAS := neural,serve,plots,data,vectors,dev
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(PIP_CONSTRAINT)
export OMP_WAIT_POLICY := passive

.PHONY: compare test check format clean

compare: $(READY)
	$(PY) -m chainrule compare --out runs/compare

# The parts run side by side: most of their time they wait for pip or keep one core. What a part prints is shown whole
# when it ends; one that fails is named, lets the others end and fails the whole.
PARTS := test-spark test-kenlm cpp-tests lint test-install test-openai
test: $(READY)
	rm -rf build/wheel
	$(PY) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	$(MAKE) --no-print-directory --jobs 3 --output-sync=target --keep-going $(PARTS)
	./tests/browser/install.sh
	$(PY) -m pytest -n 2 --dist worksteal -rs

.PHONY: test-install test-kenlm test-openai test-spark
test-install test-kenlm test-spark: export CHAINRULE_WHEEL = $(wildcard $(CURDIR)/build/wheel/*.whl)
test-install:
	./tests/install.sh
test-kenlm:
	./tests/clients/run.sh
test-openai: $(READY)
	./tests/clients/serve.sh openai
test-spark:
	./tests/spark/run.sh

check: lint
	$(PY) -m pytest -n 2 -m "not slow and not data"

.PHONY: lint
lint: $(READY)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run --Werror $(CPP)
	$(PY) tools/check_commit.py --since 4667b1b

format: $(READY)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/clang-format -i $(CPP)

# seqeval comes as source alone and is built by itself; the core without isolation, so that its objects serve again.
# Python compiles what it imports; pip would compile everything.
$(READY): pyproject.toml constraints.txt CMakeLists.txt cpp/CMakeLists.txt $(CPP)
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --no-compile scikit-build-core nanobind cmake ninja seqeval
	$(PY) -m pip install --quiet --no-compile --no-build-isolation --editable '.[$(EXTRAS)]'
	touch $@

# The compiled core's own tests: where the extension is built they share its objects, else they need CMake and no Python.
.PHONY: cpp-tests
cpp-tests: export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
cpp-tests:
	@set -e; built=$$(ls -d build/cp3*/ 2> /dev/null | head -1); folder=$${built:-build/cpp-tests}; \
		cmake -S . -B $$folder $$([ -n "$$built" ] || echo -DCHAINRULE_MODULE=OFF) -DCHAINRULE_TESTS=ON; \
		cmake --build $$folder --target chainrule_tests --parallel 2; \
		$$folder/chainrule_tests

# Software written for KenLM on chainrule.kenlm, and clients of OpenAI's API on `chainrule serve`, in venvs of their own
# that are kept in build/.
.PHONY: test-clients
test-clients: $(READY)
	./tests/clients/run.sh
	./tests/clients/serve.sh

# The core's tests under the sanitizers, addresses and undefined behaviour first, then threads; run by hand after a
# change of the core. The races of word2vec and GloVe are meant (cpp/README.md) and left out of the second.
.PHONY: sanitize
sanitize:
	cmake -S . -B build/sanitize -DCHAINRULE_MODULE=OFF -DCHAINRULE_TESTS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DCMAKE_CXX_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
	cmake --build build/sanitize --parallel 2
	build/sanitize/chainrule_tests
	cmake -S . -B build/sanitize-threads -DCHAINRULE_MODULE=OFF -DCHAINRULE_TESTS=ON \
		-DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS="-fsanitize=thread -fno-omit-frame-pointer"
	cmake --build build/sanitize-threads --parallel 2
	TSAN_OPTIONS=suppressions=$(CURDIR)/cpp/tests/meant_races.txt build/sanitize-threads/chainrule_tests

# Damaged ARPA and model files at random, under the sanitizers, SECONDS of each; an input that breaks something stays.
.PHONY: fuzz
SECONDS = 60
fuzz:
	cmake -S . -B build/fuzz -DCHAINRULE_MODULE=OFF -DCHAINRULE_FUZZ=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DCMAKE_CXX_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
	cmake --build build/fuzz --parallel 2
	build/fuzz/fuzz_arpa $(SECONDS)
	build/fuzz/fuzz_model $(SECONDS)

# A server under mixed load: nothing lost, nothing wrong, memory flat.
.PHONY: soak
MINUTES = 5
soak: $(READY)
	$(PY) -m benchmarks.soak --minutes $(MINUTES)

clean:
	rm -rf $(VENV) build
