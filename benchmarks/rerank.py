"""Word error rates of reranked speech: our models beside the recogniser's own language model, on nbest_wsj.

    python -m benchmarks.rerank --out runs/rerank
    python -m benchmarks.rerank --out runs/rerank --only lstm --device cuda     # trains the LSTM and stops
    python -m benchmarks.rerank --out runs/rerank --lstm runs/rerank/lstm

Texts, models and figures are kept in the folder and not made again. Weights are tuned on nine tenths of the
utterances and used on the other, all systems in the same parts; an interval is of the difference to the given
language model (acoustic score, its score and the number of words, weighed in the same way), by a paired bootstrap.
"""

import argparse
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.corpora import DATA, machine, table
from benchmarks.rerank_texts import OTHERS, cut_clitics, write_texts

import chainrule
from chainrule.applications.nbest import Columns, NBest, read_nbest, read_references
from chainrule.applications.rerank import Scored, count_errors, cross_validate, judge, log_probs, settle
from chainrule.errors import ChainruleWarning
from chainrule.evaluation.word_error import compare_word_errors, word_error_rate
from chainrule.lm import Floats, Ids
from chainrule.model import Model
from chainrule.text.corpus import Corpus

TREEBANK: Final = ("spoken", "ptb")
PARTS: Final = 10
FOLDINGS: Final = 5  # ways of parting the utterances; the table's figures are of the first, and the mean of all
PIECE: Final = 8  # words in a row that would tell of a reference in a text
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


def trained(out: Path, family: str, texts: Iterable[Path], **settings: Any) -> Path:
    """The folder of a model, trained where it is not there yet."""
    if not (out / "manifest.json").exists():
        start = time.perf_counter()
        lines = [line for text in texts for line in text.read_text(encoding="utf-8").splitlines()]
        chainrule.train(family, Corpus.from_lines(lines), **settings).save(out)
        print(f"{out}: {time.perf_counter() - start:.0f} s")
    return out


def treebank(out: Path) -> Path:
    """A 5-gram of the treebank, whose tokenizer is that of all."""
    texts = [out / "text" / f"{name}.txt" for name in TREEBANK]
    vocab = str(out / "text" / "vocab.txt")
    return trained(out / "ngram-treebank", "ngram", texts, tokenizer="whitespace", order=5, vocab=vocab)


def ngrams(out: Path, others: Sequence[str]) -> Path:
    """The 5-gram of the treebank and a 4-gram of each other text, mixed for the held-out sentences."""
    first = treebank(out)
    models = [first]
    for name in ("spoken", *others):
        text = [out / "text" / f"{name}.txt"]
        models.append(trained(out / f"ngram-{name}", "ngram", text, tokenizer=first, order=4))
    return mixed(out / "ngram", models)


def mixed(out: Path, models: Sequence[Path]) -> Path:
    """A mixture with the weights that predict the held-out sentences best."""
    if not (out / "manifest.json").exists():
        chainrule.mix(models, held_out=str(out.parent / "text" / "held-out.txt")).save(out)
    return out


def lstm(out: Path, others: Sequence[str], device: str, seconds: float) -> Path:
    """An LSTM of the treebank, on a GPU of the treebank twice and of the other texts once."""
    is_large = device == "cuda"
    names = [*TREEBANK, *TREEBANK, *(name for name in others if name != "novels")] if is_large else TREEBANK
    return trained(
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
    """How much of the references stands in the texts, in words."""
    said = [[part for word in references[id_].split() for part in cut_clitics(word)] for id_ in nbest.utterances]
    pieces = {tuple(words[i : i + PIECE]) for words in said for i in range(len(words) - PIECE + 1)}
    whole = {" ".join(words) for words in said}
    found_whole: set[str] = set()
    found: set[tuple[str, ...]] = set()
    for path in sorted(folder.glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            words = line.split()
            found_whole |= whole & {line}
            found |= pieces.intersection(tuple(words[i : i + PIECE]) for i in range(len(words) - PIECE + 1))
    return (
        f"Of {len(whole)} different references {len(found_whole)} stand in the texts whole, "
        f"and of their {len(pieces):,} rows of {PIECE} words {len(found)} do."
    )


def rows(nbest: NBest, own: Mapping[str, Floats], errors: Ids, words: Ids) -> list[list[str]]:
    """Each set of scores: the rate, its mean over foldings, and the difference to the given language model."""
    acoustic, given = nbest.scores["acoustic_logp"], nbest.scores["lm_logp"]
    length = nbest.words.astype(float)
    systems: dict[str, dict[str, Floats]] = {"given": {"given": given}}
    systems |= {name: {name: scores} for name, scores in own.items()}
    systems["n-gram and LSTM, two weights"] = {name: own[name] for name in ("n-gram", "LSTM")}
    systems |= {f"{name} + given": scores | {"given": given} for name, scores in systems.items() if name != "given"}
    table_rows = []
    baseline: Ids | None = None
    for name, scores in systems.items():
        scored = settle(nbest, {"acoustic": acoustic} | scores | {"words": length})
        by_folding = [chosen_errors(scored, errors, seed) for seed in range(FOLDINGS)]
        baseline = by_folding[0] if baseline is None else baseline
        mean = np.mean([word_error_rate(found, words) for found in by_folding])
        cells = [f"acoustic + {name}", f"{word_error_rate(by_folding[0], words):.2f}", f"{mean:.2f}"]
        compared = compare_word_errors(by_folding[0], baseline, words, samples=10_000)
        interval = f"{compared.difference:+.2f} ({compared.low:+.2f} to {compared.high:+.2f})"
        table_rows.append([*cells, *(["", ""] if name == "given" else [interval, f"{compared.p_value:.4f}"])])
    return table_rows


def chosen_errors(scored: Scored, errors: Ids, seed: int) -> Ids:
    """The errors of each utterance, by weights tuned on the other parts."""
    return errors[cross_validate(scored, errors, PARTS, seed=seed).rows]


def known_rows(nbest: NBest, errors: Ids, words: Ids) -> list[list[str]]:
    """Choices without weights to tune."""
    scored = settle(nbest, nbest.scores)
    fixed = judge(nbest, scored.choose(scored.weights({"acoustic": 1, "lm": 16})), errors, words).rates
    loud = judge(nbest, scored.choose(scored.weights({"acoustic": 1})), errors, words).rates
    found = {
        "first of the list": fixed["first"],
        "best in the list": fixed["oracle"],
        "acoustic alone": loud["reranked"],
        "acoustic + 16 × given": fixed["reranked"],
    }
    return [[name, f"{rate:.2f}", "", "", ""] for name, rate in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/rerank"))
    parser.add_argument("--lstm", type=Path, help="a trained one, of the tokenizer of OUT/ngram-treebank")
    parser.add_argument("--seconds", type=float, default=300, help="for the LSTM to learn in")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--others", default="conll,ewt,wikitext2", help=f"of {','.join(OTHERS)}")
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
    paths = {"n-gram": ngram, "LSTM": network, "mixture": mixed(out / "mixture", [ngram, network])}
    models: dict[str, Model] = {name: chainrule.load(path) for name, path in paths.items()}
    held_out = {
        name: model.evaluate(str(out / "text" / "held-out.txt")).perplexity for name, model in models.items()
    }
    references = read_references(DATA / "nbest_wsj" / "ref.tsv")
    errors, words = count_errors(nbest, references)
    own = {name: log_probs(model, nbest.texts) for name, model in models.items()}
    print(f"{machine()}\n")
    head = ["scores", "word error rate %", f"mean of {FOLDINGS}", "− given (95 %)", "p"]
    print(table(head, known_rows(nbest, errors, words) + rows(nbest, own, errors, words)))
    print("Held-out perplexity: " + ", ".join(f"{name} {value:.1f}" for name, value in held_out.items()) + ".")
    print(overlap(nbest, references, out / "text"))
    print("The vocabulary holds the words of all hypotheses; of the references the models have seen nothing.")


if __name__ == "__main__":
    main()
