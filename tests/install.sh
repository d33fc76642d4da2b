#!/usr/bin/env bash
# The two ways to run without the extras, in a venv of their own: a bare checkout without the extension, which says how
# to build it where n-grams are asked for, and a plain `pip install .`, which trains them; neither has torch.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${1:-build/venv-plain}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
rm -rf "$venv"
python3 -m venv "$venv"
python="$PWD/$venv/bin/python"
"$python" -m pip install --quiet --no-compile numpy tokenizers safetensors typer rich

printf 'i love cats\ni love dogs\ncats chase mice\n' > "$work/toy.txt"

look() {
    "$@" doctor --json | "$python" -c "$check" "$expected"
}

# Words and n-gram models need the extension; without it they are refused with what to do, and nothing is written.
refused() {
    (
        cd "$work"
        status=0
        "$@" train ngram toy.txt --out none 2> refusal.txt || status=$?
        test "$status" = 1
        grep -q "the compiled part of chainrule, which is not built: pip install ." refusal.txt
        test ! -e none
        "$@" tokenizer train toy.txt --out tokenizer
    )
}

smoke() {
    (
        cd "$work"
        rm -rf toy
        "$@" train ngram toy.txt --order 3 --smoothing mle --out toy
        test "$(echo "i love cats" | "$@" score toy)" = "$(printf -- '-1.098612\ti love cats')" # log 1/3
        "$@" generate toy --prompt "i love" --strategy greedy
        "$python" -c 'from chainrule.text.splits import NOVEL, default_text; print(NOVEL); assert len(default_text()) == 2057'
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
expected=absent look "$python" -m chainrule
refused "$python" -m chainrule
unset PYTHONPATH
echo "pip install .:"
"$python" -m pip install --quiet --no-compile "${CHAINRULE_WHEEL:-.}"
expected=built look "$PWD/$venv/bin/chainrule"
smoke "$PWD/$venv/bin/chainrule"
echo "both ways work"
