"""Benchmark n-best reranking on nbest_wsj: word error rates with our models and with the given one.

    python -m benchmarks.rerank --out runs/rerank
    python -m benchmarks.rerank --out runs/rerank --only lstm --device cuda     # trains the LSTM and stops
    python -m benchmarks.rerank --out runs/rerank --lstm runs/rerank/lstm

Texts and models are cached in the folder. Score weights are tuned by ten-fold cross-validation over the
utterances, with the same folds for all systems. Confidence intervals are of the difference to the baseline
(acoustic score, given language-model score and number of words, with tuned weights), by a paired bootstrap.
"""

import argparse
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.corpora import DATA, machine, table
from benchmarks.rerank_texts import OTHERS, split_clitic, write_texts

import chainrule
from chainrule.applications.nbest import Columns, NBest, read_nbest, read_references
from chainrule.applications.rerank import (
    ScoredNBest,
    count_errors,
    cross_validate,
    evaluate_choice,
    resolve_impossible,
    score_texts,
)
from chainrule.errors import ChainruleWarning
from chainrule.evaluation.word_error import compare_word_errors, word_error_rate
from chainrule.lm import Floats, Ids
from chainrule.model import Model
from chainrule.text.corpus import Corpus

TREEBANK: Final = ("spoken", "ptb")
FOLDS: Final = 10
REPETITIONS: Final = 5  # of cross-validation with other folds; tables show the first, and the mean of all
OVERLAP_ORDER: Final = 8  # length of the n-grams in the contamination check
LARGE: Final = {  # for a GPU
    "hidden": 650,
    "layers": 2,
    "dropout": 0.35,
    "hidden_dropout": 0.2,
    "embedding_dropout": 0.1,
    "weight_dropout": 0.2,
    "activation_penalty": 2.0,
    "temporal_penalty": 1.0,
    "weight_decay": 0.05,
    "batch_size": 64,
    "clip": 0.25,
    "precision": "fp16",
    "epochs": 12,
}
SMALL: Final = {"hidden": 256, "layers": 1, "dropout": 0.3, "learning_rate": 4e-3, "batch_size": 32, "epochs": 8}


def train_or_load(out: Path, family: str, texts: Iterable[Path], **settings: Any) -> Path:
    """Train a model unless its folder exists; return the folder."""
    if not (out / "manifest.json").exists():
        start = time.perf_counter()
        lines = [line for text in texts for line in text.read_text(encoding="utf-8").splitlines()]
        chainrule.train(family, Corpus.from_lines(lines), **settings).save(out)
        print(f"{out}: {time.perf_counter() - start:.0f} s")
    return out


def treebank(out: Path) -> Path:
    """Train a 5-gram of the treebank; its tokenizer is used by all models."""
    texts = [out / "text" / f"{name}.txt" for name in TREEBANK]
    vocab = str(out / "text" / "vocab.txt")
    return train_or_load(out / "ngram-treebank", "ngram", texts, tokenizer="whitespace", order=5, vocab=vocab)


def ngrams(out: Path, others: Sequence[str]) -> Path:
    """Interpolate the 5-gram of the treebank with a 4-gram of each other text."""
    first = treebank(out)
    models = [first]
    for name in ("spoken", *others):
        text = [out / "text" / f"{name}.txt"]
        models.append(train_or_load(out / f"ngram-{name}", "ngram", text, tokenizer=first, order=4))
    return interpolate(out / "ngram", models)


def interpolate(out: Path, models: Sequence[Path]) -> Path:
    """Interpolate models with weights estimated on the held-out sentences."""
    if not (out / "manifest.json").exists():
        chainrule.mix(models, held_out=str(out.parent / "text" / "held-out.txt")).save(out)
    return out


def lstm(out: Path, others: Sequence[str], device: str, seconds: float) -> Path:
    """Train an LSTM on the treebank; on a GPU on the treebank twice and on the other texts once."""
    is_large = device == "cuda"
    names = [*TREEBANK, *TREEBANK, *(name for name in others if name != "novels")] if is_large else TREEBANK
    return train_or_load(
        out / "lstm",
        "lstm",
        [out / "text" / f"{name}.txt" for name in names],
        valid=str(out / "text" / "held-out.txt"),
        tokenizer=treebank(out),
        device=device,
        max_seconds=seconds,
        **(LARGE if is_large else SMALL),
    )


def overlap(nbest: NBest, references: Mapping[str, str], folder: Path) -> str:
    """Report how many references and reference n-grams occur in the training texts."""
    tokenized = [
        [part for word in references[id_].split() for part in split_clitic(word)] for id_ in nbest.utterances
    ]
    ngrams_of_references = {
        tuple(words[i : i + OVERLAP_ORDER]) for words in tokenized for i in range(len(words) - OVERLAP_ORDER + 1)
    }
    whole = {" ".join(words) for words in tokenized}
    matched_whole: set[str] = set()
    matched: set[tuple[str, ...]] = set()
    for path in sorted(folder.glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            matched_whole |= whole & {line}
            matched |= ngrams_of_references.intersection(
                tuple(words[i : i + OVERLAP_ORDER]) for i in range(len(words) - OVERLAP_ORDER + 1)
            )
    return (
        f"{len(matched_whole)} of {len(whole)} distinct references and {len(matched)} of their "
        f"{len(ngrams_of_references):,} {OVERLAP_ORDER}-grams occur in the training texts."
    )


def rows(nbest: NBest, scores_by_model: Mapping[str, Floats], errors: Ids, words: Ids) -> list[list[str]]:
    """Return a row per system: word error rate, its mean over repetitions, and the difference to the baseline."""
    acoustic, recognizer_lm = nbest.scores["acoustic_logp"], nbest.scores["lm_logp"]
    length = nbest.words.astype(float)
    systems: dict[str, dict[str, Floats]] = {"given": {"given": recognizer_lm}}
    systems |= {name: {name: scores} for name, scores in scores_by_model.items()}
    systems["n-gram and LSTM, two weights"] = {name: scores_by_model[name] for name in ("n-gram", "LSTM")}
    systems |= {
        f"{name} + given": scores | {"given": recognizer_lm} for name, scores in systems.items() if name != "given"
    }
    table_rows = []
    baseline: Ids | None = None
    for name, scores in systems.items():
        scored = resolve_impossible(nbest, {"acoustic": acoustic} | scores | {"words": length})
        by_repetition = [chosen_errors(scored, errors, seed) for seed in range(REPETITIONS)]
        baseline = by_repetition[0] if baseline is None else baseline
        mean = np.mean([word_error_rate(wrong, words) for wrong in by_repetition])
        cells = [f"acoustic + {name}", f"{word_error_rate(by_repetition[0], words):.2f}", f"{mean:.2f}"]
        compared = compare_word_errors(by_repetition[0], baseline, words, samples=10_000)
        interval = f"{compared.difference:+.2f} ({compared.low:+.2f} to {compared.high:+.2f})"
        table_rows.append([*cells, *(["", ""] if name == "given" else [interval, f"{compared.p_value:.4f}"])])
    return table_rows


def chosen_errors(scored: ScoredNBest, errors: Ids, seed: int) -> Ids:
    """Return the errors of each utterance with weights tuned on the other folds."""
    return errors[cross_validate(scored, errors, FOLDS, seed=seed).rows]


def known_rows(nbest: NBest, errors: Ids, words: Ids) -> list[list[str]]:
    """Return rows of systems without tuned weights."""
    scored = resolve_impossible(nbest, nbest.scores)
    fixed = evaluate_choice(nbest, scored.choose(scored.weights({"acoustic": 1, "lm": 16})), errors, words).rates
    acoustic = evaluate_choice(nbest, scored.choose(scored.weights({"acoustic": 1})), errors, words).rates
    rates = {
        "first hypothesis": fixed["first"],
        "oracle": fixed["oracle"],
        "acoustic only": acoustic["reranked"],
        "acoustic + 16 × given": fixed["reranked"],
    }
    return [[name, f"{rate:.2f}", "", "", ""] for name, rate in rates.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/rerank"))
    parser.add_argument("--lstm", type=Path, help="trained LSTM with the tokenizer of OUT/ngram-treebank")
    parser.add_argument("--seconds", type=float, default=300, help="training time of the LSTM")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--others", default="conll,ewt,wikitext2", help=f"additional texts: {','.join(OTHERS)}")
    parser.add_argument("--only", choices=["lstm"], help="train this and stop")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ChainruleWarning)
    out: Path = arguments.out
    others = [name for name in arguments.others.split(",") if name]
    nbest = read_nbest(DATA / "nbest_wsj" / "nbest.tsv", Columns(text="hypothesis_ptb_tokens"))
    if not (out / "text" / "vocab.txt").exists():
        write_texts(out / "text", others, nbest.texts)
    network = arguments.lstm or lstm(out, others, arguments.device, arguments.seconds)
    if arguments.only:
        return
    ngram = ngrams(out, others)
    paths = {"n-gram": ngram, "LSTM": network, "mixture": interpolate(out / "mixture", [ngram, network])}
    models: dict[str, Model] = {name: chainrule.load(path) for name, path in paths.items()}
    held_out = {
        name: model.evaluate(str(out / "text" / "held-out.txt")).perplexity for name, model in models.items()
    }
    references = read_references(DATA / "nbest_wsj" / "ref.tsv")
    errors, words = count_errors(nbest, references)
    scores_by_model = {name: score_texts(model, nbest.texts) for name, model in models.items()}
    print(f"{machine()}\n")
    head = ["scores", "word error rate %", f"mean of {REPETITIONS}", "− given (95 %)", "p"]
    print(table(head, known_rows(nbest, errors, words) + rows(nbest, scores_by_model, errors, words)))
    print("Held-out perplexity: " + ", ".join(f"{name} {value:.1f}" for name, value in held_out.items()) + ".")
    print(overlap(nbest, references, out / "text"))
    print("The vocabulary contains the words of all hypotheses; the references were not used in training.")


if __name__ == "__main__":
    main()
