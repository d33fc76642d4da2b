"""Model folders with a valid manifest and hostile content raise an error that names the file."""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

import chainrule
from chainrule import api
from chainrule.errors import ChainruleError, ModelFileError
from chainrule.inspection import training
from chainrule.neural import weights
from chainrule.neural.probes import contextual
from chainrule.ngram.model import NgramModel
from chainrule.ngram.oov_speller import Speller
from chainrule.ngram.tables import BackoffTables
from chainrule.server.models import read_family
from chainrule.storage import verified_dir
from chainrule.text.corpus import Corpus
from chainrule.training import checkpoint
from cli.command import call
from hostile import folders
from hostile.folders import change_json, change_tensors, flatten_numbers, reseal, use_model
from ngram.reference import as_tables

Arrays = dict[str, np.ndarray]
WEIGHTS, SPELLER = "model.safetensors", "speller.safetensors"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a small model of each kind, trained once."""
    root = tmp_path_factory.mktemp("models")
    return lambda kind: root / kind if (root / kind).exists() else folders.build(kind, root / kind)


def first_float(arrays: Arrays) -> str:
    return next(name for name in sorted(arrays) if arrays[name].dtype == np.float32 and arrays[name].ndim == 2)


def set_first_value(value: float) -> Callable[[Arrays], object]:
    return lambda arrays: arrays[first_float(arrays)].__setitem__((0, 0), value)


def change_dtype(dtype: Any) -> Callable[[Arrays], object]:
    return lambda arrays: arrays.update({(name := first_float(arrays)): arrays[name].astype(dtype)})


TENSOR_EDITS: dict[str, tuple[Callable[[Arrays], object], str]] = {
    "NaN": (set_first_value(np.nan), "contains NaN or infinite values"),
    "infinity": (set_first_value(-np.inf), "contains NaN or infinite values"),
    "1e38": (set_first_value(1e38), "contains a value of 1e.38"),
    "int64": (change_dtype(np.int64), "int64 and should be"),
    "bool": (change_dtype(np.bool_), "bool and should be"),
    "float64": (change_dtype(np.float64), "float64 and should be"),
    "float16": (change_dtype(np.float16), "float16 and should be"),
    "transposed": (lambda a: a.update({(n := first_float(a)): a[n].T.copy()[None]}), "does not fit its config"),
    "wider": (lambda a: a.update({(n := first_float(a)): np.pad(a[n], 1)}), "does not fit its config"),
    "missing": (lambda a: a.pop(first_float(a)), "is absent and should be"),
    "another": (lambda a: a.update(another=np.zeros(2, np.float32)), "another is .* and should be absent"),
}


@pytest.mark.parametrize("kind", folders.KINDS)
def test_unchanged_folders_give_finite_results(kind: str, models: Callable[[str], Path], tmp_path: Path) -> None:
    answer = flatten_numbers(use_model(reseal(models(kind), tmp_path / "model", {})))
    assert np.isfinite(answer).all()


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """SHA-256 digests computed during the test, with the number of times each was computed."""
    digests: Counter[str] = Counter()
    sha256, file_digest = hashlib.sha256, hashlib.file_digest

    def count_bytes(content: bytes = b"", **options: Any) -> Any:
        digest = sha256(content, **options)
        digests[digest.hexdigest()] += 1
        return digest

    def count_file(*args: Any) -> Any:
        digest = file_digest(*args)
        digests[digest.hexdigest()] += 1
        return digest

    monkeypatch.setattr(hashlib, "sha256", count_bytes)
    monkeypatch.setattr(hashlib, "file_digest", count_file)
    return digests


@pytest.mark.parametrize("kind", ["ngram", "lstm", "mixture", *folders.TASKS])
@pytest.mark.parametrize("way", ["load", "verify", "info", "serve"])
def test_each_file_is_hashed_once(
    kind: str, way: str, models: Callable[[str], Path], request: pytest.FixtureRequest
) -> None:
    if way == "serve" and kind in folders.TASKS:
        pytest.skip("only language models are served")
    path = models(kind)
    hashed: Counter[str] = request.getfixturevalue("hashed")
    match way:
        case "info":
            assert call("info", path).status == 0
        case "serve":
            read_family(path)
            assert not any(hashed[entry.sha256] for name, entry in entries(path) if name != "config.json")
            api.load(path, device="cpu", kind="language model")
        case _:
            chainrule.load(path, device="cpu", verify=way == "verify")
    for name, entry in entries(path):
        if name != "config.json":
            is_skipped = entry.content_id is not None and way != "verify"  # verified block by block
            assert hashed[entry.sha256] == (0 if is_skipped else 1), name


def entries(path: Path) -> list[tuple[str, verified_dir.Entry]]:
    return list(verified_dir.open_dir(path).files.items())


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        *((kind, edit) for kind in ("lstm", "tag", "vectors") for edit in TENSOR_EDITS),
        *((kind, edit) for kind in (*folders.NETWORKS, "mixture") for edit in ("NaN", "int64", "wider")),
    ],
)
def test_tensors_are_checked_against_the_config(
    kind: str, edit: str, models: Callable[[str], Path], tmp_path: Path
) -> None:
    name = f"components/2/{WEIGHTS}" if kind == "mixture" else WEIGHTS
    change, message = TENSOR_EDITS[edit]
    path = change_tensors(models(kind), tmp_path / "model", name, change)
    with pytest.raises(ModelFileError, match=message) as caught:
        chainrule.load(path, device="cpu")
    assert WEIGHTS in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        ("gru-adaptive", "output.classes", lambda x: x * 0),
        ("gru-adaptive", "output.classes", lambda x: x + 1000),
        ("gru-adaptive", "output.classes", lambda x: -x),
        ("feedforward-sampled", "output.edges", lambda x: x[::-1].copy()),
        ("feedforward-sampled", "output.edges", lambda x: x + 1),
    ],
)
def test_invalid_word_classes_are_rejected(
    kind: str, name: str, change: Any, models: Callable[[str], Path], tmp_path: Path
) -> None:
    path = change_tensors(models(kind), tmp_path / "model", WEIGHTS, lambda a: a.update({name: change(a[name])}))
    with pytest.raises(ModelFileError, match="invalid word classes in its output layer"):
        chainrule.load(path, device="cpu")


@pytest.mark.parametrize("kind", [kind for kind in (*folders.NETWORKS, "mixture") if kind != "gru-adaptive"])
def test_overflowing_weights_raise_on_first_use(
    kind: str, models: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finite weights that overflow in use: the first result raises and names the folder.

    The closed update gates of the GRU keep its state at 0, so nothing overflows there.
    """

    def inflate(arrays: Arrays) -> None:
        for name, array in arrays.items():
            if array.dtype == np.float32:
                arrays[name] = np.where(np.arange(array.size).reshape(array.shape) % 2, 3e38, -3e38).astype("f4")

    name = f"components/2/{WEIGHTS}" if kind == "mixture" else WEIGHTS
    path = change_tensors(models(kind), tmp_path / "model", name, inflate)
    monkeypatch.setattr(weights, "LARGEST_WEIGHT", float("inf"))
    with pytest.raises(ModelFileError, match="overflowed to infinity") as caught:
        use_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["transformer-bpe", "pretrain-masked"])
def test_overflowing_weights_give_no_contextual_vectors(
    kind: str, models: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = change_tensors(
        models(kind), tmp_path / "model", WEIGHTS, lambda a: a.update({n: a[n] * 0 + 3e38 for n in a if a[n].ndim})
    )
    monkeypatch.setattr(weights, "LARGEST_WEIGHT", float("inf"))
    with pytest.raises(ModelFileError, match="overflowed to infinity"):
        contextual.contextual(chainrule.load(path, device="cpu"), ["the cat"])


def grow(arrays: Arrays, name: str, value: int) -> None:
    """Replace the first value of an array of bytes by a large one."""
    arrays[name][0] = 255
    arrays[f"{name}.large"] = np.array([value], dtype=np.int64)


def swap_unsorted(arrays: Arrays) -> None:
    """Exchange the two extensions of the first bigram that has two."""
    first = int(np.flatnonzero(np.repeat(arrays["1.children"], arrays["1.children"]) > 1)[0])
    arrays["2.word"][[first, first + 1]] = arrays["2.word"][[first + 1, first]]


SPELLER_EDITS: dict[str, tuple[Callable[[Arrays], object], str]] = {
    "outside": (lambda a: a["log_outside"].__setitem__(0, 1.0), "logarithm of more than 1"),
    "outside too low": (lambda a: a["log_outside"].__setitem__(0, -1000.0), "log_outside is -1000, but the tables"),
    "outside a little low": (lambda a: a["log_outside"].__iadd__(-0.01), "log_outside is .*, but the tables"),
    "outside NaN": (lambda a: a["log_outside"].__setitem__(0, np.nan), "log_outside contains NaN"),
    "single": (lambda a: a["is_single"].__setitem__(0, 7), "is_single is 7"),
    "surrogate": (lambda a: a["alphabet"].__setitem__(-1, 0xD800), "alphabet is not sorted"),
    "beyond Unicode": (lambda a: a["alphabet"].__setitem__(-1, 0x110000), "alphabet is not sorted"),
    "unsorted": (lambda a: a.update(alphabet=a["alphabet"][::-1].copy()), "alphabet is not sorted"),
    "twice": (lambda a: a["alphabet"].__setitem__(1, a["alphabet"][0]), "alphabet is not sorted"),
    "no alphabet": (lambda a: a.pop("alphabet"), "does not fit its config"),
    "longer alphabet": (lambda a: a.update(alphabet=np.arange(300, dtype="u4")), "does not fit its config"),
    "square alphabet": (lambda a: a.update(alphabet=a["alphabet"].reshape(-1, 1)), "alphabet is .* and should be"),
    "no counts": (lambda a: a.pop("1.count"), "of 0 orders"),
    "no children": (lambda a: a.pop("3.children"), "3.children is absent"),
    "no large counts": (lambda a: a.pop("6.count.large"), "6.count.large is absent"),
    "an order left out": (lambda a: a.pop("4.word"), "does not fit its config"),
    "too many orders": (lambda a: a.update({f"{n}.word": a["2.word"] for n in range(7, 30)}), "of 29 orders"),
    "tables as well": (lambda a: a.update({"1.log_prob": np.zeros(4, "f4")}), "1.log_prob is .* should be absent"),
    "float counts": (lambda a: a.update({"6.count": a["6.count"].astype("f4")}), "uint8"),
    "wide ids": (lambda a: a.update({"2.word": a["2.word"].astype("i8")}), "int64 and should be .* uint8"),
    "shorter": (lambda a: a.update({"6.count": a["6.count"][:-1]}), "6.count is .* and should be"),
    "words cut off": (
        lambda a: a.update({"6.word": a["6.word"][1:], "6.count": a["6.count"][1:]}),
        "counts of their contexts",
    ),
    "more children": (lambda a: a["5.children"].__iadd__(1), "does not match the counts of their contexts"),
    "10^15 children": (lambda a: grow(a, "5.children", 10**15), "does not match the counts of their contexts"),
    "2^62 children": (lambda a: grow(a, "5.children", 2**62), "5.children.large contains a value"),
    "a count without its value": (lambda a: a["6.count"].__setitem__(0, 255), "6.count.large has 0 values"),
    "a value without its count": (lambda a: a.update({"6.count.large": np.array([300])}), "has 1 values"),
    "negative count": (lambda a: grow(a, "6.count", -5), "6.count.large contains a value below 255"),
    "counts beyond float64": (lambda a: grow(a, "6.count", 2**53), "6.count sums to more than"),
    "no occurrence": (lambda a: a["6.count"].__setitem__(0, 0), "6.count contains an n-gram that never occurs"),
    "no word ends": (lambda a: a["2.count"].__setitem__(0, 0), "2.count contains an n-gram that never occurs"),
    "other counts": (lambda a: a["6.count"].__imul__(9), "log_outside is .*, but the tables"),
    "ids unsorted": (swap_unsorted, "2.word is not sorted"),
    "<s> predicted": (
        lambda a: a["6.word"].__setitem__(-1, len(a["alphabet"]) + 1),
        "6.word is not sorted or contains",
    ),
    "beyond the ids": (lambda a: a["6.word"].__setitem__(-1, 255), "6.word is not sorted or contains"),
    "no suffix": (lambda a: a["6.word"].__setitem__(-1, 0), "whose last words occur nowhere"),
}


def use_speller(path: Path, message: str) -> None:
    """Load a folder; only the comparison of `log_outside` with the tables waits for the first unknown word."""
    model = chainrule.load(path)
    assert message.startswith("log_outside is")
    model.score("a Yak")


@pytest.mark.parametrize("edit", SPELLER_EDITS)
def test_speller_counts_are_checked(edit: str, models: Callable[[str], Path], tmp_path: Path) -> None:
    change, message = SPELLER_EDITS[edit]
    path = change_tensors(models("ngram"), tmp_path / "model", SPELLER, change)
    with pytest.raises(ModelFileError, match=message) as caught:
        use_speller(path, message)
    assert SPELLER in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["ngram", "lstm-char"])
def test_random_speller_counts_are_rejected_or_give_probabilities(
    kind: str, models: Callable[[str], Path], tmp_path: Path
) -> None:
    """Random bytes at random positions: loading raises ModelFileError, or spellings have finite probabilities."""
    rng = np.random.default_rng(0)
    known = chainrule.load(models(kind), device="cpu").tokenizer.vocabulary_words()
    for _ in range(200):
        arrays = {
            name: np.array(value) for name, value in load_arrays((models(kind) / SPELLER).read_bytes()).items()
        }
        for _ in range(rng.integers(1, 4)):
            array = arrays[str(rng.choice([name for name in sorted(arrays) if arrays[name].size]))].view(np.uint8)
            array[rng.integers(len(array))] = rng.integers(256)
        with suppress(ModelFileError):
            speller = Speller.from_bytes(save_arrays(arrays), SPELLER, lambda: known)
            log_p = speller.log_probs(["a", "Yak", "\u2603", "zebra" * 20])
            assert np.isfinite(log_p).all()
            assert (log_p <= -speller.log_outside + 1e-6).all()


def speller_of_tables(path: Path) -> bytes:
    """The speller of a folder as earlier versions wrote it: back-off tables."""
    speller = Speller.from_bytes((path / SPELLER).read_bytes(), SPELLER)
    return as_tables(speller).to_bytes()


def test_folder_with_speller_tables_round_trips(models: Callable[[str], Path], tmp_path: Path) -> None:
    """A folder of an earlier version: loaded, saved again, and loaded again."""
    content = (Path(__file__).parents[1] / "ngram" / "speller_tables.safetensors").read_bytes()
    old = reseal(models("ngram"), tmp_path / "old", {SPELLER: content})
    chainrule.load(old).save(tmp_path / "again")
    assert (tmp_path / "again" / SPELLER).read_bytes() == content
    for path in (old, tmp_path / "again"):
        score = chainrule.load(path).score("the cat sees a Yak")
        assert score.log_prob_with_spelling == pytest.approx(-50.65910120473545, rel=1e-9)
        assert flatten_numbers(use_model(path)) == pytest.approx(
            flatten_numbers(use_model(models("ngram"))), rel=1e-6
        )


TABLE_EDITS: dict[str, tuple[Callable[[Arrays], object], str]] = {
    "NaN": (lambda a: a["2.log_prob"].__setitem__(0, np.nan), "2.log_prob contains NaN"),
    "positive": (lambda a: a["2.log_prob"].__setitem__(0, 2.0), "logarithm of more than 1"),
    "back-off": (lambda a: a["1.log_backoff"].__setitem__(0, np.inf), "1.log_backoff contains NaN or infinite"),
    "back-off above 1": (lambda a: a["1.log_backoff"].__setitem__(0, 3.0), "logarithm of more than 1"),
    "outside": (lambda a: a["log_outside"].__setitem__(0, 1.0), "logarithm of more than 1"),
    "outside too low": (lambda a: a["log_outside"].__setitem__(0, -1000.0), "log_outside is -1000, but the tables"),
    "outside a little low": (lambda a: a["log_outside"].__iadd__(-0.01), "log_outside is .*, but the tables"),
    "back-off too low": (lambda a: a["1.log_backoff"].fill(-1e4), "log_outside is .*, but the tables"),
    "outside NaN": (lambda a: a["log_outside"].__setitem__(0, np.nan), "log_outside contains NaN"),
    "single": (lambda a: a["is_single"].__setitem__(0, 7), "is_single is 7"),
    "surrogate": (lambda a: a["alphabet"].__setitem__(-1, 0xD800), "alphabet is not sorted"),
    "beyond Unicode": (lambda a: a["alphabet"].__setitem__(-1, 0x110000), "alphabet is not sorted"),
    "unsorted": (lambda a: a.update(alphabet=a["alphabet"][::-1].copy()), "alphabet is not sorted"),
    "twice": (lambda a: a["alphabet"].__setitem__(1, a["alphabet"][0]), "alphabet is not sorted"),
    "keys unsorted": (lambda a: a.update({"2.key": a["2.key"][::-1].copy()}), "2.key is not sorted"),
    "keys negative": (lambda a: a["2.key"].__setitem__(0, -5), "2.key is not sorted"),
    "keys too high": (lambda a: a["3.key"].__setitem__(-1, 1 << 40), "3.key is not sorted"),
    "shorter": (lambda a: a.update({"2.log_prob": a["2.log_prob"][:-1]}), "2.log_prob is .* and should be"),
    "float64": (lambda a: a.update({"2.log_prob": a["2.log_prob"].astype("f8")}), "float64 and should be"),
    "missing": (lambda a: a.pop("log_missing"), "log_missing is absent"),
    "no alphabet": (lambda a: a.pop("alphabet"), "does not fit its config"),
    "no orders": (lambda a: [a.pop(name) for name in list(a) if name.endswith("log_prob")], "of 0 orders"),
    "sums": (lambda a: a.update({"2.log_prob": a["2.log_prob"] * 0}), "sum to more than 1"),
    "unigrams": (lambda a: a["1.log_prob"].__setitem__(0, 0.0), "single characters sum to"),
    "<s>": (lambda a: a["1.log_prob"].__setitem__(-2, -1.0), "<s> has a probability"),
}


@pytest.mark.parametrize("edit", TABLE_EDITS)
def test_speller_tables_are_checked(edit: str, models: Callable[[str], Path], tmp_path: Path) -> None:
    change, message = TABLE_EDITS[edit]
    folder_of_tables = reseal(models("ngram"), tmp_path / "tables", {SPELLER: speller_of_tables(models("ngram"))})
    path = change_tensors(folder_of_tables, tmp_path / "model", SPELLER, change)
    with pytest.raises(ModelFileError, match=message):
        use_speller(path, message)


def set_value(*keys: Any, value: Any) -> Callable[[Any], None]:
    """Set the value at this position of a JSON document."""

    def edit(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return edit


def nested(depth: int) -> dict[str, Any]:
    """Mixtures nested in mixtures."""
    model: dict[str, Any] = {"weights": [1.0], "components": []}
    for _ in range(depth):
        model = {"weights": [1.0], "components": [{"family": "mixture", "context": "line", "model": model}]}
    return model


CONFIG_EDITS: list[tuple[str, Callable[[Any], Any]]] = [
    ("lstm", set_value("model", "hidden", value="8")),
    ("lstm", set_value("model", "hidden", value=True)),
    ("lstm", set_value("model", "hidden", value=8.0)),
    ("lstm", set_value("model", "hidden", value=10**30)),
    ("lstm", set_value("model", "hidden", value=None)),
    ("lstm", set_value("model", "layers", value=65536)),
    ("lstm", set_value("model", "dropout", value="nan")),
    ("lstm", set_value("model", "cutoffs", value="1,2")),
    ("lstm", set_value("model", "surprise", value=1)),
    ("lstm", set_value("model", value=[1])),
    ("lstm", set_value("model", value="hidden")),
    ("lstm", set_value("tokenizer", "lowercase", value="yes")),
    ("lstm", set_value("tokenizer", "lowercase", value=True)),
    ("lstm", set_value("tokenizer", "kind", value="char")),
    ("lstm", set_value("tokenizer", "kind", value=["word"])),
    ("lstm", set_value("tokenizer", "unk", value="cat")),
    ("lstm", set_value("context", value="page")),
    ("lstm", set_value("context", value=["line"])),
    ("lstm", set_value("family", value="gru")),
    ("lstm", set_value("family", value=["lstm"])),
    ("lstm", set_value("family", value="pickle")),
    ("lstm", lambda document: [document]),
    ("ngram", set_value("model", "order", value=2)),
    ("ngram", set_value("model", "order", value=10**9)),
    ("ngram", set_value("family", value="lstm")),
    ("mixture", set_value("model", "weights", value=[0.5, 0.5])),
    ("mixture", set_value("model", "weights", value=[1.0, 1.0, 1.0])),
    ("mixture", set_value("model", "weights", value=[2.0, -1.0, 0.0])),
    ("mixture", set_value("model", "weights", value=["nan", 1.0, 0.0])),
    ("mixture", set_value("model", "weights", value="1,0,0")),
    ("mixture", set_value("model", "components", 0, "family", value="unknown")),
    ("mixture", set_value("model", "components", 0, "context", value="page")),
    ("mixture", set_value("model", "components", 0, "model", value=None)),
    ("mixture", set_value("model", "components", 0, value={})),
    ("mixture", set_value("model", value=nested(200))),
    ("tag", set_value("tags", "names", value="OBI")),
    ("tag", set_value("tags", "names", 0, value=3)),
    ("tag", lambda document: document["tags"]["names"].append("O")),
    ("tag", lambda document: document["tags"]["names"].append("B-Y")),
    ("tag", set_value("tags", "names", value=[f"B-{i}" for i in range(20_000)])),
    ("tag", set_value("tags", "scheme", value="iob9")),
    ("tag", set_value("characters", value=["ab"])),
    ("tag", set_value("column", value=1.5)),
    ("classify", set_value("labels", value={"a": 1})),
    ("classify", set_value("labels", value={"a": 1, "b": 1, "c": 1})),
    ("classify", set_value("labels", value={"b": 1, "a": 1})),
    ("classify", set_value("labels", value=["a", "b"])),
    ("classify", set_value("labels", "a", value=-1)),
    ("classify", set_value("labels", "a", value=10**400)),
    ("classify-ngram", set_value("labels", value={"a": 1, "b": 1, "c": 1})),
    ("classify", set_value("temperature", value=1e-300)),
    ("classify", set_value("temperature", value=None)),
    ("translate", set_value("model", "joint", value=1)),
    ("translate", set_value("tokenizers", value={})),
    ("pretrain", set_value("model", "family", value="ngram")),
    ("vectors", set_value("lowercase", value="no")),
    ("vectors", set_value("subwords", value=[3, 4, 10**12])),
    ("vectors", set_value("subwords", value=[3, 4, 49])),
    ("vectors", set_value("subwords", value=["3", "4", "50"])),
    ("vectors", set_value("subwords", value=None)),
]


@pytest.mark.parametrize("place", range(len(CONFIG_EDITS)))
def test_invalid_configs_are_rejected(place: int, models: Callable[[str], Path], tmp_path: Path) -> None:
    kind, edit = CONFIG_EDITS[place]
    path = change_json(models(kind), tmp_path / "model", "config.json", edit)
    with pytest.raises(ModelFileError) as caught:
        chainrule.load(path, device="cpu")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "content",
    [
        b'{"family": NaN}',
        b'{"family": 1e999}',
        b'{"family": "lstm", "family": "gru"}',
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"n": ' + b"9" * 5000 + b"}",
        b"\xff\xfe",
        b"",
        b"null",
    ],
)
@pytest.mark.parametrize("name", ["config.json", "metrics.json"])
def test_config_and_metrics_must_be_strict_json(
    name: str, content: bytes, models: Callable[[str], Path], tmp_path: Path
) -> None:
    with pytest.raises(ModelFileError, match=f"{name} is not"):
        chainrule.load(reseal(models("ngram"), tmp_path / "model", {name: content}))


@pytest.mark.parametrize(
    "change",
    [
        {"command": 3},
        {"seed": "0"},
        {"created": None},
        {"versions": {"chainrule": 1}},
        {"training_text": "x"},
        {"training_text": {"names": 1, "sha256": None}},
    ],
)
def test_manifest_facts_are_checked(change: dict[str, Any], models: Callable[[str], Path], tmp_path: Path) -> None:
    facts = {**verified_dir.open_dir(models("ngram")).facts, **change}
    path = reseal(models("ngram"), tmp_path / "model", {}, facts)
    with pytest.raises(ModelFileError, match="has no provenance record"):
        chainrule.load(path)


def test_sketch_of_invalid_length_is_rejected(models: Callable[[str], Path], tmp_path: Path) -> None:
    path = reseal(models("ngram"), tmp_path / "model", {"training_lines.sketch": b"123"})
    with pytest.raises(ModelFileError, match="not a multiple of 8"):
        chainrule.load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cat\ncat\n", "distinct words"),
        (b"", "distinct words"),
        (b"\n\n", "distinct words"),
        (b"one\n", "does not fit its config"),
    ],
)
def test_invalid_vector_words_are_rejected(
    content: bytes, message: str, models: Callable[[str], Path], tmp_path: Path
) -> None:
    path = reseal(models("vectors"), tmp_path / "model", {"words.txt": content})
    with pytest.raises(ModelFileError, match=message):
        chainrule.load(path)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("rnn", ["score", "MODEL", "the cat"]),
        ("rnn", ["generate", "MODEL"]),
        ("tag", ["tag", "predict", "MODEL", "FILE"]),
        ("classify", ["classify", "predict", "MODEL", "FILE"]),
        ("translate", ["translate", "predict", "MODEL", "FILE"]),
        ("vectors", ["vectors", "neighbors", "MODEL", "cat"]),
        ("lstm", ["info", "MODEL"]),
    ],
)
def test_commands_exit_with_status_3(
    kind: str, arguments: list[str], models: Callable[[str], Path], tmp_path: Path
) -> None:
    path = change_tensors(models(kind), tmp_path / "model", WEIGHTS, set_first_value(np.nan))
    (tmp_path / "text.txt").write_text("the cat\n")
    places = {"MODEL": str(path), "FILE": str(tmp_path / "text.txt")}
    outcome = call(*(places.get(word, word) for word in arguments))
    assert outcome.status == 3
    assert outcome.out == ""
    assert "NaN" in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1


def test_info_escapes_terminal_control_sequences(models: Callable[[str], Path], tmp_path: Path) -> None:
    note = "\x1b[2J\u202egone\nseed 7"
    path = change_json(models("ngram"), tmp_path / "model", "metrics.json", set_value("note", value=note))
    outcome = call("info", path)
    assert outcome.status == 0
    assert "\x1b" not in outcome.out
    assert "\u202e" not in outcome.out
    assert r"\x1b[2J\u202egone\nseed 7" in outcome.out


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b'{"step": ' + b"9" * 400 + b"}", b'{"step": 1e999, "loss": NaN}', b"[]", b"\xff"]
)
def test_invalid_logs_are_read_or_rejected(line: bytes, models: Callable[[str], Path], tmp_path: Path) -> None:
    path = reseal(models("rnn"), tmp_path / "model", {"train_log.jsonl": line + b"\n"})
    model: Any = chainrule.load(path, device="cpu")
    with suppress(ChainruleError):
        log = training.parse(model.lm.log)
        assert log is None or np.isfinite(log.step).all()


def test_inspection_page_escapes_hostile_text(models: Callable[[str], Path], tmp_path: Path) -> None:
    script = "<script>alert(1)</script>"
    entry: dict[str, Any] = {"step": 2, "loss": 2.0, "clipped": 0.5, "learning_rate": 1.0}
    entry |= {name: {script: 1.0} for name in ("gradient_norms", "update_ratio", "clipped_by")}
    facts = {**verified_dir.open_dir(models("rnn")).facts, "command": script, "created": script}
    changes = {"metrics.json": json.dumps({script: script}), "train_log.jsonl": json.dumps(entry) + "\n"}
    content = {name: text.encode() for name, text in changes.items()}
    path = reseal(models("rnn"), tmp_path / "model", content, facts)
    (tmp_path / "text.txt").write_text("the cat sees a dog\n")
    page = tmp_path / "page.html"
    outcome = call("inspect", path, tmp_path / "text.txt", "--only", "training", "--device", "cpu", "--out", page)
    assert outcome.status == 0
    assert script not in page.read_text()
    assert "&lt;script&gt;alert" in page.read_text()


@pytest.mark.parametrize("field", ["log_prob", "log_backoff"])
def test_ngram_tables_must_be_probabilities(field: str, models: Callable[[str], Path]) -> None:
    lm: Any = chainrule.load(models("ngram")).lm
    first, *other_levels = lm.tables.levels
    infinite = replace(first, **{field: np.full_like(first.log_prob, np.inf)})
    with pytest.raises(ChainruleError, match="order 1 is not sound"):
        NgramModel.from_tables(BackoffTables((infinite, *other_levels)), lm.vocabulary)
    huge = replace(first, log_backoff=np.full_like(first.log_prob, 1e30))
    model = NgramModel.from_tables(BackoffTables((huge, *other_levels)), lm.vocabulary)
    with pytest.raises(ModelFileError, match="make no probability"):
        model.step(model.start(1), np.array([0]))


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("weights.safetensors", set_first_value(np.nan)),
        ("weights.safetensors", change_dtype(np.int64)),
        ("optimizer.safetensors", lambda a: a.update(exp_avg=a["exp_avg"] * np.nan)),
        ("optimizer.safetensors", lambda a: a.update(exp_avg=a["exp_avg"].astype(np.float64))),
        ("state.safetensors", lambda a: a.pop("rng.cpu")),
        ("state.safetensors", lambda a: a.update({"rng.cpu": a["rng.cpu"][:-1]})),
        ("position.json", set_value("epoch", value="1")),
        ("position.json", set_value("epoch", value=10**30)),
        ("position.json", set_value("surprise", value=1)),
        ("position.json", set_value("plateau", value=None)),
        ("position.json", lambda document: [document]),
    ],
)
def test_checkpoints_are_checked_against_the_run(
    name: str, edit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, place = Corpus.from_lines(folders.LINES), tmp_path / "run"
    settings: dict[str, Any] = {**folders.SMALL, "optimizer": "adam", "device": "cpu", "out": place}
    save, places = checkpoint.save, []

    def save_and_stop(path: Path, state: Any) -> None:
        save(path, state)
        places.append(path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(checkpoint, "save", save_and_stop)
        api.train("rnn", text, checkpoint_seconds=0, **settings)
    source = places[0] / "checkpoint"
    change = change_json if name.endswith(".json") else change_tensors
    change(source, tmp_path / "other", name, edit)
    shutil.rmtree(source)
    (tmp_path / "other").rename(source)
    with pytest.raises(ModelFileError):
        api.train("rnn", text, resume=True, checkpoint_seconds=0, **settings)
