# Two commands for a newcomer: `make compare` (the main job) and `make test` (the whole suite).
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
EXTRAS := neural,serve,plots,data,vectors,dev
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(PIP_CONSTRAINT)
export OMP_WAIT_POLICY := passive

.PHONY: compare test check format clean

compare: $(READY)
	$(PY) -m chainrule compare --out runs/compare

test: $(READY)
	$(MAKE) --no-print-directory lint
	@if command -v cmake > /dev/null; then $(MAKE) --no-print-directory cpp-tests; \
		else echo "CMake is not on the PATH: the tests of the core alone are left out"; fi
	rm -rf build/wheel
	$(PY) -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	CHAINRULE_WHEEL="$$(ls $(CURDIR)/build/wheel/*.whl)" ./tests/install.sh
	CHAINRULE_WHEEL="$$(ls $(CURDIR)/build/wheel/*.whl)" ./tests/clients/run.sh
	./tests/clients/serve.sh
	./tests/browser/install.sh
	$(PY) -m pytest -n 2 -rs

check: lint
	$(PY) -m pytest -n 2 -m "not slow and not data"

.PHONY: lint
lint: $(READY)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run --Werror cpp/*.cpp cpp/*.hpp cpp/tests/*.cpp cpp/tests/*.hpp cpp/tests/fuzz/*.cpp cpp/tests/fuzz/*.hpp

format: $(READY)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/clang-format -i cpp/*.cpp cpp/*.hpp cpp/tests/*.cpp cpp/tests/*.hpp cpp/tests/fuzz/*.cpp cpp/tests/fuzz/*.hpp

$(READY): pyproject.toml constraints.txt CMakeLists.txt $(wildcard cpp/*)
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --editable '.[$(EXTRAS)]'
	touch $@

# The compiled core's own tests; they need CMake, no Python.
.PHONY: cpp-tests
cpp-tests:
	cmake -S . -B build/cpp-tests -DCHAINRULE_MODULE=OFF -DCHAINRULE_TESTS=ON
	cmake --build build/cpp-tests --parallel 2
	build/cpp-tests/chainrule_tests

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
