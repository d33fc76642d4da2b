"""CPU seconds of asking a model through the `kenlm` module's names, KenLM's own or ours, into a JSON file.

    python benchmarks/ngram_queries.py MODULE MODEL TEXT ANSWER

Runs under an interpreter that has MODULE (`kenlm` or `chainrule.kenlm`) and needs nothing else. Each question is
put to all sentences of the text several times on one thread; the fastest time counts.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

PASSES: Final = 7
SECONDS: Final = 1.0  # of passes at least: what else the machine does comes and goes


def score(module: Any, model: Any, sentences: list[str]) -> float:
    """Sentence by sentence."""
    return float(sum(model.score(sentence) for sentence in sentences))


def full_scores(module: Any, model: Any, sentences: list[str]) -> float:
    """Sentence by sentence, every word's answer as a tuple."""
    return float(sum(answer[0] for sentence in sentences for answer in model.full_scores(sentence)))


def base_score(module: Any, model: Any, sentences: list[str]) -> float:
    """Word by word with a state, as a decoder asks; the words are cut beforehand."""
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
    """All in one call."""
    return float(model.score_sentences(sentences, threads=1).sum())


def full_score_list(module: Any, model: Any, sentences: list[str]) -> float:
    """All in one call, every word's answer in arrays."""
    return float(model.full_score_sentences(sentences, threads=1).log_prob.sum())


QUESTIONS: Final[dict[str, Callable[[Any, Any, list[Any]], float]]] = {
    "score": score,
    "full_scores": full_scores,
    "BaseScore": base_score,
    "score_sentences": score_list,
    "full_score_sentences": full_score_list,
}


def timed(ask: Callable[[], float]) -> tuple[float, float]:
    """The least CPU seconds, and the sum of all log-probabilities."""
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
    found: dict[str, Any] = {"open": time.perf_counter() - start}
    sentences = Path(text).read_text(encoding="utf-8").splitlines()
    words = [sentence.split() for sentence in sentences]
    found["words"] = sum(len(line) + 1 for line in words)  # with </s>
    for question, ask in QUESTIONS.items():
        if hasattr(model, question):
            given = words if question == "BaseScore" else sentences
            found[question], found["log10"] = timed(lambda ask=ask, given=given: ask(module, model, given))  # type: ignore[misc]
    Path(answer).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
