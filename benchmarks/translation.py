"""Translation with and without attention: Multi30k, German to English, by the length of the source.

    python -m benchmarks.translation --out runs/multi30k

Trains the three recipes (a model that is there is not trained again), translates the test sentences, and the same
sentences joined by twos and threes, which are longer than anything in the training text.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.corpora import DATA, machine, table

from chainrule import recipes
from chainrule.evaluation.overlap import bleu, bleu_by_length
from chainrule.inspection import plots
from chainrule.tasks import translate
from chainrule.tasks.translate import BEAM
from chainrule.tasks.translation_report import evaluate, words
from chainrule.text.pairs import Pairs, read_pairs

RECIPES = {
    "no attention": "multi30k-none",
    "additive attention": "multi30k-additive",
    "Transformer": "multi30k-transformer",
}
EDGES = (8, 12, 16, 20, 30, 40, 50)
LONG = 20


def files(part: str) -> list[Path]:
    return [DATA / "multi30k" / f"{part}.{language}" for language in ("de", "en")]


def trained(out: Path, recipe: str, settings: list[str]) -> float:
    """Train by the command unless it is there; the seconds it took."""
    clock = out / f"{recipe}.{digest(recipe, settings)}.seconds"  # of another recipe or setting it is trained anew
    if not clock.exists():
        start = time.perf_counter()
        valid = [word for file in files("val") for word in ("--valid", file)]
        family = recipes.read(recipe).family
        given = [word for setting in settings for word in ("--set", setting)]
        command = [
            "translate",
            "train",
            family,
            *files("train"),
            *valid,
            "--recipe",
            recipe,
            "--out",
            out / recipe,
            *given,
        ]
        subprocess.run([sys.executable, "-m", "chainrule", *map(str, command)], check=True)
        clock.write_text(f"{time.perf_counter() - start:.1f}")
    return float(clock.read_text())


def digest(recipe: str, settings: list[str]) -> str:
    """What a model was trained by, in short."""
    said = recipes.path(recipe).read_text(encoding="utf-8") + "\n".join(settings)
    return hashlib.sha256(said.encode()).hexdigest()[:8]


def joined(pairs: Pairs, n: int) -> Pairs:
    """Every n sentences in a row as one."""
    starts = range(0, len(pairs) - n + 1, n)
    sides = ([" ".join(side[i : i + n]) for i in starts] for side in (pairs.sources, pairs.targets))
    sources, targets = map(tuple, sides)
    return Pairs(sources, targets, f"{pairs.name}, {n} joined", tuple(range(1, len(sources) + 1)))


def both(first: Pairs, *others: Pairs) -> Pairs:
    every = (first, *others)
    sources, targets = (tuple(text for p in every for text in getattr(p, side)) for side in ("sources", "targets"))
    return Pairs(sources, targets, first.name, tuple(range(1, len(sources) + 1)))


def measured(model: Path, test: Pairs) -> dict[str, Any]:
    """BLEU on the test set, on its long sentences, and by length with sentences joined."""
    translator = translate.load(model)
    report = evaluate(translator, test, BEAM)
    long = [i for i, source in enumerate(test.sources) if words(source) >= LONG]
    at_length = bleu([report.found[i] for i in long], [test.targets[i] for i in long]).score
    more = both(joined(test, 2), joined(test, 3))
    longer = [made[0].text for made in translator.translate_all(more.sources, BEAM)]
    everything = both(test, more)
    lengths = [words(source) for source in everything.sources]
    return {
        "parameters": translator.parameters,
        "bleu": report.bleu.score,
        "signature": report.bleu.signature,
        "chrf": report.chrf.score,
        "long": at_length,
        "long_sentences": len(long),
        "buckets": bleu_by_length([*report.found, *longer], everything.targets, lengths, EDGES),
        "lengths": lengths,
        "found": report.found,
    }


def picture(found: dict[str, dict[str, Any]]) -> str:
    series = {
        name: [((b.low + min(b.high, b.low + 15)) / 2, b.score) for b in each["buckets"] if b.score is not None]
        for name, each in reversed(found.items())
    }
    return plots.curves(
        series,
        title="BLEU by the length of the source",
        x_label="words of the source",
        quantity="BLEU",
    )


def _upper(high: float) -> str:
    return " and more" if high == float("inf") else f"–{high - 1:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/multi30k"))
    parser.add_argument("--set", action="append", default=[], help="a setting for every system")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    test = read_pairs(files("test_2016_flickr"))
    found: dict[str, dict[str, Any]] = {}
    rows = []
    for name, recipe in RECIPES.items():
        seconds = trained(arguments.out, recipe, arguments.set)
        each = found[name] = measured(arguments.out / recipe, test)
        size = f"{each['parameters'] / 1e6:.1f} M"
        rows.append(
            [name, size, f"{seconds / 60:.1f}", f"{each['bleu']:.2f}", f"{each['long']:.2f}", f"{each['chrf']:.2f}"]
        )
    print(f"Multi30k de→en, test 2016; {machine()}; {found['Transformer']['signature']}\n")
    long = f"BLEU, {LONG} words and more ({found['Transformer']['long_sentences']} sentences)"
    print(table(["system", "parameters", "minutes", "BLEU", long, "chrF"], rows), end="\n\n")
    heads = [f"{b.low:.0f}{_upper(b.high)} ({b.sentences})" for b in found["Transformer"]["buckets"]]
    by_length = [
        [name, *(f"{b.score:.1f}" if b.score is not None else "" for b in each["buckets"])]
        for name, each in found.items()
    ]
    print(table(["BLEU by words of the source (sentences)", *heads], by_length))
    (arguments.out / "bleu_by_length.svg").write_text(picture(found), encoding="utf-8")
    kept = {
        name: {k: v for k, v in each.items() if k not in ("buckets", "lengths")} for name, each in found.items()
    }
    (arguments.out / "results.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
