#!/usr/bin/env bash
# Software written for the kenlm module, unmodified, on chainrule.kenlm: in a venv of its own (build/venv-clients), since
# pyctcdecode needs numpy < 2. The venv and what is compiled for it are kept. The first time KenLM's own module is built
# there (about a minute); where that cannot be done, tests/clients/brute_force.py alone is compared with.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv="${1:-build/venv-clients}"
python="$PWD/$venv/bin/python"
unset PIP_CONSTRAINT PIP_BUILD_CONSTRAINT # they name a newer numpy
if [ ! -e "$venv/.ready" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$python" -m pip install --quiet --no-compile 'numpy<2' pyctcdecode==0.5.0 tokenizers safetensors typer rich \
        setuptools wheel cmake ninja nanobind scikit-build-core
    touch "$venv/.ready"
fi
if [ ! -e "$venv/.kenlm" ]; then
    PATH="$PWD/$venv/bin:$PATH" timeout 400 "$python" -m pip install --quiet --no-compile kenlm==0.3.0 \
        || echo "KenLM could not be built here: its module is left out of the comparison"
    touch "$venv/.kenlm"
fi
if [ -n "${CHAINRULE_WHEEL:-}" ]; then
    "$python" -m pip install --quiet --no-compile --no-deps --force-reinstall "$CHAINRULE_WHEEL"
else
    PATH="$PWD/$venv/bin:$PATH" "$python" -m pip install --quiet --no-compile --no-deps --no-build-isolation --force-reinstall \
        --config-settings=build-dir=build/clients .
fi
"$python" tests/clients/compare.py
