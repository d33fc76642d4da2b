"""External-memory training: identical bytes to in-memory training, and the memory limit."""

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chainrule import system
from chainrule.errors import ChainruleError, ChainruleWarning
from chainrule.lm import Context, Floats, Ids, Vocabulary
from chainrule.ngram.config import Config
from chainrule.ngram.smoothing import estimate
from ngram.reference import count

pytestmark = pytest.mark.native

PLENTY = 4 << 30


@st.composite
def texts(draw: st.DrawFn) -> tuple[Ids, Vocabulary, Context]:
    """Ids of small or large vocabularies, lines or a stream, sometimes with repeated parts."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    V = draw(st.integers(3, 40))
    bos, eos, unk = (int(i) for i in rng.permutation(V)[:3])
    context: Context = draw(st.sampled_from(["line", "stream"]))
    words = np.setdiff1d(np.arange(V), [bos])
    chance = 1 / rng.permutation(np.arange(1, V)) ** rng.uniform(0, 2)
    ids = rng.choice(words, draw(st.sampled_from([1, 2, 7, 60, 800])), p=chance / chance.sum())
    if context == "line":
        ids[-1] = eos
    ids = np.tile(ids, draw(st.sampled_from([1, 1, 2, 5])))
    return ids, Vocabulary(V, bos, eos, unk, closed=draw(st.booleans())), context


@st.composite
def cut_offs(draw: st.DrawFn) -> tuple[int, ...]:
    """Empty, or one cut-off per order."""
    order = draw(st.integers(1, 6))
    above = sorted(draw(st.lists(st.sampled_from([0, 0, 1, 2, 3]), min_size=order - 1, max_size=order - 1)))
    return (0, *above)


def settings_of(ids: Ids, vocabulary: Vocabulary, context: Context, cuts: tuple[int, ...]) -> dict[str, Any]:
    """Arguments common to both training functions."""
    return {
        "ids": ids.astype(np.int32),
        "order": len(cuts),
        "vocabulary_size": vocabulary.size,
        "bos": vocabulary.bos,
        "eos": vocabulary.eos,
        "unk": -1 if vocabulary.unk is None else vocabulary.unk,
        "is_closed": vocabulary.closed,
        "is_stream": context == "stream",
        "cut_offs": list(cuts),
        "names": [f"w{i}" for i in range(vocabulary.size)],
    }


def train_external(place: Path, **arguments: Any) -> tuple[bytes, Any]:
    """The file written by external-memory training, and its statistics."""
    core: Any = system.load_extension()
    out = place / "model.ngram"
    out.unlink(missing_ok=True)
    statistics = core.ngram_train_within(**({"memory": PLENTY, "folder": str(place), "out": str(out)} | arguments))
    return out.read_bytes(), statistics


def train_in_memory(place: Path, **arguments: Any) -> tuple[bytes, Any]:
    """The same for in-memory training."""
    core: Any = system.load_extension()
    model, *statistics = core.NgramModel.train(**arguments)
    path = place / "wanted.ngram"
    path.unlink(missing_ok=True)
    model.save(str(path))
    return path.read_bytes(), tuple(statistics)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=texts(),
    cuts=cut_offs(),
    threads=st.integers(1, 8),
    records=st.sampled_from([0, 1, 2, 5, 50]),
    max_count=st.sampled_from([1, 2, 3, 0xFFFFFFFF]),
    layout=st.sampled_from(["fast", "small"]),
)
def test_external_training_writes_the_same_bytes(
    tmp_path: Path,
    text: tuple[Ids, Vocabulary, Context],
    cuts: tuple[int, ...],
    threads: int,
    records: int,
    max_count: int,
    layout: str,
) -> None:
    arguments = settings_of(*text, cuts) | {"layout": layout}
    expected = train_in_memory(tmp_path, **arguments)
    limits = {"records": records, "max_count": max_count}
    assert train_external(tmp_path, threads=threads, **limits, **arguments) == expected


def is_close(actual: Floats, expected: Floats) -> bool:
    """Whether all values are within one ulp, or within the rounding error of a sum of 1."""
    finite = np.isfinite(expected)
    if actual.shape != expected.shape or not np.array_equal(actual[~finite], expected[~finite]):
        return False
    a, b = actual[finite].astype(np.float64), expected[finite]
    return bool(np.all(np.abs(a - b) <= np.maximum(np.spacing(np.abs(b)), 1e-14)))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts(), cuts=cut_offs(), records=st.sampled_from([0, 1, 20]))
def test_external_training_equals_numpy(
    tmp_path: Path, text: tuple[Ids, Vocabulary, Context], cuts: tuple[int, ...], records: int
) -> None:
    ids, vocabulary, context = text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        tables = estimate(count(ids, len(cuts), vocabulary, context), Config(order=len(cuts), prune=cuts))
    train_external(tmp_path, records=records, **settings_of(ids, vocabulary, context, cuts))
    core: Any = system.load_extension()
    for actual, expected in zip(
        core.NgramModel.open(str(tmp_path / "model.ngram")).tables(), tables.levels, strict=True
    ):
        np.testing.assert_array_equal(actual["key"], expected.key)
        assert is_close(actual["log_prob"], expected.log_prob)
        assert is_close(actual["log_backoff"], expected.log_backoff)


def zipf_ids(size: int, words: int) -> Ids:
    """Ids with a Zipf distribution, in lines of about twenty words."""
    rng = np.random.default_rng(1)
    ids = np.minimum(rng.zipf(1.3, size) + 2, words - 1)
    ids[rng.random(size) < 0.05] = 2
    ids[-1] = 2
    return ids.astype(np.int32)


GIVEN: dict[str, Any] = {"order": 3, "vocabulary_size": 1000, "bos": 1, "eos": 2, "unk": 0}


def test_external_training_reads_ids_from_a_file(tmp_path: Path) -> None:
    ids = zipf_ids(100_000, 1000)
    (tmp_path / "ids").write_bytes(ids.astype("<i4").tobytes())
    expected = train_in_memory(tmp_path, ids=ids, **GIVEN)
    assert train_external(tmp_path, ids=str(tmp_path / "ids"), **GIVEN) == expected
    assert train_external(tmp_path, ids=str(tmp_path / "ids"), records=300, threads=2, **GIVEN) == expected


def test_external_training_reports_progress_and_leaves_no_files(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    other_files: list[str] = []

    def progress(done: int, of: int) -> None:
        calls.append((done, of))
        other_files.extend(path.name for path in tmp_path.iterdir())

    train_external(tmp_path, ids=zipf_ids(5000, 1000), progress=progress, **GIVEN)
    assert calls == [(i, 7) for i in range(1, 8)]  # the text, then counting and estimating each order
    assert other_files == []  # temporary files have no names
    assert [path.name for path in tmp_path.iterdir()] == ["model.ngram"]


def test_progress_callback_can_interrupt_external_training(tmp_path: Path) -> None:
    def progress(done: int, of: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_external(tmp_path, ids=zipf_ids(5000, 1000), progress=progress, **GIVEN)
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
import sys
from chainrule import system

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

folder, layout, bits, spare = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
core = system.load_extension()
limit = core.ngram_least_memory(1_000_000, 50_000, 5, layout, bits) + spare
assert peak() < limit, "the interpreter alone takes more"
core.ngram_train_within(ids=folder + "/ids", order=5, vocabulary_size=50_000, bos=1, eos=2, unk=0, memory=limit,
                        folder=folder, out=folder + "/model.ngram", threads=2, layout=layout, bits=bits)
print(limit, peak())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the peak")
@pytest.mark.parametrize(("layout", "bits"), [("fast", 0), ("small", 0), ("small", 8)])
def test_external_training_respects_the_memory_limit(tmp_path: Path, layout: str, bits: int) -> None:
    zipf_ids(1_000_000, 50_000).astype("<i4").tofile(tmp_path / "ids")
    peaks = []
    for spare in (1 << 20, 64 << 20):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path), layout, str(bits), str(spare)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        limit, peak = map(int, done.stdout.split())
        assert peak <= limit
        peaks.append((tmp_path / "model.ngram").read_bytes())
        (tmp_path / "model.ngram").unlink()
    assert peaks[0] == peaks[1]


FULL = """
import resource, sys
import numpy as np
from chainrule import system
from chainrule.errors import ChainruleError

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
ids = np.full(100_000, 2, dtype=np.int32)
try:
    system.load_extension().ngram_train_within(ids=ids, order=3, vocabulary_size=4, bos=1, eos=2, memory=4 << 30,
                                     folder=sys.argv[1], out=sys.argv[1] + "/model.ngram")
except ChainruleError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of the size of files are Unix's")
def test_external_training_reports_a_full_disk(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    assert str(tmp_path) in done.stdout
    assert "cannot store more data" in done.stdout
    assert re.search(r"up to \d+ MB", done.stdout)
    assert list(tmp_path.iterdir()) == []


def test_external_training_refuses_an_existing_output(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("x")
    reached: list[int] = []
    with pytest.raises(ChainruleError, match="other already exists"):
        train_external(
            tmp_path,
            ids=zipf_ids(5000, 1000),
            out=str(tmp_path / "other"),
            progress=lambda done, of: reached.append(done),
            **GIVEN,
        )
    assert (tmp_path / "other").read_text() == "x"
    assert reached == []  # before any work


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"memory": 1 << 20}, "memory is 1M, but training on this text needs"),
        ({"memory": -1}, "memory is -1"),
        ({"folder": "/no/such/folder"}, "/no/such/folder cannot be written to"),
        ({"ids": "/no/such/file"}, "/no/such/file cannot be read"),
        ({"ids": np.array([3], dtype=np.int32)}, "does not end with </s>"),
        ({"ids": np.array([1, 2], dtype=np.int32)}, "contains the id of <s>"),
        ({"ids": np.array([1000, 2], dtype=np.int32)}, "contains the id 1000"),
        ({"ids": np.array([3, 2])}, "int32"),
        ({"order": 0}, "order is 0"),
        ({"cut_offs": [0, 1]}, "2 cut-offs for 3 orders"),
        ({"cut_offs": [0, 2, 1]}, "never fall"),
        ({"cut_offs": [1, 1, 1]}, "start with 0"),
        ({"names": ["a"]}, "1 names for 1000 words"),
        ({"layout": "wide"}, "layout is 'wide'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_external_training_rejects_invalid_arguments(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = GIVEN | {"ids": np.array([3, 2], dtype=np.int32)}
    with pytest.raises(ChainruleError, match=re.escape(message)):
        train_external(tmp_path, **(good | changed))
    assert not (tmp_path / "model.ngram").exists()
