"""Compare the beams of pyctcdecode with chainrule.kenlm, with a brute force over the ARPA file, and with KenLM.

Run by run.sh. The model is trained on the words of docs/; every module opens the same ARPA file, chainrule also a
model folder and a compressed file. All must find the same texts at the same positions with the same scores.
"""

import gzip
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

import chainrule
from chainrule.applications import convert

HERE: Final = Path(__file__).parent
TOLERANCE: Final = 1e-4


def sentences() -> Iterator[str]:
    """Lower-case words of the documentation."""
    for path in sorted((HERE.parents[1] / "docs").glob("*.md")):
        for sentence in re.split(r"(?<=[.:;])\s+|\n\n", path.read_text(encoding="utf-8")):
            words = re.findall(r"[a-z']+", sentence.lower())
            if words:
                yield " ".join(words)


def models(folder: Path) -> tuple[Path, list[tuple[str, Path]]]:
    """The ARPA file, and which module opens which model; the first one is chainrule."""
    text, model_folder, arpa = folder / "docs.txt", folder / "own", folder / "docs.arpa"
    text.write_text("\n".join(sentences()) + "\n", encoding="utf-8")
    chainrule.train("ngram", text, order=4, min_count=2).save(model_folder)
    convert.export_arpa(model_folder, arpa)
    packed = folder / "docs.arpa.gz"
    packed.write_bytes(gzip.compress(arpa.read_bytes()))
    modules = [("chainrule.kenlm", model) for model in (arpa, model_folder, packed)] + [("brute_force", arpa)]
    if importlib.util.find_spec("kenlm") is not None:
        modules.append(("kenlm", arpa))
    return arpa, modules


def beams(module: str, model: Path, arpa: Path) -> dict[str, Any]:
    """Run ctc_beams.py in a separate process where the module replaces kenlm."""
    command = [sys.executable, "-W", "ignore", str(HERE / "ctc_beams.py"), module, str(model), str(arpa)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{module} on {model.name}: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Largest difference of two scores; inf where a text or position differs."""
    largest = 0.0
    for mine, others in zip(ours["beams"], theirs["beams"], strict=False):
        if [beam[:2] for beam in mine] != [beam[:2] for beam in others]:
            return float("inf")
        largest = max(largest, np.abs(np.array([b[2:] for b in mine]) - [b[2:] for b in others]).max())
    return largest


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        arpa, modules = models(Path(folder))
        results = {(module, model.name): beams(module, model, arpa) for module, model in modules}
    first, *others = results.items()
    count = sum(len(beams) for beams in first[1]["beams"])
    assert first[1]["unigrams"] > 500, "pyctcdecode did not read the unigrams of our ARPA file"
    for name, theirs in others:
        apart = difference(first[1], theirs)
        print(f"{count} beams of numpy {np.__version__}: {first[0]} and {name} differ by {apart:.1e}")
        if not apart <= TOLERANCE:
            raise SystemExit("they differ by more than 1e-4")


if __name__ == "__main__":
    main()
