"""n-gram models are the recorded ones bit for bit: SHA-256 of `model.ngram`, and an ARPA file."""

import hashlib
import json
from pathlib import Path
from typing import Final

from chainrule.ngram.engine import memory_in_use
from golden.recorded import GOLDEN, check
from golden.session import run, working_folder

NGRAM: Final = GOLDEN / "ngram"
SORTING_MEMORY: Final = 64 << 20
"""`--memory` includes what the process uses already: here the memory of the whole test session."""
CONFIGURATIONS: Final = {
    "modified Kneser-Ney, order 3": "--order 3",
    "modified Kneser-Ney, order 5, stream": "--order 5 --context stream",
    "modified Kneser-Ney, order 3, closed vocabulary": "--order 3 --closed",
    "quantized to 8 bits, small layout": "--order 4 --layout small --quantize 8",
    "small layout": "--order 4 --layout small",
    "pruned by count": "--order 4 --prune 0,0,1",
    "pruned by entropy": "--order 4 --entropy-prune 1e-3",
    "Kneser-Ney": "--order 4 --smoothing kneser-ney",
    "absolute discounting": "--order 4 --smoothing absolute",
    "Witten-Bell": "--order 4 --smoothing witten-bell",
    "Jelinek-Mercer": "--order 4 --smoothing jelinek-mercer",
    "Katz": "--order 4 --smoothing katz",
    "add-k": "--order 3 --smoothing add-k",
    "maximum likelihood": "--order 3 --smoothing mle",
    "stupid backoff": "--order 3 --smoothing stupid-backoff",
    "characters": "--order 6 --tokenizer char",
    "unknown words": "--order 3 --min-count 12",
    "limited memory": "--order 5 --memory {memory}",
}


def test_model_files_equal_the_recorded_bytes(tmp_path: Path) -> None:
    digests = {}
    with working_folder(tmp_path) as folder:
        for name, options in CONFIGURATIONS.items():
            options = options.format(memory=memory_in_use() + SORTING_MEMORY)
            outcome = run(f"train ngram train.txt {options} --threads 2 --out trained --force")
            assert outcome.status == 0, f"{name}: {outcome.err}"
            digests[name] = hashlib.sha256((folder / "trained" / "model.ngram").read_bytes()).hexdigest()
    check(NGRAM / "sha256.json", json.dumps(digests, indent=1) + "\n")


def test_arpa_equals_the_recorded_file(tmp_path: Path) -> None:
    with working_folder(tmp_path) as folder:
        assert run("train ngram train.txt --order 3 --out trained").status == 0
        assert run("convert trained --to arpa --out model.arpa").status == 0
        arpa = (folder / "model.arpa").read_bytes().decode()
        assert run("convert model.arpa --out read").status == 0
        assert run("convert read --to arpa --out again.arpa").status == 0
        assert (folder / "again.arpa").read_bytes().decode() == arpa
    check(NGRAM / "model.arpa", arpa)
