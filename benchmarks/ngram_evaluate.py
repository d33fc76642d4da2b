"""Measure n-gram evaluation against scoring sentences in one call of the engine, in CPU seconds.

    python benchmarks/ngram_evaluate.py [--data FOLDER] [--order N]

Trains an n-gram model on the Penn Treebank and scores its validation and test text on one thread: with the
compiled `score_sentences`, which splits and numbers the words itself, with `encode` and `token_log_probs`, and with
the whole of `Model.evaluate`. The minimum of several passes is printed, and the ratio to `score_sentences`.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import chainrule
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.encode import encode

PASSES: Final = 50


def cpu_seconds(call: Callable[[], object]) -> float:
    """Return the minimum CPU time of several calls."""
    times = []
    for _ in range(PASSES):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with ptb/")
    parser.add_argument("--order", type=int, default=5, help="order of the model")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    folder = options.data / "ptb"
    texts = [folder / "ptb.valid.txt", folder / "ptb.test.txt"]
    model = chainrule.train("ngram", folder / "ptb.train.txt", order=options.order)
    engine = model.lm.engine
    assert engine is not None
    sentences = [line for path in texts for line in path.read_text(encoding="utf-8").splitlines()]
    corpus = Corpus.of(texts)
    measured = {
        "score_sentences": lambda: engine.score_sentences(sentences, threads=1),
        "encode + token_log_probs": lambda: token_log_probs(model.lm, encode(corpus, model.tokenizer)),
        "Model.evaluate": lambda: model.evaluate(corpus),
    }
    seconds = {name: cpu_seconds(call) for name, call in measured.items()}
    for name, value in seconds.items():
        print(f"{name:26} {value:8.4f} s  {value / seconds['score_sentences']:5.2f}x")


if __name__ == "__main__":
    main()
