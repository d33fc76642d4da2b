"""The measured calls of benchmarks/regression.py: one job in one process, with whichever chainrule is installed.

    python -P benchmarks/regression_jobs.py JOB MODEL TEXT

Prints as JSON the CPU and wall seconds of the fastest pass and a number computed from the result. Only names that
every version of chainrule has are used. Does not import the other benchmarks, which need the current version.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

PASSES: Final = {"train": 3, "query": 20, "evaluate": 10, "lstm": 1}
LSTM: Final[dict[str, Any]] = {
    "hidden": 128,
    "embedding": 128,
    "layers": 1,
    "dropout": 0.0,
    "batch_size": 20,
    "bptt": 35,
    "epochs": 1,
    "seed": 1,
    "device": "cpu",
}


def prepare(job: str, model: str, text: str) -> Callable[[], float]:
    """Load what the job needs; return the call to measure, which returns a number computed from its result."""
    import chainrule

    if job == "train":
        return lambda: saved_size(chainrule.train("ngram", text, order=5), Path(model))
    if job == "query":
        from chainrule import kenlm

        scorer, sentences = kenlm.Model(model), Path(text).read_text(encoding="utf-8").splitlines()
        return lambda: float(scorer.score_sentences(sentences, threads=1).sum())
    if job == "evaluate":
        loaded = chainrule.load(model)
        return lambda: loaded.evaluate(text).perplexity
    import torch

    torch.zeros(1)
    return lambda: chainrule.train("lstm", text, **LSTM).score("the company said").perplexity


def saved_size(model: Any, folder: Path) -> float:
    """Save a model at the first pass; return the size of its n-gram file in bytes."""
    if not folder.exists():
        model.save(folder)
    return float((folder / "model.ngram").stat().st_size)


def main(job: str, model: str, text: str) -> None:
    call = prepare(job, model, text)
    passes = []
    for _ in range(PASSES[job]):
        cpu, wall = time.process_time(), time.perf_counter()
        result = call()
        passes.append((time.process_time() - cpu, time.perf_counter() - wall))
    print(json.dumps({"cpu": min(cpu for cpu, _ in passes), "wall": min(w for _, w in passes), "result": result}))


if __name__ == "__main__":
    main(*sys.argv[1:])
