#!/usr/bin/env bash
# A plain `pip install .` without extras (no torch), in its own venv: `doctor` reports the extension, and an n-gram model
# is trained, scored and sampled.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${1:-build/venv-plain}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
rm -rf "$venv"
python3 -m venv "$venv"
python="$PWD/$venv/bin/python"

printf 'i love cats\ni love dogs\ncats chase mice\n' > "$work/toy.txt"

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
report = json.load(sys.stdin)
assert report["packages"]["torch"].startswith("absent"), report
assert report["extension"].startswith("built"), report
'
"$python" -m pip install --quiet --no-compile "${CHAINRULE_WHEEL:-.}"
chainrule="$PWD/$venv/bin/chainrule"
"$chainrule" doctor --json | "$python" -c "$check"
smoke "$chainrule"
echo "pip install . works"
