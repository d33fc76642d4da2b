"""Measure test perplexity and bits per byte of every smoothing method at orders 1 to 5; print Markdown tables.

    python -m benchmarks.results --corpus ptb

Each text is encoded and counted once; all models are estimated from the same counts. Results are compared with
published ones of SRILM and KenLM for the same files. Progress goes to standard error.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.corpora import BENCHMARKS, Benchmark, chosen, machine, table

from chainrule.data.encoded import EncodedText
from chainrule.evaluation.perplexity import Evaluation
from chainrule.lm import Floats
from chainrule.model import Model
from chainrule.ngram import smoothing
from chainrule.ngram.config import Config
from chainrule.ngram.engine import count
from chainrule.ngram.model import NgramModel
from chainrule.ngram.smoothing import Counts, estimate
from chainrule.prepared_corpus import PreparedCorpus, prepare_corpus
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode

ORDERS: Final = range(1, 6)

METHODS: Final[Mapping[str, dict[str, Any]]] = {
    "modified Kneser–Ney": {"smoothing": "modified-kneser-ney"},
    "Kneser–Ney": {"smoothing": "kneser-ney"},
    "absolute discounting, default D": {"smoothing": "absolute"},
    "absolute discounting, D = 0.75": {"smoothing": "absolute", "discount": 0.75},
    "Katz (Good–Turing)": {"smoothing": "katz"},
    "Witten–Bell": {"smoothing": "witten-bell"},
    "Jelinek–Mercer, λ per bucket": {"smoothing": "jelinek-mercer", "buckets": True},
    "Jelinek–Mercer, λ per order": {"smoothing": "jelinek-mercer", "buckets": False},
    "add-k, k = 0.1": {"smoothing": "add-k"},
    "Laplace (add-one)": {"smoothing": "laplace"},
    "maximum likelihood": {"smoothing": "mle"},
    "stupid backoff": {"smoothing": "stupid-backoff"},
}

Figures = Mapping[tuple[str, int], float]

# Published test perplexities of other toolkits on the same files, by method and order.
PUBLISHED: Final[Mapping[str, Mapping[str, Figures]]] = {
    "ptb": {
        "SRILM 1.7.3": {
            ("modified Kneser–Ney", 2): 185.705,
            ("modified Kneser–Ney", 3): 148.281,
            ("modified Kneser–Ney", 4): 142.716,
            ("modified Kneser–Ney", 5): 141.186,
            ("Kneser–Ney", 2): 186.796,
            ("Kneser–Ney", 3): 150.602,
            ("Kneser–Ney", 5): 143.514,
            ("absolute discounting, D = 0.75", 2): 194.791,
            ("absolute discounting, D = 0.75", 3): 169.884,
            ("absolute discounting, D = 0.75", 5): 176.544,
            ("Katz (Good–Turing)", 2): 194.607,
            ("Katz (Good–Turing)", 3): 166.996,
            ("Katz (Good–Turing)", 5): 174.445,
            ("Witten–Bell", 2): 199.836,
            ("Witten–Bell", 3): 186.312,
            ("Witten–Bell", 5): 209.223,
        },
        "KenLM": {("modified Kneser–Ney", 3): 148.2815, ("modified Kneser–Ney", 5): 141.1862},
    },
    "wikitext2": {
        "KenLM": {("modified Kneser–Ney", 3): 230.8863, ("modified Kneser–Ney", 5): 224.8116},
    },
}

TOKENIZERS: Final[Mapping[str, tuple[TokenizerConfig, int]]] = {
    "word": (TokenizerConfig(kind="whitespace"), 5),
    "char": (TokenizerConfig(kind="char"), 8),
    "byte": (TokenizerConfig(kind="byte"), 8),
    "bpe": (TokenizerConfig(kind="bpe"), 5),
    "wordpiece": (TokenizerConfig(kind="wordpiece"), 5),
    "unigram": (TokenizerConfig(kind="unigram"), 5),
}
VOCABULARIES: Final = (10, 100, 1000, None)


@dataclass(frozen=True, slots=True)
class Study:
    """An encoded and counted text."""

    prepared: PreparedCorpus
    counts: Counts
    test: EncodedText

    def evaluate(self, config: Config) -> Evaluation:
        """Evaluate a model estimated from these counts on the test text."""
        counts = self.counts.up_to(config.order)
        vocabulary = counts.vocabulary
        weights = self._weights(counts, config) if config.smoothing == "jelinek-mercer" else None
        tables = estimate(counts, config, weights)
        lm = NgramModel.from_tables(tables, vocabulary, is_normalized=config.is_normalized)
        prepared = self.prepared
        model = Model(lm=lm, tokenizer=prepared.tokenizer, family="ngram", config=config, speller=prepared.speller)
        return model.evaluate_encoded(self.test)

    def _weights(self, counts: Counts, config: Config) -> list[Floats]:
        assert self.prepared.valid is not None, "Jelinek-Mercer needs a validation text"
        weights = smoothing.estimate_lambdas(counts, self.prepared.valid.ids, "line", config.buckets)
        return smoothing.expand_lambdas(counts, weights, config.buckets)


def study(benchmark: Benchmark, tokenizer: TokenizerConfig, order: int, collapsed: bool = False) -> Study:
    train, valid, test = (benchmark.corpus(split, collapsed) for split in ("train", "valid", "test"))
    prepared = prepare_corpus(train, tokenizer, valid)
    counts = count(prepared.train.ids, order, prepared.tokenizer.vocabulary)
    return Study(prepared, counts, encode(test, prepared.tokenizer))


def log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def measure_methods(benchmark: Benchmark) -> dict[tuple[str, int], Evaluation]:
    log(f"{benchmark.title}: preparing and counting")
    prepared_study = study(benchmark, TokenizerConfig(kind="whitespace"), max(ORDERS))
    figures = {}
    for method, settings in METHODS.items():
        for order in ORDERS:
            figures[method, order] = prepared_study.evaluate(Config(order=order, **settings))
            log(f"{benchmark.title}: {method}, order {order}: {figures[method, order].perplexity:.4f}")
    return figures


def show_methods(benchmark: Benchmark, figures: Mapping[tuple[str, int], Evaluation]) -> None:
    head = ["method", *(f"order {n}" for n in ORDERS)]
    tokens = figures[next(iter(figures))].tokens
    perplexity = {key: (result.perplexity, ".3f") for key, result in figures.items()}
    bits = {key: (result.bits_per_byte, ".4f") for key, result in figures.items()}
    print(f"### {benchmark.title}: test perplexity ({tokens:,} tokens)\n\n{table(head, method_rows(perplexity))}")
    print(f"### {benchmark.title}: bits per byte\n\n{table(head, method_rows(bits))}")


def method_rows(figures: Mapping[tuple[str, int], tuple[float, str]]) -> list[list[str]]:
    return [[method, *(cell(method, *figures[method, n]) for n in ORDERS)] for method in METHODS]


def cell(method: str, value: float, form: str) -> str:
    """Format a value; values of unnormalized scores are in parentheses."""
    shown = "∞" if value == float("inf") else f"{value:{form}}"
    return f"({shown})" if method == "stupid backoff" else shown


def show_peers(name: str, figures: Mapping[tuple[str, int], Evaluation]) -> None:
    print(f"### {BENCHMARKS[name].title}: comparison with published results\n")
    peers = PUBLISHED[name]
    head = ["method", "order", "chainrule", *(title for peer in peers for title in (peer, "difference"))]
    rows = []
    for method, order in figures:
        if not any((method, order) in published for published in peers.values()):
            continue
        ours = figures[method, order].perplexity
        theirs = [compare(ours, published.get((method, order))) for published in peers.values()]
        rows.append([method, str(order), f"{ours:.4f}", *(text for pair in theirs for text in pair)])
    print(table(head, rows))


def compare(ours: float, theirs: float | None) -> tuple[str, str]:
    """Return the value of another toolkit and our relative difference."""
    return ("", "") if theirs is None else (str(theirs), f"{(ours - theirs) / theirs:+z.4%}")


def show_tokenizers(benchmark: Benchmark) -> None:
    rows = []
    for kind, (tokenizer, order) in TOKENIZERS.items():
        log(f"{benchmark.title}: {kind} tokens")
        prepared_study = study(benchmark, tokenizer, order, collapsed=True)
        result = prepared_study.evaluate(Config(order=order))
        size = prepared_study.prepared.tokenizer.vocab_size
        bound = "≤ " if result.is_upper_bound else ""
        figures = [f"{result.perplexity:.3f}", f"{bound}{result.bits_per_byte:.4f}"]
        rows.append([kind, str(order), f"{size:,}", f"{result.tokens:,}", *figures])
    head = ["tokens", "order", "vocabulary", "test tokens", "perplexity per token", "bits per byte"]
    print(f"### {benchmark.title}: tokenizers, modified Kneser–Ney\n\n{table(head, rows)}")


def show_vocabularies(benchmark: Benchmark, order: int = 5) -> None:
    rows = []
    for size in VOCABULARIES:
        log(f"{benchmark.title}: vocabulary of {size or 'all'} words")
        prepared_study = study(benchmark, TokenizerConfig(kind="whitespace", vocab_size=size), order)
        result = prepared_study.evaluate(Config(order=order))
        oov_rate = f"{result.oov / result.tokens:.1%}"
        name = f"{size:,}" if size else "all"
        rows.append([name, oov_rate, f"{result.perplexity:.3f}", f"{result.bits_per_byte:.4f}"])
    head = ["vocabulary size", "`<unk>` tokens", "perplexity", "bits per byte"]
    print(f"### {benchmark.title}: vocabulary size, modified Kneser–Ney of order {order}\n\n{table(head, rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Evaluate every smoothing at orders 1 to 5; prints Markdown tables."
    )
    parser.add_argument("--corpus", choices=[*BENCHMARKS, "all"], default="all")
    name = parser.parse_args().corpus
    print(f"`python -m benchmarks.results --corpus {name}`: {machine()}\n")
    for key, benchmark in chosen(name).items():
        figures = measure_methods(benchmark)
        show_methods(benchmark, figures)
        show_peers(key, figures)
        if key == "ptb":
            show_tokenizers(benchmark)
            show_vocabularies(benchmark)


if __name__ == "__main__":
    main()
