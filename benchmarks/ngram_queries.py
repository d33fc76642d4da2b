"""Measure the query speed of a model through the interface of the `kenlm` module; write the results as JSON.

    python benchmarks/ngram_queries.py MODULE MODEL TEXT ANSWER

Requires an interpreter with MODULE (`kenlm` or `chainrule.kenlm`) only. Each query runs over all sentences of the
text several times on one thread; the minimum CPU time is reported.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

PASSES: Final = 7
SECONDS: Final = 1.0  # minimum total time, against noise


def score(module: Any, model: Any, sentences: list[str]) -> float:
    """Score sentence by sentence."""
    return float(sum(model.score(sentence) for sentence in sentences))


def full_scores(module: Any, model: Any, sentences: list[str]) -> float:
    """Score sentence by sentence, with a tuple per word."""
    return float(sum(answer[0] for sentence in sentences for answer in model.full_scores(sentence)))


def base_score(module: Any, model: Any, sentences: list[str]) -> float:
    """Score word by word with a state, as in a decoder; sentences are already split."""
    total = 0.0
    one, other = module.State(), module.State()
    ask = model.BaseScore
    for sentence in sentences:
        model.BeginSentenceWrite(one)
        for word in sentence:
            total += ask(one, word, other)
            one, other = other, one
        total += ask(one, "</s>", other)
    return total


def score_list(module: Any, model: Any, sentences: list[str]) -> float:
    """Score all sentences in one call."""
    return float(model.score_sentences(sentences, threads=1).sum())


def full_score_list(module: Any, model: Any, sentences: list[str]) -> float:
    """Score all sentences in one call, with arrays of per-word results."""
    return float(model.full_score_sentences(sentences, threads=1).log_prob.sum())


QUESTIONS: Final[dict[str, Callable[[Any, Any, list[Any]], float]]] = {
    "score": score,
    "full_scores": full_scores,
    "BaseScore": base_score,
    "score_sentences": score_list,
    "full_score_sentences": full_score_list,
}


def timed(ask: Callable[[], float]) -> tuple[float, float]:
    """Return the minimum CPU seconds and the sum of all log-probabilities."""
    times: list[float] = []
    while len(times) < PASSES or sum(times) < SECONDS:
        start = time.process_time()
        total = ask()
        times.append(time.process_time() - start)
    return min(times), total


def main(name: str, path: str, text: str, answer: str) -> None:
    module = importlib.import_module(name)
    start = time.perf_counter()
    model = module.Model(path)
    results: dict[str, Any] = {"open": time.perf_counter() - start}
    sentences = Path(text).read_text(encoding="utf-8").splitlines()
    words = [sentence.split() for sentence in sentences]
    results["words"] = sum(len(line) + 1 for line in words)  # with </s>
    for question, ask in QUESTIONS.items():
        if hasattr(model, question):
            inputs = words if question == "BaseScore" else sentences
            results[question], results["log10"] = timed(lambda ask=ask, inputs=inputs: ask(module, model, inputs))  # type: ignore[misc]
    Path(answer).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
