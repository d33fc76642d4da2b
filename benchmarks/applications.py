"""What likelihood is for, measured: filtering, identification, completion.

    python -m benchmarks.applications [--only filter,authors,complete] [--sentences 300] [--json FILE]

filter: a 5-gram of WikiText-2 judges the lines of 89 novels, beside `wc` counting their words, the library only
reading them, the engine alone with all lines in memory, and a loop that asks for one line at a time as programs for
the kenlm module do. authors: for each of the authors with three books here, character n-grams of two of them; lines
of the third are to be told from those of all others, one by one and ten at a time; and an author's lines are to be
found among all by `filter`, by perplexity and by the difference to a model of all authors. complete: the sentences
of Penn Treebank's test text are typed letter by letter; a word is taken, for one keystroke, as soon as it is among
the first 1, 3 or 5 suggested, and its blank comes with it.
"""

import argparse
import json
import lzma
import subprocess
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.corpora import BENCHMARKS, DATA, machine, table

import chainrule
from chainrule import kenlm, processors
from chainrule.applications.complete import Completer
from chainrule.applications.filter import Judge, measure, nearest
from chainrule.applications.identify import Identifier
from chainrule.lm import Ids
from chainrule.model import Model
from chainrule.text.corpus import Corpus, read_batches

NOVELS: Final = DATA / "novels_en"
LINES_OF_AUTHOR: Final = 300
LONG_ENOUGH: Final = 60  # characters of a line to be told
TRAINING_CHARACTERS: Final = 1 << 19  # of each book
SUGGESTIONS: Final = (1, 3, 5)
BOOKS: Final = 3


def books() -> Iterator[tuple[str, str]]:
    """Author and text of each novel."""
    rows = [line.split("\t") for line in (NOVELS / "index.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    texts = lzma.decompress((NOVELS / "novels89.txt.xz").read_bytes()).decode().split("\f\n")
    return ((row[1], text) for row, text in zip(rows, texts, strict=True))


def seconds(work: Callable[[], Any]) -> tuple[float, float]:
    """How long it takes, and how much of the processors' time in this process."""
    start, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - used


def filtering(folder: Path) -> list[dict[str, Any]]:
    """Lines and words a second of `filter` and of what it is made of."""
    novels = folder / "novels.txt"
    novels.write_bytes(lzma.decompress((NOVELS / "novels89.txt.xz").read_bytes()))
    model = chainrule.train("ngram", BENCHMARKS["wikitext2"].corpus("train"), tokenizer="whitespace", order=5)
    general = chainrule.train("ngram", BENCHMARKS["ptb"].corpus("train"), tokenizer="whitespace", order=5)
    model.save(folder / "reference")
    by_line = kenlm.Model(folder / "reference")
    corpus = Corpus.of(novels)
    lines = list(corpus)
    words = sum(len(line.split()) for line in lines)
    engine: Any = model.lm
    ways: dict[str, Callable[[], Any]] = {
        "wc -w": lambda: subprocess.run(["wc", "-w", novels], check=True, stdout=subprocess.DEVNULL),
        "reading alone": lambda: sum(map(len, read_batches(corpus))),
        "engine, one thread": lambda: engine.engine.score_sentences(lines, threads=1),
        "engine, all processors": lambda: engine.engine.score_sentences(lines, threads=processors.threads()),
        "a loop of kenlm calls": lambda: [by_line.score(line) for line in lines],
        "filter by perplexity": lambda: measure(Judge.of(model, by="perplexity"), corpus),
        "filter by bits per byte": lambda: measure(Judge.of(model, by="bits-per-byte"), corpus),
        "filter by difference": lambda: measure(Judge.of(model, general), corpus),
    }
    found = []
    for name, way in ways.items():
        took, used = seconds(way)
        speed = {"lines/s": len(lines) / took, "words/s": words / took}
        found.append({"what": name, "seconds": took, "processor s": used} | speed)
    return found


def authors(order: int) -> list[dict[str, Any]]:
    """How many lines of unseen books are given to their author, and found for one."""
    every: dict[str, list[list[str]]] = defaultdict(list)
    for author, novel in books():
        every[author].append([line for line in novel.split("\n") if line.strip()])
    of = {author: texts for author, texts in every.items() if len(texts) == BOOKS}
    models: dict[str, Model] = {}
    tested: dict[str, list[str]] = {}
    start = time.perf_counter()
    for author, (*known, unseen) in of.items():
        text = [line for lines in known for line in _head(lines, TRAINING_CHARACTERS)]
        models[author] = chainrule.train("ngram", Corpus.from_lines(text), tokenizer="char", order=order)
        long = [line for line in unseen if len(line) >= LONG_ENOUGH]
        tested[author] = long[:: max(1, len(long) // LINES_OF_AUTHOR)][:LINES_OF_AUTHOR]
    took = (time.perf_counter() - start) / len(models)
    lines = [line for each in tested.values() for line in each]
    truth = np.repeat(np.arange(len(tested)), [len(each) for each in tested.values()])
    pooled = [line for *known, _ in of.values() for each in known for line in _head(each, TRAINING_CHARACTERS // 8)]
    general = chainrule.train("ngram", Corpus.from_lines(pooled), tokenizer="char", order=order)
    return [
        {"what": f"authors, order {order}; lines of each", "value": f"{len(models)}; {LINES_OF_AUTHOR}"},
        {"what": "training, seconds a model", "value": took},
        *_identified(models, lines, truth),
        *_found(models, general, lines, truth),
    ]


def _identified(models: dict[str, Model], lines: list[str], truth: Ids) -> list[dict[str, Any]]:
    joint = Identifier.of(models).log_joint(lines)
    rows = [
        (k, ten)
        for k in range(len(models))
        for ten in np.array_split(np.flatnonzero(truth == k), max(1, int((truth == k).sum()) // 10))
    ]
    right = [joint[ten].sum(axis=0).argmax() == k for k, ten in rows]
    return [
        {"what": "accuracy of one line, %", "value": 100 * float((joint.argmax(axis=1) == truth).mean())},
        {"what": "accuracy of ten lines, %", "value": 100 * float(np.mean(right))},
    ]


def _found(models: dict[str, Model], general: Model, lines: list[str], truth: Ids) -> list[dict[str, Any]]:
    found = []
    for name, against in (("bits-per-byte", None), ("perplexity", None), ("difference", general)):
        shares = []
        for k, model in enumerate(models.values()):
            kept = nearest(Judge.of(model, against, name).distances(lines), int((truth == k).sum()))
            shares.append(float((truth[kept] == k).mean()))
        found.append({"what": f"own lines among those kept by {name}, %", "value": 100 * float(np.mean(shares))})
    return found


def _head(lines: list[str], characters: int) -> list[str]:
    """The first lines, up to so many characters."""
    size = np.cumsum([len(line) + 1 for line in lines])
    return lines[: int(np.searchsorted(size, characters)) + 1]


def completion(sentences: int) -> list[dict[str, Any]]:
    """Milliseconds a keystroke and the keystrokes that suggestions save."""
    text = list(BENCHMARKS["ptb"].corpus("test"))[:sentences]
    found = []
    for kind, order in (("whitespace", 5), ("bpe", 5), ("char", 8)):
        model = chainrule.train("ngram", BENCHMARKS["ptb"].corpus("train"), tokenizer=kind, order=order)
        found.append({"model": f"{kind}, order {order}"} | _typed(Completer(model), text))
    return found


def _typed(completer: Completer, text: list[str]) -> dict[str, Any]:
    took: list[float] = []
    keys, used = 0, dict.fromkeys(SUGGESTIONS, 0)
    for sentence in text:
        line = " "  # as the lines of this text begin
        for word in sentence.split():
            waiting = set(SUGGESTIONS)
            for typed in range(len(word) + 1):
                start = time.perf_counter()
                words = [each.word for each in completer.complete(line + word[:typed], max(SUGGESTIONS))]
                took.append(1000 * (time.perf_counter() - start))
                for top in [top for top in waiting if word in words[:top]]:
                    used[top] += typed + 1
                    waiting.remove(top)
            for top in waiting:
                used[top] += len(word) + 1
            keys += len(word) + 1
            line += word + " "
    p50, p99 = np.percentile(took, [50, 99])
    saved = {f"saved by {top}, %": 100 * (1 - used[top] / keys) for top in SUGGESTIONS}
    return {"p50 ms": float(p50), "p99 ms": float(p99), "most ms": max(took), "keys": keys} | saved


def show(rows: list[dict[str, Any]]) -> str:
    """A table of rows that have the same keys."""
    cells = [[value if isinstance(value, str) else f"{value:,.4g}" for value in row.values()] for row in rows]
    return table(list(rows[0]), cells)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="filter,authors,complete")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--order", type=int, default=6, help="of the authors' character n-grams")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    print(machine(), flush=True)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "filter": lambda: filtering(Path(folder)),
            "authors": lambda: authors(chosen.order),
            "complete": lambda: completion(chosen.sentences),
        }
        for name in chosen.only.split(","):
            results[name] = parts[name]()
            print(f"\n{name}\n\n{show(results[name])}", flush=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"machine": machine()} | results, indent=2) + "\n")


if __name__ == "__main__":
    main()
