#!/usr/bin/env bash
# The two ways to run without the extras, each in a venv of its own: a bare checkout without the extension, and a plain
# `pip install .`; neither has torch.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${1:-build/venv-plain}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
rm -rf "$venv"
python3 -m venv "$venv"
python="$PWD/$venv/bin/python"
"$python" -m pip install --quiet numpy tokenizers safetensors typer rich

smoke() {
    printf 'i love cats\ni love dogs\ncats chase mice\n' > "$work/toy.txt"
    (
        cd "$work"
        rm -rf toy
        "$@" train ngram toy.txt --order 3 --smoothing mle --out toy
        test "$(echo "i love cats" | "$@" score toy)" = "$(printf -- '-1.098612\ti love cats')" # log 1/3
        "$@" generate toy --prompt "i love" --strategy greedy
        "$@" doctor --json | "$python" -c "$check" "$expected"
    )
}
check='
import json, sys
found, expected = json.load(sys.stdin), sys.argv[1]
assert found["packages"]["torch"].startswith("absent"), found
assert found["extension"].startswith(expected), found
'
echo "bare checkout:"
export PYTHONPATH="$PWD/src"
expected=absent smoke "$python" -m chainrule
unset PYTHONPATH
echo "pip install .:"
"$python" -m pip install --quiet .
expected=built smoke "$PWD/$venv/bin/chainrule"
echo "both ways work"
