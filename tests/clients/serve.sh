#!/usr/bin/env bash
# Clients written for OpenAI's API, unmodified, against `chainrule serve`: the openai package and
# lm-evaluation-harness, in a venv of their own (build/venv-server-all, build/venv-server-openai) that is kept. No network is used once it
# is made. The models are trained and served by .venv, or by the Python that CHAINRULE_PYTHON names. `serve.sh openai`
# leaves the harness out, whose many packages take a minute to install.
set -euo pipefail
cd "$(dirname "$0")/../.."
clients="${1:-all}"
venv="build/venv-server-$clients"
packages=(openai==3.49.0)
[ "$clients" = all ] && packages+=('lm-eval[api]==0.4.13')
unset PIP_CONSTRAINT PIP_BUILD_CONSTRAINT # they are for chainrule's own versions
if [ ! -e "$venv/.ready" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --no-compile "${packages[@]}"
    touch "$venv/.ready"
fi
"${CHAINRULE_PYTHON:-.venv/bin/python}" tests/clients/served.py "$venv/bin/python" "$clients"
