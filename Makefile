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
	./tests/install.sh
	$(PY) -m pytest -n 2 -rs

check: lint
	$(PY) -m pytest -n 2 -m "not slow and not data"

.PHONY: lint
lint: $(READY)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run --Werror cpp/*.cpp cpp/*.hpp cpp/tests/*.cpp cpp/tests/*.hpp

format: $(READY)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/clang-format -i cpp/*.cpp cpp/*.hpp cpp/tests/*.cpp cpp/tests/*.hpp

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

# The same under the address and undefined-behaviour sanitizers; run by hand after a change of the core.
.PHONY: sanitize
sanitize:
	cmake -S . -B build/sanitize -DCHAINRULE_MODULE=OFF -DCHAINRULE_TESTS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DCMAKE_CXX_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
	cmake --build build/sanitize --parallel 2
	build/sanitize/chainrule_tests

clean:
	rm -rf $(VENV) build
