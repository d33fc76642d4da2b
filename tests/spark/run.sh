#!/usr/bin/env bash
# The Spark tests: this checkout's wheel (or its sources), unpacked beside a venv with pyspark (install.sh).
set -euo pipefail
cd "$(dirname "$0")/../.."
python="$(./tests/spark/install.sh)"
site=build/spark-site
rm -rf "$site"
if [ -n "${CHAINRULE_WHEEL:-}" ]; then
    "$python" -m zipfile -e "$CHAINRULE_WHEEL" "$site"
else
    mkdir -p "$site/chainrule" # the sources, and the extension of the editable installation
    ln -s "$PWD"/src/chainrule/* "$PWD"/build/*/cpp/_core.*.so "$site/chainrule/"
fi
export PYTHONPATH="$PWD/$site:$PWD/tests" PATH="$(dirname "$python"):$PATH"
exec "$python" -m pytest -q -p no:cacheprovider --rootdir . tests/spark "$@"
