"""Saving and loading model folders; checksum-valid folders with invalid content raise ModelFileError."""

import copy
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as write_tensors

import chainrule
from chainrule.errors import ChainruleError, ModelFileError
from chainrule.model import Model
from chainrule.ngram.config import SMOOTHINGS
from chainrule.storage import verified_dir
from chainrule.storage.provenance import Origin
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.tokenizer import load_tokenizer, save_tokenizer
from cli.command import english, run_error, write

pytestmark = pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")

LINES = ["the cat sees a dog today", "a zebra sees naïve 日本", "", "in the old garden", "one bird", "<s> </s>"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("text") / "english.txt", english())


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    path = tmp_path_factory.mktemp("models") / "ngram"
    chainrule.train("ngram", text, order=3, smoothing="witten-bell", min_count=20).save(path)
    return path


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, text: Path) -> Path:
    path = tmp_path_factory.mktemp("models") / "mixture"
    models = [chainrule.train("ngram", text, order=n, smoothing="witten-bell") for n in (1, 3)]
    chainrule.mix(models, held_out=write(path.parent / "held_out.txt", english(30, seed=8))).save(path)
    return path


def assert_same_scores(first: Model, second: Model) -> None:
    for expected, actual in zip(first.scores(LINES), second.scores(LINES), strict=True):
        assert expected == actual  # exactly: tokens, log-probabilities, spellings


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_ngram_model_round_trips(tmp_path: Path, text: Path, smoothing: str, context: Any) -> None:
    model = chainrule.train("ngram", text, order=3, smoothing=smoothing, min_count=2, context=context)
    model.save(tmp_path / "m")
    loaded = chainrule.load(tmp_path / "m")
    assert_same_scores(model, loaded)
    assert loaded.config == model.config
    assert loaded.lm.context == context
    assert loaded.lm.is_normalized == model.lm.is_normalized == (smoothing != "stupid-backoff")
    assert loaded.metrics == model.metrics
    assert loaded.parameters == model.parameters
    assert loaded.name == str(tmp_path / "m")


@pytest.mark.parametrize("tokenizer", ["word", "char", "byte", "bpe", "wordpiece", "unigram"])
def test_model_round_trips_with_every_tokenizer(tmp_path: Path, text: Path, tokenizer: str) -> None:
    model = chainrule.train("ngram", text, order=3, smoothing="witten-bell", tokenizer=tokenizer, lowercase=True)
    model.save(tmp_path / "m")
    loaded = chainrule.load(tmp_path / "m")
    assert_same_scores(model, loaded)
    assert loaded.tokenizer.config == model.tokenizer.config
    assert (loaded.speller is None) == (tokenizer in ("byte", "bpe", "unigram"))


def test_pruned_model_round_trips(tmp_path: Path, text: Path) -> None:
    model = chainrule.train("ngram", text, order=3, smoothing="witten-bell", prune=(0, 0, 1))
    model.save(tmp_path / "m")
    assert_same_scores(model, chainrule.load(tmp_path / "m"))
    assert chainrule.load(tmp_path / "m").config.prune == (0, 0, 1)


def test_mixture_round_trips(tmp_path: Path, mixed: Path) -> None:
    model = chainrule.load(mixed)
    model.save(tmp_path / "again")
    assert_same_scores(model, chainrule.load(tmp_path / "again"))
    assert chainrule.load(tmp_path / "again").config == model.config


def test_origin_is_saved(tmp_path: Path, text: Path) -> None:
    model = chainrule.train("ngram", text, order=2, smoothing="laplace", seed=7, command="as typed")
    model.save(tmp_path / "m")
    origin = chainrule.load(tmp_path / "m").origin
    assert (origin.text, origin.command, origin.seed) == (str(text), "as typed", 7)
    assert origin.created == model.origin.created
    assert origin.versions == model.origin.versions
    assert origin.fingerprint is not None
    assert model.origin.fingerprint is not None
    assert origin.fingerprint.sha256 == model.origin.fingerprint.sha256
    assert np.array_equal(origin.fingerprint.sketch, model.origin.fingerprint.sketch)


def test_model_card_describes_the_model(saved: Path) -> None:
    card = (saved / "README.md").read_text()
    assert "| smoothing | witten-bell |" in card
    assert "chainrule.train('ngram'" in card


def test_tokenizer_folder_round_trips(tmp_path: Path, saved: Path) -> None:
    tokenizer = load_tokenizer(saved)
    save_tokenizer(tokenizer, tmp_path / "t", Origin())
    assert load_tokenizer(tmp_path / "t").to_json() == tokenizer.to_json()
    with pytest.raises(ModelFileError, match="contains a tokenizer, not a model"):
        chainrule.load(tmp_path / "t")


Change = Callable[[dict[str, Any]], None]


def rewritten(source: Path, out: Path, files: dict[str, bytes], facts: dict[str, Any] | None = None) -> Path:
    """The folder with other content and a valid manifest."""
    sealed = verified_dir.open_dir(source)
    content = {name: sealed.bytes(name) for name in sealed.files} | files

    def fill(root: Path) -> None:
        for name, data in content.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)

    verified_dir.write(out, fill, sealed.facts if facts is None else facts)
    return out


def with_config(source: Path, out: Path, change: Change) -> Path:
    config = copy.deepcopy(json.loads((source / "config.json").read_bytes()))
    change(config)
    return rewritten(source, out, {"config.json": json.dumps(config).encode()})


def load_error(path: Path) -> str:
    """The error message of the library and the command; loading must not take much memory."""
    tracemalloc.start()
    try:
        with pytest.raises(ChainruleError) as caught:
            chainrule.load(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.exit_code == 3
    assert peak < 20_000_000
    return run_error(3, "evaluate", path, "-", stdin="the cat\n")


NGRAM_CHANGES: dict[str, Change] = {
    "a million words of context": lambda c: c["model"].update(order=10**6),
    "10^12 words of context": lambda c: c["model"].update(order=10**12),
    "more than the tables hold": lambda c: c["model"].update(order=32),
    "less than the tables hold": lambda c: c["model"].update(order=2),
    "no order": lambda c: c["model"].update(order=0),
    "order in words": lambda c: c["model"].update(order="many"),
    "10^12 words": lambda c: c["tokenizer"].update(vocab_size=10**12),
    "an unknown setting": lambda c: c["model"].update(layers=10**6),
    "an unknown tokenizer": lambda c: c["tokenizer"].update(kind="emoji"),
    "another unknown word": lambda c: c["tokenizer"].update(unk="<oov>"),
    "an unknown family": lambda c: c.update(family="oracle"),
    "a family that is a path": lambda c: c.update(family="../../os"),
    "another family": lambda c: c.update(family="mixture"),
    "an unknown context": lambda c: c.update(context="page"),
    "no context": lambda c: c.pop("context"),
    "no settings": lambda c: c.pop("model"),
    "settings that are a list": lambda c: c.update(model=[3]),
    "a tokenizer that is a number": lambda c: c.update(tokenizer=3),
}


@pytest.mark.parametrize("change", NGRAM_CHANGES.values(), ids=NGRAM_CHANGES)
def test_impossible_config_is_rejected(saved: Path, tmp_path: Path, change: Change) -> None:
    message = load_error(with_config(saved, tmp_path / "m", change))
    assert str(tmp_path / "m") in message or "n-gram table" in message or "tokenizer.json" in message


def nest_mixture(config: dict[str, Any]) -> None:
    inner = config["model"]
    for _ in range(200):
        inner = {"weights": [1.0], "components": [{"family": "mixture", "context": "line", "model": inner}]}
    config["model"] = inner


MIXTURE_CHANGES: dict[str, Change] = {
    "a component of a million": lambda c: c["model"]["components"][1]["model"].update(order=10**6),
    "a component of no family": lambda c: c["model"]["components"][1].pop("family"),
    "a component of an unknown family": lambda c: c["model"]["components"][1].update(family="oracle"),
    "a component without settings": lambda c: c["model"]["components"][1].pop("model"),
    "a component more": lambda c: c["model"]["components"].append(c["model"]["components"][0]),
    "weights above one": lambda c: c["model"].update(weights=[1.0, 1.0]),
    "negative weights": lambda c: c["model"].update(weights=[-1.0, 2.0]),
    "no weights": lambda c: c["model"].update(weights=[], components=[]),
    "weights that are text": lambda c: c["model"].update(weights="half"),
    "no settings": lambda c: c["model"].clear(),
    "mixtures in mixtures": nest_mixture,
}


@pytest.mark.parametrize("change", MIXTURE_CHANGES.values(), ids=MIXTURE_CHANGES)
def test_impossible_mixture_is_rejected(mixed: Path, tmp_path: Path, change: Change) -> None:
    load_error(with_config(mixed, tmp_path / "m", change))


def tokenizer_with(saved: Path, **ids: int) -> bytes:
    tokenizer = json.loads((saved / "tokenizer.json").read_bytes())
    tokenizer["model"]["vocab"].update(ids)
    return json.dumps(tokenizer).encode()


def without(saved: Path, name: str, array: str) -> bytes:
    arrays = dict(read_tensors((saved / name).read_bytes()))
    del arrays[array]
    return write_tensors(arrays)


def changed(saved: Path, name: str, array: str, value: float) -> bytes:
    arrays = {key: np.array(content) for key, content in read_tensors((saved / name).read_bytes()).items()}
    arrays[array][-1] = value
    return write_tensors(arrays)


def other_tables(line: str, order: int) -> bytes:
    with TemporaryDirectory() as scratch:
        model = chainrule.train("ngram", Corpus.from_lines([line]), order=order, smoothing="witten-bell")
        model.save(Path(scratch, "m"))
        return Path(scratch, "m", "model.ngram").read_bytes()


FILE_CHANGES: dict[str, Callable[[Path], dict[str, bytes]]] = {
    "config that is no JSON": lambda _: {"config.json": b"{"},
    "config that is a list": lambda _: {"config.json": b"[]"},
    "config that is a binary": lambda _: {"config.json": b"\xff\xfe\x00"},
    "deep config": lambda _: {"config.json": b"[" * 100_000},
    "metrics that are no JSON": lambda _: {"metrics.json": b"nothing"},
    "tokenizer that is no JSON": lambda _: {"tokenizer.json": b"{}"},
    "tokenizer that is no text": lambda _: {"tokenizer.json": b"\xff"},
    "tokenizer with one word more": lambda saved: {"tokenizer.json": tokenizer_with(saved, extra=100)},
    "tokenizer with an id beyond all": lambda saved: {"tokenizer.json": tokenizer_with(saved, the=4_000_000_000)},
    "tables that are no tensors": lambda _: {"model.ngram": b"\xff" * 64},
    "tables of a terabyte": lambda _: {"model.ngram": (10**12).to_bytes(8, "little") + b"{}"},
    "tables of tensors, as they once were": lambda saved: {
        "model.ngram": (saved / "speller.safetensors").read_bytes()
    },
    "tables of another order": lambda _: {"model.ngram": other_tables("b a", order=1)},
    "tables of other words": lambda _: {"model.ngram": other_tables("b a c d e f g", order=3)},
    "speller without letters": lambda saved: {
        "speller.safetensors": without(saved, "speller.safetensors", "alphabet")
    },
    "speller with a letter beyond Unicode": lambda saved: {
        "speller.safetensors": changed(saved, "speller.safetensors", "alphabet", 2**32 - 1)
    },
    "sketch cut in a number": lambda _: {"training_lines.sketch": b"123"},
}


@pytest.mark.parametrize("change", FILE_CHANGES.values(), ids=FILE_CHANGES)
def test_invalid_file_with_valid_checksum_is_rejected(
    saved: Path, tmp_path: Path, change: Callable[[Path], dict[str, bytes]]
) -> None:
    load_error(rewritten(saved, tmp_path / "m", change(saved)))


def test_manifest_of_another_kind_is_rejected(saved: Path, tmp_path: Path) -> None:
    load_error(rewritten(saved, tmp_path / "m", {}, facts={}))
    load_error(rewritten(saved, tmp_path / "n", {}, facts={"training_text": 3}))
