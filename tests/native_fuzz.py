"""Call every function, method and property of `chainrule._core` and `chainrule.kenlm` with hostile arguments.

    python tests/native_fuzz.py SEED ROUNDS LOG

Each call is written to LOG before it is made, so that the last line names the call that ended the process. An
exception is the right answer to a hostile argument; ending the process is not. Memory is limited to 4 GiB, so
that a request for more fails at once.
"""

import contextlib
import copy
import itertools
import os
import random
import resource
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import chainrule.kenlm as kenlm
from chainrule import system
from chainrule.errors import ChainruleError
from chainrule.text.compiled_reader import open_reader
from chainrule.text.corpus import Corpus

core: Any = system.load_extension()
ACCEPTED: tuple[type[Exception], ...] = (ChainruleError, TypeError, ValueError, OverflowError, IndexError)
ACCEPTED += (MemoryError, OSError, RuntimeError)
ACCEPTED += (AttributeError,)  # raised by uninitialised objects
MEMORY = 4 << 30
WORDS = ["<unk>", "<s>", "</s>", "a", "b", "c", "longer-than-eight"]
V = len(WORDS)
Arguments = dict[str, Any]


def ids_of(seed: int, size: int = 400) -> np.ndarray:
    ids = np.random.default_rng(seed).integers(3, V, size)
    ids[9::10] = 2
    return ids.astype(np.int32)


def trained(order: int, seed: int = 0, **settings: Any) -> Any:
    return core.NgramModel.train(ids_of(seed), order, V, 1, 2, 0, names=WORDS, **settings)[0]


class Pool:
    """Values to replace arguments with."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.names = folder, itertools.count()
        (folder / "folder").mkdir()
        (folder / "text.txt").write_text("a b c\nb b\n", encoding="utf-8")
        (folder / "empty").write_bytes(b"")
        (folder / "junk").write_bytes(np.random.default_rng(3).bytes(5000))
        models = [trained(3), trained(3, 1), trained(2, 2), trained(1), trained(4, 3, layout="small")]
        models += [trained(3, layout="small", bits=8), core.NgramModel.train(ids_of(5), 3, V, 1, 2)[0]]
        models[0].save(str(folder / "model.ngram"))
        models += [core.NgramModel.open(str(folder / "model.ngram"), verified_at_open=0) for _ in range(2)]
        models.append(core.NgramModel.open(str(folder / "model.ngram"), largest_copy=1))
        self.models = models
        self.kenlm = [core.KenlmModel(model) for model in models if model.has_names]
        arpa = folder / "model.arpa"
        with arpa.open("wb") as file:
            core.write_arpa(models[0], WORDS, -1, 1, file.write, lambda *_: None)
        self.facade = [kenlm.Model(arpa), kenlm.Model(folder / "model.ngram")]
        self.kenlm += self.facade
        self.states = [core.KenlmState() for _ in range(3)]
        for model in self.kenlm:
            state, after = core.KenlmState(), core.KenlmState()
            model.BeginSentenceWrite(state)
            model.BaseScore(state, "a", after)
            self.states += [state, after]
        self.ngram_states = [core.NgramState()] + [model.begin_state() for model in models]
        for model in models:
            after = core.NgramState()
            model.advance(model.begin_state(), 3, after)
            self.ngram_states.append(after)
        alphabet = np.array([97, 98], dtype=np.uint32)
        level = [np.arange(5), np.full(5, -1.6, np.float32), np.zeros(5, np.float32)]
        self.spellers = [core.Speller(alphabet, [level], -1.0, -5.0, False)]
        classes = [
            core.NgramModel,
            core.KenlmModel,
            core.KenlmState,
            core.NgramState,
            core.Speller,
            core.WordCounter,
        ]
        classes += [core.Word2vec, core.Glove, core.Cooccurrence, core.ArpaFile, kenlm.Model]
        self.broken = [cls.__new__(cls) for cls in classes]

    def path(self) -> str:
        return str(self.folder / f"new-{next(self.names)}")

    def array(self, rng: random.Random) -> np.ndarray:
        dtype = rng.choice([np.int32] * 6 + [np.int64, np.uint32, np.float32, np.float64, np.uint8, np.bool_])
        shapes: list[tuple[int, ...]] = [
            (),
            (0,),
            (1,),
            (3,),
            (7,),
            (0, 5),
            (5, 0),
            (1, 2),
            (4, 2),
            (3, 8),
            (2, 3, 4),
        ]
        shape = rng.choice([*shapes, (2**40, 0), (0, 2**40), (2**58, 0), (2**61 - 1, 0)])
        try:
            if 0 in shape:
                return np.empty(shape, dtype=dtype)
        except ValueError:
            return np.empty((0,), dtype=dtype)
        values = rng.choice([[3, 4, 5, 2], [-1, 0, 1], [V, 3], [2**31 - 1, -(2**31)], [0]])
        array: np.ndarray = np.resize(np.array(values), shape).astype(dtype)
        if dtype in (np.float32, np.float64) and rng.random() < 0.5:
            array = np.resize(np.array([np.nan, np.inf, -np.inf, 0, 1e30]), shape).astype(dtype)
        match rng.randrange(8):
            case 0:
                return np.asfortranarray(array)
            case 1:
                return np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array
            case 2:
                return array[::-1] if array.ndim else array
            case 3:
                return np.broadcast_to(array.reshape(-1)[:1], (2**40,)) if array.size else array
            case 4:
                return array.astype(array.dtype.newbyteorder(">"))
        return array

    def value(self, rng: random.Random) -> Any:
        def fail(*_: Any) -> Any:
            raise KeyError("a callback that fails")

        plain: list[Any] = [None, True, -1, 0, 1, 3, V, 2**31 - 1, 2**31, 2**32, 2**63 - 1, -(2**63), 2**64, 10**30]
        plain += [
            float("nan"),
            float("inf"),
            -float("inf"),
            0.0,
            -1.0,
            1e308,
            1e-320,
            "",
            "a",
            "fast",
            "small",
            "a\0b",
        ]
        plain += [
            "\ud800",
            "x" * 100_000,
            b"",
            b"\xff\0",
            b"a b",
            [],
            {},
            (),
            object(),
            fail,
            lambda *_: b"",
            set(),
        ]
        plain += [["a b", b"c"], ["a", 3], [None], [[1]], {"key": 3}, iter(["a"]), range(10**9), 1j]
        paths: list[Any] = [
            str(self.folder / n) for n in ("folder", "text.txt", "empty", "junk", "model.ngram", "none")
        ]
        objects = [self.models, self.kenlm, self.states, self.ngram_states, self.spellers, self.broken]
        match rng.randrange(4):
            case 0:
                return rng.choice(rng.choice(objects))
            case 1:
                return self.array(rng)
            case 2 if rng.random() < 0.4:
                return rng.choice([*paths, self.path(), *(path.encode() for path in paths)])
        return rng.choice(plain)


def nothing(*_: Any) -> None:
    """A callback that does nothing."""


def batch(order: int) -> Arguments:
    return {"tokens": np.full((2, order + 4), 3, np.int32), "targets": np.full((2, 5), 4, np.int32)}


def functions(pool: Pool) -> list[tuple[Callable[..., Any], Arguments]]:
    """Each function of the module with arguments that it accepts."""
    words = {"vocabulary_size": V, "bos": 1, "eos": 2}
    matrix, rows = np.ones((3, 4), np.float32), np.array([0, 2], np.uint32)
    kernel = {"simd": "none", "input": matrix, "output": matrix, "x": rows, "y": rows, "rate": 0.1}
    pair = {"pair": np.ones((2, 4), np.float32), "squares": np.ones((2, 4), np.float32)}

    def text() -> Any:
        reader = open_reader(Corpus.of(pool.folder / "text.txt"))
        assert reader is not None
        return reader.text

    vocabulary = core.WordVocabulary(["<unk>", "a", "<s>", "</s>"])
    encoding = core.WordEncoding(vocabulary, 0, 3)
    counter = core.VocabularyCounter()
    counter.add("a b a")
    counted = counter.finish(["b"])
    trie = core.CharacterTrie(["ab", "b"], order=3)
    table = {"key": np.arange(V), "log_prob": np.full(V, -2, np.float32), "log_backoff": np.zeros(V, np.float32)}
    training = {"ids": ids_of(0), "order": 3, **words}
    arpa = iter([(pool.folder / "model.arpa").read_bytes()])
    return [
        (core.build_info, {}),
        (core.kernel_names, {}),
        (
            core.TextReader,
            {"inputs": [("lines", 0, 0, lambda: None)], "column": "text", "drops_blank_lines": False}
            | {"block": 8, "longest": 0, "convert": nothing},
        ),
        (text().next_lines, {}),
        (core.count_plain_words, {"text": text(), "threads": 1}),
        (core.WordVocabulary, {"names": ["<unk>", "a", "<s>", "</s>"], "controls": 2}),
        (core.WordVocabulary.from_json, {"content": b"", "begin": 0, "end": 0, "controls": ["<s>"]}),
        (vocabulary.find, {"word": "a"}),
        (vocabulary.json_entries, {"from_id": 0, "to_id": 2}),
        (core.WordEncoding, {"vocabulary": vocabulary, "unk": 0, "eos": 3, "placeholder": None}),
        (
            core.encode_plain_words,
            {"text": text(), "encoding": encoding, "threads": 1, "ids_file": str(pool.path()).encode()},
        ),
        (
            core.encode_plain_text,
            {"text": text(), "encoding": encoding, "threads": 1, "shortest": 1, "size": 8, "update": nothing},
        ),
        (
            core.scan_plain_text,
            {"text": text(), "threads": 1, "placeholder": None, "shortest": 1, "size": 8, "update": nothing},
        ),
        (
            core.scan_plain_text(text(), 1).encode,
            {"encoding": encoding, "threads": 1},
        ),
        (core.sketch_plain_lines, {"text": text(), "shortest": 1, "size": 8, "threads": 1}),
        (core.kernel_bag, kernel),
        (core.kernel_window, kernel),
        (core.kernel_fit, {"simd": "none", **pair, "weight": 1.0, "log_x": 0.5, "rate": 0.1}),
        (core.ngram_counts, {**training, "is_line": True, "threads": 2}),
        (core.ngram_least_memory, {"tokens": 100, "vocabulary_size": V, "order": 3, "layout": "small", "bits": 8}),
        (
            core.ngram_train_within,
            {**training, "memory": 2 << 30, "folder": str(pool.folder), "out": pool.path(), "names": WORDS}
            | {"layout": "fast", "bits": 0, "threads": 1, "progress": nothing, "records": 0, "cut_offs": [0, 1]},
        ),
        (
            core.write_arpa,
            {
                "model": pool.models[0],
                "names": WORDS,
                "left_out": -1,
                "threads": 1,
                "sink": nothing,
                "progress": nothing,
            },
        ),
        (core.NgramModel.open, {"path": str(pool.folder / "model.ngram"), "verify": False, "verified_at_open": 0}),
        (core.NgramModel.of_tables, {"levels": [table], **words, "names": WORDS, "log_missing": 0.0, "bits": 0}),
        (core.NgramModel.train, {**training, "cut_offs": [0, 0, 1], "names": WORDS, "layout": "small", "bits": 8}),
        (
            core.ArpaFile.read,
            {"next_block": lambda: next(arpa, b""), "name": "x", "threads": 1, "progress": nothing},
        ),
        (core.KenlmFullScore, {"log_prob": -1.0, "ngram_length": 2, "oov": False}),
        (core.KenlmModel, {"engine": pool.models[0]}),
        (
            core.Speller,
            {"alphabet": np.array([97], np.uint32), "levels": [], "log_others": -1.0, "log_outside": -1.0}
            | {"is_single": False},
        ),
        (core.WordCounter, {"file": pool.path()}),
        (core.VocabularyCounter, {"memory": 1, "folder": str(pool.folder)}),
        (counter.add, {"words": "a b"}),
        (counter.finish, {"excluded": ["a"]}),
        (counted.types_from, {"count": 1}),
        (counted.excluded_count, {"index": 0}),
        (counted.select, {"most": 2, "first": ["<unk>"], "last": ["<s>"]}),
        (core.count_ids, {"ids_file": pool.path().encode(), "size": 3}),
        (core.TextSample, {"placeholder": None}),
        (core.TextSample(None).add, {"lines": b"a b\n"}),
        (core.TextSample(None).types_with, {"min_count": 1}),
        (core.CharacterTrie, {"spellings": ["ab"], "counted": counted, "order": 3, "windows": 2}),
        (core.CharacterTrie.of_levels, {"alphabet": np.array([97], np.uint32), "levels": []}),
        (trie.estimate, {"n": 1, "shorter": np.full(5, 0.25)}),
        (trie.word, {"n": 1}),
        (trie.first, {"n": 1}),
        (trie.count, {"n": 1}),
        (core.Speller, {"trie": trie, "logs": [], "log_others": -1.0, "log_outside": -1.0, "is_single": False}),
        (
            pool.spellers[0].vocabulary_log_probs,
            {"vocabulary": vocabulary, "excluded": [0], "others": ["a"], "threads": 2},
        ),
        *embeddings(pool),
    ]


def embeddings(pool: Pool) -> list[tuple[Callable[..., Any], Arguments]]:
    """The trainers of word vectors, over a file of word numbers."""
    file = pool.path()
    counter = core.WordCounter(file)
    counter.feed(b"a b c a b\nb c c a b\n" * 20)
    counter.finish()
    number_of = np.arange(counter.types, dtype=np.int32)
    settings = {"method": "cbow", "dimensions": 8, "window": 2, "negative": 2, "epochs": 1, "rate": 0.05}
    settings |= {"last_rate": 0.0001, "sample": 0.001, "power": 0.75, "threads": 1, "seed": 1, "simd": "auto"}
    learning = {"settings": settings, "file": file, "numbers": counter.numbers, "number_of": number_of}
    learning |= {
        "counts": counter.counts(),
        "begins": np.zeros(0, np.uint64),
        "rows": np.zeros(0, np.uint32),
        "buckets": 0,
    }
    near = {"file": file, "numbers": counter.numbers, "number_of": number_of, "words": counter.types}
    near |= {"out": pool.path(), "window": 2, "bytes": 1 << 20, "threads": 1, "seed": 1}
    glove = {"file": near["out"], "records": 3, "words": counter.types, "dimensions": 4, "epochs": 1, "rate": 0.05}
    glove |= {"x_max": 10.0, "alpha": 0.75, "threads": 1, "seed": 1, "simd": "auto"}
    return [(core.Word2vec, learning), (core.Cooccurrence, near), (core.Glove, glove)]


METHODS: dict[str, list[Arguments]] = {
    "score": [batch(3), {"sentence": "a b"}],
    "step": [{"tokens": np.full((2, 2), 3, np.int32), "threads": 1}],
    "depth": [batch(3)],
    "top": [{"tokens": np.full((1, 2), 3, np.int32), "k": 3}],
    "sample": [{"tokens": np.full((2, 2), 3, np.int32), "uniform": np.array([0.1, 0.9])}],
    "convert": [{"layout": "small", "bits": 8, "threads": 2}],
    "name": [{"id": 3}],
    "find": [{"word": "a"}],
    "score_sentences": [{"sentences": ["a b", "c"], "bos": True, "eos": True, "threads": 1}],
    "full_scores": [{"sentences": ["a b"], "threads": 1}, {"sentence": "a b"}],
    "score_list": [{"sentences": ["a b"], "bos": True, "eos": True, "threads": 1}],
    "full_score_list": [{"sentences": ["a b"], "bos": True, "eos": True, "threads": 1}],
    "log_probs": [{"words": ["ab"]}],
    "run": [{"seconds": 0.01}],
    "words_of": [{"numbers": np.array([0, 1])}],
    "model": [{"layout": "small", "bits": 8, "threads": 1}],
    "verify": [{"threads": 1}],
    "__contains__": [{"": "a"}],
    "feed": [{"": b"a b"}],
    "perplexity": [{"sentence": "a b"}],
}
# Not called: they destroy or replace the object as Python itself does.
LEFT_OUT = {
    "__class__",
    "__new__",
    "__init_subclass__",
    "__subclasshook__",
    "__del__",
    "__getattribute__",
    "__dir__",
}


def arguments_of(pool: Pool, name: str, rng: random.Random) -> Arguments:
    """Arguments that a method of this name accepts, where it takes any."""
    one, other = rng.choice(pool.states), rng.choice(pool.states)
    if name in ("BaseScore", "BaseFullScore"):
        return {"0": one, "1": rng.choice(["a", "zzz", b"b", ""]), "2": other}
    if name in ("BeginSentenceWrite", "NullContextWrite"):
        return {"0": rng.choice(pool.states[:3])}
    if name == "advance":
        state, out = rng.choice(pool.ngram_states), rng.choice(pool.ngram_states)
        return {"state": state, "word": rng.choice([0, 3, V - 1, "a", "zzz"]), "out": out}
    if name in ("save", "score_lines", "score_file"):
        rest = {"bos": True, "eos": True, "threads": 1} if name == "score_lines" else {}
        return {"path": pool.path() if name == "save" else str(pool.folder / "text.txt")} | rest
    if name == "score_spelled":
        return {"sentences": ["a zzz"], "speller": pool.spellers[0], "threads": 1}
    if name in ("__eq__", "__lt__", "__le__", "__gt__", "__ge__"):
        return {"0": one}
    return dict(rng.choice(METHODS.get(name, [{}])))


def shown_as(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape} strides {value.strides}"
    is_plain = value is None or isinstance(value, bool | int | float | str | bytes | list | dict | tuple)
    try:
        return repr(value)[:80] if is_plain else type(value).__name__
    except AttributeError:  # a container of an uninitialised object
        return type(value).__name__


class Fuzzer:
    def __init__(self, pool: Pool, seed: int, log: Path) -> None:
        self.pool, self.rng, self.log = pool, random.Random(seed), log.open("w", encoding="utf-8", errors="replace")
        self.calls = self.refused = 0
        self.reached: set[str] = set()

    def call(self, what: str, function: Callable[..., Any], arguments: Arguments) -> Any:
        rendered = {name: shown_as(value) for name, value in arguments.items()}
        self.log.seek(0)
        self.log.truncate()
        self.log.write(f"{what} {rendered}\n")
        self.log.flush()
        self.calls += 1
        self.reached.add(what)
        by_position = [value for name, value in arguments.items() if name == "" or name.isdigit()]
        by_name = {name: value for name, value in arguments.items() if name != "" and not name.isdigit()}
        try:
            return function(*by_position, **by_name)
        except ACCEPTED:
            self.refused += 1
        except KeyError:  # from a callback, or a missing dictionary key
            self.refused += 1
        except Exception as error:  # an exception raised by a callback passes through C++ unchanged
            raise AssertionError(f"{what} {rendered} raised {error!r}") from error

    def mutated(self, arguments: Arguments) -> Arguments:
        changed = dict(arguments)
        for name in self.rng.sample(sorted(changed), min(len(changed), self.rng.choice([0, 1, 1, 1, 2, 3]))):
            value = changed[name]
            if name == "threads":
                changed[name] = self.rng.choice([-1, 0, 2, 2**40, None, "a", 1.5])
            elif name == "settings" and self.rng.random() < 0.8:
                key = self.rng.choice(sorted(value))
                changed[name] = value | {key: 2 if key == "threads" else self.pool.value(self.rng)}
            elif isinstance(value, np.ndarray) and self.rng.random() < 0.7:
                changed[name] = self.pool.array(self.rng)
            else:
                changed[name] = self.pool.value(self.rng)
        return changed

    def use(self, thing: Any, owner: str) -> None:
        """Use one method or property of an object."""
        names = [name for name in dir(type(thing)) if name not in LEFT_OUT]
        name = self.rng.choice([n for n in names if not n.startswith("__")] * 4 + names)
        if name in ("__reduce__", "__reduce_ex__", "__setattr__", "__delattr__", "__sizeof__", "__format__"):
            return
        what = f"{owner}.{name}"
        if isinstance(getattr(type(thing), name, None), property):
            self.call(what, lambda: getattr(thing, name), {})
            return
        if name == "__init__" and owner in ("Model",):
            return  # reads a file of any given name
        arguments = self.mutated(arguments_of(self.pool, name, self.rng))
        self.call(what, lambda *a, **k: getattr(thing, name)(*a, **k), arguments)

    def round(self) -> None:
        if self.rng.random() < 0.4:
            function, arguments = self.rng.choice(functions(self.pool))
            result = self.call(function.__name__, function, self.mutated(arguments))
            for _ in range(4 if result is not None and type(result).__module__ == "chainrule._core" else 0):
                self.use(result, type(result).__name__)
        else:
            pools = [self.pool.models, self.pool.kenlm, self.pool.states, self.pool.ngram_states]
            thing = self.rng.choice(self.rng.choice([*pools, self.pool.spellers, self.pool.broken]))
            self.use(thing, type(thing).__name__)


def together(pool: Pool) -> None:
    """Several threads use the same models, states and trainers at once."""
    word2vec, arguments = embeddings(pool)[0]
    learner = word2vec(**arguments)
    state = core.KenlmState()
    counter = core.WordCounter(pool.path())

    def use(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(100):
            model = rng.choice(pool.kenlm)
            calls: list[Callable[[], object]] = [
                lambda: model.BaseScore(state, rng.choice(["a", "b", "zzz"]), state),  # noqa: B023
                lambda: model.BeginSentenceWrite(state),  # noqa: B023
                lambda: rng.choice(pool.models).score(**batch(3)),
                lambda: rng.choice(pool.models).score_sentences(["a b c"] * 50),
                lambda: learner.run(0.0001),
                lambda: learner.input().sum(),
                lambda: learner.output(),
                lambda: counter.feed(b"a b c\n"),
                lambda: counter.words_of(np.array([0, 1, 2])),
                lambda: learner.finish() if rng.random() < 0.05 else None,
            ]
            for call in calls:
                with contextlib.suppress(*ACCEPTED):
                    call()

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(seed: int, rounds: int, log: Path) -> None:
    warnings.simplefilter("ignore")  # nanobind warns about uninitialised objects
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory(prefix="chainrule-fuzz-") as place:
        fuzzer = Fuzzer(pool := Pool(Path(place)), seed, log.absolute())
        os.chdir(place)  # files named by arguments go here
        for _ in range(rounds):
            fuzzer.round()
        together(pool)
        copies = [copy.deepcopy(state) for state in pool.states]
        assert copies == pool.states
        print(f"{fuzzer.calls} calls of {len(fuzzer.reached)} names, {fuzzer.refused} refused")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
