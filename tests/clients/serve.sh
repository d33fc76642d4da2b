#!/usr/bin/env bash
# Clients written for OpenAI's API, unmodified, against `chainrule serve`: the openai package and
# lm-evaluation-harness, in a venv of their own (build/venv-server-clients) that is kept. No network is used once it
# is made. The models are trained and served by .venv, or by the Python that CHAINRULE_PYTHON names.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv="${1:-build/venv-server-clients}"
unset PIP_CONSTRAINT PIP_BUILD_CONSTRAINT # they are for chainrule's own versions
if [ ! -e "$venv/.ready" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet openai==3.49.0 'lm-eval[api]==0.4.13'
    touch "$venv/.ready"
fi
"${CHAINRULE_PYTHON:-.venv/bin/python}" tests/clients/served.py "$venv/bin/python"
