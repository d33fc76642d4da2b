"""Benchmark the likelihood applications: filtering, author identification, word completion.

    python -m benchmarks.applications [--only filter,authors,complete] [--sentences 300] [--json FILE]

filter: throughput of scoring the lines of 89 novels with a 5-gram of WikiText-2, compared with `wc -w`, with
reading the text only, with the C++ engine on lines in memory, and with a loop of single calls as in programs
written for the kenlm module. authors: for every author with three books, character n-grams are trained on two of
them; lines of the third are classified among all authors, one and ten lines at a time, and retrieved with
`filter` by perplexity and by the difference to a general model. complete: the sentences of the Penn Treebank test
set are typed letter by letter; a word is accepted with one keystroke, which includes the following space, as soon
as it is among the first 1, 3 or 5 suggestions.
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
from chainrule import kenlm, system
from chainrule.applications.complete import Completer
from chainrule.applications.filter import LineCost, measure_distances, select_nearest
from chainrule.applications.identify import Identifier
from chainrule.lm import Ids
from chainrule.model import Model
from chainrule.text.corpus import Corpus, read_batches

NOVELS: Final = DATA / "novels_en"
LINES_OF_AUTHOR: Final = 300
MIN_LENGTH: Final = 60  # characters of a classified line
TRAINING_CHARACTERS: Final = 1 << 19  # of each book
SUGGESTIONS: Final = (1, 3, 5)
BOOKS: Final = 3


def books() -> Iterator[tuple[str, str]]:
    """Yield author and text of each novel."""
    rows = [line.split("\t") for line in (NOVELS / "index.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    texts = lzma.decompress((NOVELS / "novels89.txt.xz").read_bytes()).decode().split("\f\n")
    return ((row[1], text) for row, text in zip(rows, texts, strict=True))


def seconds(work: Callable[[], Any]) -> tuple[float, float]:
    """Return wall-clock and CPU seconds of a call."""
    start, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - used


def filtering(folder: Path) -> list[dict[str, Any]]:
    """Measure the throughput of `filter` and of its stages."""
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
        "engine, all processors": lambda: engine.engine.score_sentences(lines, threads=system.thread_count()),
        "a loop of kenlm calls": lambda: [by_line.score(line) for line in lines],
        "filter by perplexity": lambda: measure_distances(LineCost.of(model, by="perplexity"), corpus),
        "filter by bits per byte": lambda: measure_distances(LineCost.of(model, by="bits-per-byte"), corpus),
        "filter by difference": lambda: measure_distances(LineCost.of(model, general), corpus),
    }
    rows = []
    for name, way in ways.items():
        took, used = seconds(way)
        speed = {"lines/s": len(lines) / took, "words/s": words / took}
        rows.append({"what": name, "seconds": took, "CPU s": used} | speed)
    return rows


def authors(order: int) -> list[dict[str, Any]]:
    """Measure the accuracy of author identification and of retrieval on unseen books."""
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
        long = [line for line in unseen if len(line) >= MIN_LENGTH]
        tested[author] = long[:: max(1, len(long) // LINES_OF_AUTHOR)][:LINES_OF_AUTHOR]
    took = (time.perf_counter() - start) / len(models)
    lines = [line for author_lines in tested.values() for line in author_lines]
    truth = np.repeat(np.arange(len(tested)), [len(author_lines) for author_lines in tested.values()])
    pooled = [line for *known, _ in of.values() for book in known for line in _head(book, TRAINING_CHARACTERS // 8)]
    general = chainrule.train("ngram", Corpus.from_lines(pooled), tokenizer="char", order=order)
    return [
        {"what": f"authors, order {order}; lines per author", "value": f"{len(models)}; {LINES_OF_AUTHOR}"},
        {"what": "training, seconds per model", "value": took},
        *_identification(models, lines, truth),
        *_retrieval(models, general, lines, truth),
    ]


def _identification(models: dict[str, Model], lines: list[str], truth: Ids) -> list[dict[str, Any]]:
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


def _retrieval(models: dict[str, Model], general: Model, lines: list[str], truth: Ids) -> list[dict[str, Any]]:
    rows = []
    for name, against in (("bits-per-byte", None), ("perplexity", None), ("difference", general)):
        shares = []
        for k, model in enumerate(models.values()):
            selected = select_nearest(LineCost.of(model, against, name).distances(lines), int((truth == k).sum()))
            shares.append(float((truth[selected] == k).mean()))
        rows.append({"what": f"precision of retrieval by {name}, %", "value": 100 * float(np.mean(shares))})
    return rows


def _head(lines: list[str], characters: int) -> list[str]:
    """Return the first lines, up to about this many characters."""
    size = np.cumsum([len(line) + 1 for line in lines])
    return lines[: int(np.searchsorted(size, characters)) + 1]


def completion(sentences: int) -> list[dict[str, Any]]:
    """Measure the latency per keystroke and the keystrokes saved by suggestions."""
    text = list(BENCHMARKS["ptb"].corpus("test"))[:sentences]
    rows = []
    for kind, order in (("whitespace", 5), ("bpe", 5), ("char", 8)):
        model = chainrule.train("ngram", BENCHMARKS["ptb"].corpus("train"), tokenizer=kind, order=order)
        rows.append({"model": f"{kind}, order {order}"} | _typed(Completer(model), text))
    return rows


def _typed(completer: Completer, text: list[str]) -> dict[str, Any]:
    took: list[float] = []
    keys, used = 0, dict.fromkeys(SUGGESTIONS, 0)
    for sentence in text:
        line = " "  # lines of this text begin with a space
        for word in sentence.split():
            waiting = set(SUGGESTIONS)
            for typed in range(len(word) + 1):
                start = time.perf_counter()
                words = [
                    suggestion.word for suggestion in completer.complete(line + word[:typed], max(SUGGESTIONS))
                ]
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
    return {"p50 ms": float(p50), "p99 ms": float(p99), "max ms": max(took), "keys": keys} | saved


def show(rows: list[dict[str, Any]]) -> str:
    """Format rows with the same keys as a table."""
    cells = [[value if isinstance(value, str) else f"{value:,.4g}" for value in row.values()] for row in rows]
    return table(list(rows[0]), cells)


def main() -> None:
    """Run the selected benchmarks and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="filter,authors,complete")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--order", type=int, default=6, help="order of the character n-grams of the authors")
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
