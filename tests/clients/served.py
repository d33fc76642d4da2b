"""Trains small models, serves them, and has other people's clients ask for what they say in process.

Run by serve.sh: `served.py PYTHON all|openai`, PYTHON being the clients'. What each client must find is written to
expected.json: this file alone knows chainrule, the clients' scripts alone know their packages.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import chainrule
from chainrule.errors import ChainruleWarning
from chainrule.model import Model

HERE: Final = Path(__file__).parent
MODELS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "byte": ("ngram", {"tokenizer": "byte", "order": 5}),
    "char": ("ngram", {"tokenizer": "char", "order": 4, "context": "stream"}),
    "word": ("ngram", {"tokenizer": "word", "order": 3, "min_count": 2}),
    "lstm": ("lstm", {"tokenizer": "char", "hidden": 32, "embedding": 32, "layers": 1, "epochs": 1}),
}
LOSSLESS: Final = ("byte", "char", "lstm")  # whose bits per byte lm-evaluation-harness can know
SEED: Final = 7
KEY: Final = "a-key-of-our-own"
SETTINGS: Final[dict[str, Any]] = {"max_tokens": 12, "temperature": 0.8, "top_p": 0.9, "seed": SEED}
QUESTIONS: Final[list[dict[str, Any]]] = [
    {"question": "the model is", "choices": ["trained", "zzz", "a word"], "answer": 0},
    {"question": "what was", "choices": ["wrong", "wronger", "qqqq"], "answer": 0},
    {"question": "log p of", "choices": ["##", "each", "the"], "answer": 2},
]


def lines() -> list[str]:
    """Lower-case lines of the documentation."""
    results = []
    for path in sorted((HERE.parents[1] / "docs").glob("*.md")):
        for sentence in re.split(r"(?<=[.:;])\s+|\n\n", path.read_text(encoding="utf-8")):
            words = re.findall(r"[a-zäöü→½']+", sentence.lower())
            results += [" ".join(words)] if words else []
    return results


def train(folder: Path) -> dict[str, Model]:
    """The models, each trained and read back from where it is served."""
    text = lines()
    (folder / "train.txt").write_text("\n".join(text[20:]) + "\n", encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        for name, (family, settings) in MODELS.items():
            chainrule.train(family, folder / "train.txt", seed=SEED, **settings).save(folder / name)
    return {name: chainrule.load(folder / name) for name in MODELS}


def expected(models: dict[str, Model], folder: Path) -> dict[str, Any]:
    """What the clients must find, by model."""
    known = set((folder / "train.txt").read_text(encoding="utf-8"))
    text = "".join(c for c in "\n".join(lines()[:20]) + "\n" if c in known)  # ends in a line break
    result = {}
    for name, model in models.items():
        (folder / "test.txt").write_text(text, encoding="utf-8")
        figures = model.evaluate(folder / "test.txt")
        result[name] = {
            "bits_per_byte": figures.bits_per_byte,
            "bytes": len(text.encode()),
            "choices": [[_of(model, q["question"], choice) for choice in q["choices"]] for q in QUESTIONS],
            "greedy": [_until(model, q["question"]) for q in QUESTIONS],
            "drawn": [g.text for g in model.generate_several("the model", 3, **SETTINGS)],
            "log_probs": list(model.score("the model is").log_probs),
            "next": model.next("the model", 3),
        }
    return {"text": text, "questions": QUESTIONS, "settings": SETTINGS, "models": result}


def _of(model: Model, question: str, choice: str) -> list[float | bool]:
    """Log p of the choice behind the question and a blank, and whether each of its tokens is the most probable."""
    ids = model.tokenizer.encode(f"{question} {choice}").tolist()
    log_probs = model.score(f"{question} {choice}").log_probs
    places = range(len(model.tokenizer.encode(question)), len(ids))
    best = [math.log(model.next(model.tokenizer.decode(ids[:place]), 1)[0][1]) for place in places]
    is_greedy = all(
        math.isclose(log_probs[place], top, abs_tol=1e-6) for place, top in zip(places, best, strict=True)
    )
    return [math.fsum(log_probs[place] for place in places), is_greedy]


def _until(model: Model, prompt: str) -> str:
    return model.generate(prompt, strategy="greedy", max_tokens=10, stop=(" a",)).text


@contextmanager
def served(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """The address of a server of these models."""
    key = folder / "key"
    key.touch(0o600)
    key.write_text(f"{KEY}\n", encoding="utf-8")
    command = [sys.executable, "-m", "chainrule", "serve", "--port", "0", "--api-key-file", str(key), "--quiet"]
    folders = [str(folder / name) for name in names]
    with (folder / "log").open("a", encoding="utf-8") as log:
        server = subprocess.Popen([*command, *folders], stdout=subprocess.PIPE, stderr=log, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait(20)


def run(command: list[str], environment: dict[str, str], folder: Path) -> None:
    """Let a client ask; what it and the servers logged is shown where it fails."""
    with (folder / "log").open("a", encoding="utf-8") as log:
        done = subprocess.run(command, env=environment, stderr=log)
    if done.returncode:
        sys.exit((folder / "log").read_text(encoding="utf-8") + f"\nfailed: {' '.join(command)}")


def run_page(python: str, address: str, environment: dict[str, str], folder: Path) -> None:
    """What docs/clients.md shows of the packages, as it stands there but for address and key."""
    page = (HERE.parents[1] / "docs" / "clients.md").read_text(encoding="utf-8")
    page = page.replace("http://127.0.0.1:8080", address).replace('api_key="none"', f'api_key="{KEY}"')
    script, task, command = (
        re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[0] for kind in ("python", "yaml", "sh")
    )
    (folder / "tasks").mkdir()
    (folder / "tasks" / "my_text.yaml").write_text(task, encoding="utf-8")
    (folder / "test.jsonl").write_text(json.dumps({"text": "the model is trained\n"}) + "\n", encoding="utf-8")
    path = f"{Path(python).parent.absolute()}:{environment['PATH']}"
    command = command.replace("max_length=65536", f"max_length=65536,auth_token={KEY}")
    for item in ([python, "-c", script], ["bash", "-ec", f"cd '{folder}'; {command}"]):
        run(item, environment | {"PATH": path}, folder)


def main(python: str, clients: str) -> None:
    """Everything, or the openai package alone, in a folder that is removed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = expected(train(folder), folder)
        (folder / "expected.json").write_text(json.dumps(result), encoding="utf-8")
        environment = os.environ | {
            "OPENAI_API_KEY": KEY,
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "HF_HOME": str(folder / "huggingface"),
            "NO_PROXY": "127.0.0.1",
        }
        with served(folder, list(MODELS)) as address:
            run([python, str(HERE / "openai_client.py"), address, name], environment, folder)
        if clients != "all":
            return
        with ExitStack() as servers:
            request_ = [f"{model}={servers.enter_context(served(folder, [model]))}" for model in LOSSLESS]
            run([python, str(HERE / "lm_eval_client.py"), name, *request_], environment, folder)
            run_page(python, request_[0].removeprefix("byte="), environment, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
