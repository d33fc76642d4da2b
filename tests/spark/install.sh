#!/usr/bin/env bash
# Java (Debian's package, where it is missing) and a venv with pyspark for the Spark tests; prints the venv's Python.
# pyspark is a source package of 456 MB: the venv is kept in the user's cache folder, one for each set of versions.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! java="$(command -v "${JAVA_HOME:+$JAVA_HOME/bin/}java")"; then
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo -n)
    if ! command -v apt-get > /dev/null || ! "${as_root[@]}" true 2> /dev/null; then
        echo "the Spark tests need Java 17: install it (Debian: openjdk-17-jre-headless), or set JAVA_HOME" >&2
        exit 1
    fi
    "${as_root[@]}" apt-get update -qq >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        openjdk-17-jre-headless > /dev/null
fi
names='hypothesis|iniconfig|numpy|packaging|pandas|pluggy|py4j|pyarrow|pygments|pyspark|pytest|rich|safetensors|tokenizers|typer|zstandard'
versions="$(grep -iE "^($names)==" constraints.txt; python3 --version; echo 1)"
hash="$(echo "$versions" | sha256sum | cut -c1-12)"
folder="${XDG_CACHE_HOME:-$HOME/.cache}/chainrule"
venv="$folder/spark-venv-$hash"
mkdir -p "$folder"
exec 9> "$venv.lock" # two checkouts may be tested at the same time
flock 9
if [ ! -e "$venv/.ready" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    unset PIP_BUILD_CONSTRAINT
    PIP_CONSTRAINT="$PWD/constraints.txt" "$venv/bin/python" -m pip install --quiet --quiet --no-compile pyspark pandas \
        pyarrow numpy tokenizers safetensors typer rich zstandard pytest hypothesis >&2
    touch "$venv/.ready"
fi
echo "$venv/bin/python"
