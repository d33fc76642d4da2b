"""Benchmark translation with and without attention on Multi30k (German to English), by source length.

    python -m benchmarks.translation --out runs/multi30k

Trains the three recipes unless the models exist, and translates the test sentences, also concatenated in twos and
threes, which gives sources longer than any in the training set.
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

from chainrule import api, recipes
from chainrule.evaluation.translation import bleu, bleu_by_length
from chainrule.plots import figures
from chainrule.tasks.translate import BEAM, count_words
from chainrule.text.parallel import SentencePairs, read_pairs

RECIPES = {
    "no attention": "multi30k-none",
    "additive attention": "multi30k-additive",
    "Transformer": "multi30k-transformer",
}
EDGES = (8, 12, 16, 20, 30, 40, 50)
LONG = 20


def files(part: str) -> list[Path]:
    return [DATA / "multi30k" / f"{part}.{language}" for language in ("de", "en")]


def train(out: Path, recipe: str, settings: list[str]) -> float:
    """Train a recipe unless the model exists; return the seconds of training."""
    clock = out / f"{recipe}.{digest(recipe, settings)}.seconds"  # changes with the recipe and the settings
    if not clock.exists():
        start = time.perf_counter()
        valid = [word for file in files("val") for word in ("--valid", file)]
        family = recipes.read(recipe).family
        overrides = [word for setting in settings for word in ("--set", setting)]
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
            *overrides,
        ]
        subprocess.run([sys.executable, "-m", "chainrule", *map(str, command)], check=True)
        clock.write_text(f"{time.perf_counter() - start:.1f}")
    return float(clock.read_text())


def digest(recipe: str, settings: list[str]) -> str:
    """Return a hash of the recipe and the settings."""
    description = recipes.path(recipe).read_text(encoding="utf-8") + "\n".join(settings)
    return hashlib.sha256(description.encode()).hexdigest()[:8]


def join_sentences(pairs: SentencePairs, n: int) -> SentencePairs:
    """Concatenate every n consecutive sentences."""
    starts = range(0, len(pairs) - n + 1, n)
    sides = ([" ".join(side[i : i + n]) for i in starts] for side in (pairs.sources, pairs.targets))
    sources, targets = map(tuple, sides)
    return SentencePairs(sources, targets, f"{pairs.name}, {n} joined", tuple(range(1, len(sources) + 1)))


def concatenate(first: SentencePairs, *others: SentencePairs) -> SentencePairs:
    every = (first, *others)
    sources, targets = (tuple(text for p in every for text in getattr(p, side)) for side in ("sources", "targets"))
    return SentencePairs(sources, targets, first.name, tuple(range(1, len(sources) + 1)))


def measure(model: Path, test: SentencePairs) -> dict[str, Any]:
    """Measure BLEU on the test set, on its long sentences, and by length including joined sentences."""
    translator = api.load(model, kind="translate")
    report = translator.evaluate(test, BEAM)
    long = [i for i, source in enumerate(test.sources) if count_words(source) >= LONG]
    at_length = bleu([report.translations[i] for i in long], [test.targets[i] for i in long]).score
    more = concatenate(join_sentences(test, 2), join_sentences(test, 3))
    longer = [hypotheses[0].text for hypotheses in translator.translate_all(more.sources, BEAM)]
    everything = concatenate(test, more)
    lengths = [count_words(source) for source in everything.sources]
    return {
        "parameters": translator.parameters,
        "bleu": report.bleu.score,
        "signature": report.bleu.signature,
        "chrf": report.chrf.score,
        "long": at_length,
        "long_sentences": len(long),
        "buckets": bleu_by_length([*report.translations, *longer], everything.targets, lengths, EDGES),
        "lengths": lengths,
        "found": report.translations,
    }


def picture(results: dict[str, dict[str, Any]]) -> str:
    series = {
        name: [((b.low + min(b.high, b.low + 15)) / 2, b.score) for b in result["buckets"] if b.score is not None]
        for name, result in reversed(results.items())
    }
    return figures.plot_curves(
        series,
        title="BLEU by source length",
        x_label="source words",
        quantity="BLEU",
    )


def _upper(high: float) -> str:
    return " or more" if high == float("inf") else f"–{high - 1:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/multi30k"))
    parser.add_argument("--set", action="append", default=[], help="setting of all systems")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    test = read_pairs(files("test_2016_flickr"))
    results: dict[str, dict[str, Any]] = {}
    rows = []
    for name, recipe in RECIPES.items():
        seconds = train(arguments.out, recipe, arguments.set)
        result = results[name] = measure(arguments.out / recipe, test)
        size = f"{result['parameters'] / 1e6:.1f} M"
        rows.append(
            [
                name,
                size,
                f"{seconds / 60:.1f}",
                f"{result['bleu']:.2f}",
                f"{result['long']:.2f}",
                f"{result['chrf']:.2f}",
            ]
        )
    print(f"Multi30k de→en, test 2016; {machine()}; {results['Transformer']['signature']}\n")
    long = f"BLEU, {LONG} words or more ({results['Transformer']['long_sentences']} sentences)"
    print(table(["system", "parameters", "minutes", "BLEU", long, "chrF"], rows), end="\n\n")
    heads = [f"{b.low:.0f}{_upper(b.high)} ({b.sentences})" for b in results["Transformer"]["buckets"]]
    by_length = [
        [name, *(f"{b.score:.1f}" if b.score is not None else "" for b in result["buckets"])]
        for name, result in results.items()
    ]
    print(table(["BLEU by source words (sentences)", *heads], by_length))
    (arguments.out / "bleu_by_length.svg").write_text(picture(results), encoding="utf-8")
    summary = {
        name: {k: v for k, v in result.items() if k not in ("buckets", "lengths")}
        for name, result in results.items()
    }
    (arguments.out / "results.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
