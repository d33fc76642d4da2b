"""Small model folders of every kind, and copies of them with modified content and a valid manifest."""

import json
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

import chainrule
from chainrule import api
from chainrule.data.training_data import RunOptions
from chainrule.embeddings import storage, train
from chainrule.errors import ChainruleWarning
from chainrule.storage import verified_dir
from chainrule.tasks import classify, pretrain, tag, translate
from chainrule.text.conll import TaggedSentence
from chainrule.text.corpus import Corpus
from chainrule.text.labelled import LabelledTexts
from chainrule.text.parallel import SentencePairs

LINES = ["the cat sees a dog", "a dog runs and the mouse runs", "the cat chases the mouse", "loves a Zebra"] * 6
SMALL: dict[str, Any] = {"hidden": 8, "epochs": 1, "batch_size": 8, "learning_rate": 0.01}
TASK = RunOptions(device="cpu")
LANGUAGE_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "ngram": ("ngram", {"order": 3, "min_count": 2}),
    "ngram-small": ("ngram", {"order": 2, "min_count": 2, "layout": "small"}),
    "rnn": ("rnn", {**SMALL, "min_count": 2}),
    "lstm": ("lstm", {**SMALL, "min_count": 2, "layers": 2, "learned_start": True}),
    "gru-adaptive": ("gru", {**SMALL, "output": "adaptive", "tie": False, "context": "stream"}),
    "feedforward-sampled": ("feedforward", {**SMALL, "output": "sampled", "samples": 4}),
    "transformer-bpe": ("transformer", {**SMALL, "tokenizer": "bpe", "heads": 2, "window": 8, "layers": 1}),
    "lstm-char": ("lstm", {**SMALL, "tokenizer": "char", "lowercase": True}),
    "rnn-wordpiece": ("rnn", {**SMALL, "tokenizer": "wordpiece", "vocab_size": 600}),
    "rnn-unigram": ("rnn", {**SMALL, "tokenizer": "unigram", "vocab_size": 300}),
    "rnn-byte": ("rnn", {**SMALL, "tokenizer": "byte"}),
}
TASKS = ("tag", "classify", "classify-ngram", "translate", "pretrain", "pretrain-masked", "vectors")
KINDS = (*LANGUAGE_MODELS, "mixture", *TASKS)
NETWORKS = tuple(
    kind for kind in KINDS if kind not in ("ngram", "ngram-small", "mixture", "classify-ngram", "vectors")
)


def build(kind: str, path: Path) -> Path:
    """Train a small model of this kind and save it at `path`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        if kind in LANGUAGE_MODELS:
            family, chosen = LANGUAGE_MODELS[kind]
            api.train(family, Corpus.from_lines(LINES), device="cpu", **chosen).save(path)
        elif kind == "mixture":
            parts = [api.train("ngram", Corpus.from_lines(LINES), order=n, min_count=2) for n in (1, 2)]
            parts.append(api.train("rnn", Corpus.from_lines(LINES), device="cpu", min_count=2, **SMALL))
            api.mix(parts, held_out=Corpus.from_lines(LINES[:4])).save(path)
        else:
            _build_task(kind, path)
    return path


def _build_task(kind: str, path: Path) -> None:
    labelled = LabelledTexts(tuple(LINES), tuple("ab"[i % 2] for i in range(len(LINES))), "toy")
    match kind:
        case "tag":
            tagged = [
                TaggedSentence(tuple(x.split()), tuple("B-X" if w == "cat" else "O" for w in x.split()))
                for x in LINES
            ]
            tag.train("lstm", tagged, options=TASK, characters=4, embedding=4, **SMALL).save(path)
        case "classify":
            classify.train("lstm", labelled, options=TASK, **SMALL).save(path)
        case "classify-ngram":
            classify.train("ngram", labelled, options=TASK).save(path)
        case "translate":
            pairs = SentencePairs(tuple(LINES), tuple(LINES), "toy", tuple(range(1, len(LINES) + 1)))
            settings = {**SMALL, "attention": "additive", "tokenizer": "word"}
            translate.train("lstm", pairs, options=TASK, **settings).save(path)
        case "pretrain":
            pretrain.train("lstm", Corpus.from_lines(LINES), options=TASK, **SMALL).save(path)
        case "pretrain-masked":
            pretrain.train("transformer", Corpus.from_lines(LINES), options=TASK, heads=2, layers=1, **SMALL).save(
                path
            )
        case "vectors":
            vectors = train.train(
                Corpus.from_lines(LINES), dimensions=4, min_count=1, epochs=1, shortest=3, longest=4, buckets=50
            )
            storage.save(vectors, path)
        case _:
            raise AssertionError(kind)


def reseal(source: Path, target: Path, changes: Mapping[str, bytes | None], facts: Any = None) -> Path:
    """Copy a model folder with changed content (None: deleted) of some files and a valid manifest."""
    sealed = verified_dir.open_dir(source)
    marks = {
        name: entry.content_id for name, entry in sealed.files.items() if entry.content_id and name not in changes
    }

    def fill(temporary: Path) -> None:
        for name in sealed.files:
            if name not in changes:
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, temporary / name)
        for name, content in changes.items():
            if content is not None:
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                (temporary / name).write_bytes(content)

    verified_dir.write(target, fill, sealed.facts if facts is None else facts, marks)
    return target


def change_json(source: Path, target: Path, name: str, edit: Callable[[Any], Any]) -> Path:
    """Change a JSON file of the folder: `edit` changes the value in place or returns a new one."""
    value = json.loads((source / name).read_bytes())
    other = edit(value)
    return reseal(source, target, {name: json.dumps(value if other is None else other).encode()})


def change_tensors(source: Path, target: Path, name: str, edit: Callable[[dict[str, np.ndarray]], object]) -> Path:
    """Change the arrays of a safetensors file of the folder in place."""
    arrays = {key: np.array(value) for key, value in load_arrays((source / name).read_bytes()).items()}
    edit(arrays)
    return reseal(source, target, {name: save_arrays(arrays)})


def use_model(path: Path) -> Any:
    """Load a model and compute a result with the main method of its kind."""
    model: Any = chainrule.load(path, device="cpu")
    text = "the cat sees a Yak"
    match getattr(model, "task", "lm"):
        case "lm":
            return [
                model.score(text).log_prob,
                model.next(text, top=3),
                model.evaluate(Corpus.from_lines([text])).bits_per_byte,
            ]
        case "tag":
            return [model.tag(text.split()), model.marginals(text.split())]
        case "classify":
            return [model.predict([text]), model.probabilities([text]), model.explain(text)]
        case "translate":
            return [model.translate(text).text, model.score([text], [text])]
        case "pretrain":
            return model.evaluate(Corpus.from_lines([text]))
        case "vectors":
            return [model.neighbors("cat", 2), model.vector("zebras")]
        case task:
            raise AssertionError(task)


def flatten_numbers(answer: Any) -> list[float]:
    """Return all numbers in a result."""
    if isinstance(answer, float | int):
        return [float(answer)]
    if isinstance(answer, np.ndarray):
        return answer.astype(float).ravel().tolist() if answer.dtype.kind == "f" else []
    if isinstance(answer, Mapping):
        return flatten_numbers(list(answer.values()))
    if isinstance(answer, list | tuple):
        return [number for part in answer for number in flatten_numbers(part)]
    return []
