"""Damaged `model.ngram` files raise and never give a score."""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule
from chainrule import system
from chainrule.errors import ChainruleError, ConfigError, ModelFileError
from chainrule.lm import Batch, Context, Floats, Ids, Vocabulary
from chainrule.ngram import engine as engines
from chainrule.ngram.config import SMOOTHINGS
from chainrule.ngram.model import NgramModel
from chainrule.storage import verified_dir
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.encode import encode
from cli.command import run_error, run_ok

pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")]

LINES = [" ".join(f"w{(7 * i * i + j * i) % 60}" for j in range(i % 9 + 1)) for i in range(400)]
LAYOUTS = [("fast", 0), ("small", 0), ("small", 8)]


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda value: f"{value[0]}-{value[1]}")
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    layout, bits = request.param
    path = tmp_path_factory.mktemp("models") / "m"
    chainrule.train("ngram", Corpus.from_lines(LINES), order=4, layout=layout, bits=bits).save(path)
    return path


def copied(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "copy")) / "model.ngram"


def test_model_file_round_trips(saved: Path) -> None:
    loaded = chainrule.load(saved, verify=True)
    assert loaded.lm.engine.layout == loaded.config.layout
    assert loaded.lm.engine.bits == loaded.config.bits
    assert loaded.lm.engine.has_names
    entry = verified_dir.open_dir(saved).files["model.ngram"]
    assert entry.content_id == engines.content_id(loaded.lm.engine)
    assert entry.size == loaded.lm.engine.bytes


def test_model_file_with_any_flipped_bit_is_rejected(saved: Path, tmp_path: Path) -> None:
    path = copied(saved, tmp_path)
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    for place in rng.integers(0, 8 * len(content), 200).tolist():
        content[place // 8] ^= 1 << place % 8
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"model\.ngram"):
            chainrule.load(path.parent)
        content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    chainrule.load(path.parent)


def test_model_file_of_wrong_length_is_rejected(saved: Path, tmp_path: Path) -> None:
    path = copied(saved, tmp_path)
    content = path.read_bytes()
    rng = np.random.default_rng(1)
    lengths = [0, 1, 8, 63, 64, len(content) - 1, *rng.integers(0, len(content), 30).tolist()]
    for length in lengths:
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError, match=r"model\.ngram"):
            chainrule.load(path.parent)
        with pytest.raises(ModelFileError, match=r"model\.ngram"):
            engines.open_file(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(ModelFileError, match=r"model\.ngram"):
        engines.open_file(path)


def test_info_command_reports_a_damaged_model_file(saved: Path, tmp_path: Path) -> None:
    path = copied(saved, tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert "model.ngram" in run_error(3, "info", path.parent)
    assert "model.ngram" in run_error(3, "info", path.parent, "--verify")


def test_extension_raises_chainrule_errors(saved: Path, tmp_path: Path) -> None:
    open_model = system.load_extension().NgramModel.open
    path = copied(saved, tmp_path)
    with pytest.raises(ChainruleError, match="choose fast or small") as argument:
        open_model(str(path)).convert(layout="flat")
    assert type(argument.value) is ChainruleError
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match="is damaged"):
        open_model(str(path))
    path.write_bytes(b"text")
    with pytest.raises(ModelFileError, match="is not an n-gram model"):
        open_model(str(path))
    path.unlink()
    with pytest.raises(ModelFileError, match="cannot be read"):
        open_model(str(path))


def test_info_verify_accepts_an_intact_model(saved: Path) -> None:
    assert "model.ngram" in run_ok("info", saved, "--verify").out


def test_model_file_of_another_model_is_rejected(tmp_path: Path) -> None:
    chainrule.train("ngram", Corpus.from_lines(LINES), order=4).save(tmp_path / "m")
    # The same text with two words exchanged: identical counts, different file.
    swap = {"w1": "w2", "w2": "w1"}
    lines = [" ".join(swap.get(word, word) for word in line.split()) for line in LINES]
    chainrule.train("ngram", Corpus.from_lines(lines), order=4).save(tmp_path / "other")
    own, other = (tmp_path / name / "model.ngram" for name in ("m", "other"))
    assert own.read_bytes() != other.read_bytes()
    assert own.stat().st_size == other.stat().st_size
    shutil.copy(other, own)
    with pytest.raises(ModelFileError, match=r"model\.ngram is not the file that the manifest lists"):
        chainrule.load(tmp_path / "m")


def query_all(engine: Any) -> Floats:
    """Scores of seen and unseen words."""
    tokens = np.random.default_rng(0).integers(0, engine.vocabulary_size, (50, engine.order + 9)).astype(np.int32)
    scores: Floats = engine.score(tokens, tokens[:, :10].copy())
    return scores


WORDS = Vocabulary(400, bos=1, eos=2, unk=0)


def write_large_model(path: Path, layout: str = "fast") -> Path:
    """A file of many 64 KiB blocks."""
    core: Any = system.load_extension()
    ids = np.append(np.random.default_rng(0).integers(3, 400, 60000), 2).astype(np.int32)
    model, _, _ = core.NgramModel.train(ids, 4, 400, 1, 2, 0, layout=layout)
    model.save(str(path))
    assert path.stat().st_size > 8 * 65536
    return path


@pytest.mark.parametrize("layout", ["fast", "small"])
def test_large_model_file_is_verified_block_by_block(tmp_path: Path, layout: str) -> None:
    """Opened like files above 64 MiB: most blocks are verified when first read."""
    core: Any = system.load_extension()
    path = write_large_model(tmp_path / "m.ngram", layout)
    expected, refusals = query_all(core.NgramModel.open(str(path), verified_at_open=0)), 0
    content = bytearray(path.read_bytes())
    for place in np.random.default_rng(2).integers(0, len(content), 40).tolist():
        content[place] ^= 4
        path.write_bytes(content)
        try:
            scores = query_all(core.NgramModel.open(str(path), verified_at_open=0))
        except ChainruleError as error:
            is_named = "m.ngram is damaged" in str(error)
            refusals += is_named
        else:  # the damaged block was not read
            np.testing.assert_array_equal(scores, expected)
        with pytest.raises(ChainruleError, match=r"m\.ngram is damaged"):
            core.NgramModel.open(str(path), verify=True, verified_at_open=0)
        content[place] ^= 4
    assert refusals > 10  # each error names the file


def test_damage_found_while_scoring_raises(tmp_path: Path) -> None:
    core: Any = system.load_extension()
    path = write_large_model(tmp_path / "m.ngram")
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 2, len(content), 4096):
        content[place] ^= 1
    path.write_bytes(content)
    words = np.random.default_rng(0).integers(3, 400, (20, 30))
    batch = Batch(words, words, np.ones(words.shape, dtype=bool))
    opened = NgramModel(core.NgramModel.open(str(path), verified_at_open=0), WORDS)
    with pytest.raises(ModelFileError, match=r"m\.ngram"):
        opened.score(batch, opened.start(20))
    with pytest.raises(ModelFileError, match=r"m\.ngram"):
        opened.tables  # noqa: B018


def test_safetensors_model_file_asks_for_retraining(tmp_path: Path) -> None:
    path = tmp_path / "model.ngram"
    path.write_bytes((2).to_bytes(8, "little") + b"{}" + bytes(500))
    with pytest.raises(
        ModelFileError, match=r"model\.ngram is not an n-gram model file, or is truncated; retrain the model"
    ):
        engines.open_file(path)


def test_model_file_does_not_depend_on_thread_count(tmp_path: Path) -> None:
    core: Any = system.load_extension()
    ids = np.append(np.random.default_rng(0).integers(3, 400, 30000), 2).astype(np.int32)
    for layout, bits in LAYOUTS:
        contents = set()
        for threads in (1, 2, 5):
            model, _, _ = core.NgramModel.train(ids, 4, 400, 1, 2, 0, layout=layout, bits=bits, threads=threads)
            model.save(str(tmp_path / f"{layout}{bits}{threads}"))
            contents.add((tmp_path / f"{layout}{bits}{threads}").read_bytes())
        assert len(contents) == 1


def test_eight_bit_quantisation_changes_perplexity_little(tmp_path: Path) -> None:
    exact = chainrule.train("ngram", Corpus.from_lines(LINES), order=3, layout="small")
    quantized = chainrule.train("ngram", Corpus.from_lines(LINES), order=3, layout="small", bits=8)
    exact_perplexity, quantized_perplexity = (
        model.evaluate(Corpus.from_lines(LINES[:100])).perplexity for model in (exact, quantized)
    )
    assert quantized_perplexity == pytest.approx(exact_perplexity, rel=0.02)
    assert quantized_perplexity != exact_perplexity


def test_eight_bits_require_the_small_layout() -> None:
    with pytest.raises(ConfigError, match="8 bits need the small layout"):
        chainrule.train("ngram", Corpus.from_lines(LINES), bits=8)
    with pytest.raises(ConfigError, match="layout is 'tiny'"):
        chainrule.train("ngram", Corpus.from_lines(LINES), layout="tiny")


IN_PLACE = """
import sys
import numpy as np
from chainrule import system
from chainrule.errors import ChainruleError

core = system.load_extension()
MODES = {"whole": {}, "blocks": {"verified_at_open": 0}, "mapped": {"largest_copy": 1}}


def score(model):
    tokens = np.random.default_rng(0).integers(0, model.vocabulary_size, (50, model.order + 9)).astype(np.int32)
    return model.score(tokens, tokens[:, :10].copy())


for case in sys.argv[1:]:
    path, mode, change = case.split(":")
    model, before = core.NgramModel.open(path, **MODES[mode]), score(core.NgramModel.open(path, verify=True))
    if mode == "mapped":
        np.testing.assert_array_equal(score(model), before)
    with open(path, "r+b") as file:
        if change == "truncate":
            file.truncate(100)
        else:
            size = file.seek(0, 2)
            file.seek(4096)
            file.write(b"\\xff" * (size - 4096))
    for _ in range(2):
        try:
            np.testing.assert_array_equal(score(model), before)
            print(mode, "answered", flush=True)
        except ChainruleError as error:
            print(mode, "refused:", error, flush=True)
"""


def test_model_file_changed_in_place_never_gives_wrong_scores(tmp_path: Path) -> None:
    """The model answers as before or raises; it neither crashes nor answers from the changed bytes."""
    cases = []
    for layout, change, mode in itertools.product(
        ["fast", "small"], ["truncate", "overwrite"], ["whole", "blocks", "mapped"]
    ):
        path = write_large_model(tmp_path / f"{layout}-{change}-{mode}.ngram", layout)
        cases.append(f"{path}:{mode}:{change}")
    run = subprocess.run([sys.executable, "-c", IN_PLACE, *cases], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 2 * len(cases)
    expected = {"whole": "answered", "blocks": "ngram", "mapped": "ngram changed after it was opened"}
    for line in lines:
        mode, _, answer = line.partition(" ")
        assert expected[mode] in answer, line
        assert mode == "whole" or answer.startswith("refused:")


def test_open_model_survives_replacement_of_its_file(tmp_path: Path) -> None:
    """Saving over a model renames another file into place; the open one remains usable, mapped or not."""
    core: Any = system.load_extension()
    path = write_large_model(tmp_path / "m.ngram")
    models = [
        core.NgramModel.open(str(path), **options) for options in ({}, {"verified_at_open": 0}, {"largest_copy": 1})
    ]
    expected = query_all(core.NgramModel.open(str(path)))
    other = tmp_path / "other"
    other.write_bytes(b"another file")
    other.rename(path)
    for model in models:
        np.testing.assert_array_equal(query_all(model), expected)


def test_open_model_survives_hard_linking_of_its_file(tmp_path: Path) -> None:
    """A hard link is added and removed: the bytes are the same."""
    core: Any = system.load_extension()
    path = write_large_model(tmp_path / "m.ngram")
    models = [
        core.NgramModel.open(str(path), **options) for options in ({"verified_at_open": 0}, {"largest_copy": 1})
    ]
    expected = query_all(core.NgramModel.open(str(path)))
    (tmp_path / "link").hardlink_to(path)
    for model in models:
        np.testing.assert_array_equal(query_all(model), expected)
    (tmp_path / "link").unlink()
    for model in models:
        np.testing.assert_array_equal(query_all(model), expected)


def test_saving_a_model_whose_file_changed(tmp_path: Path) -> None:
    """Data already read is saved unchanged; unread blocks raise if they changed."""
    core: Any = system.load_extension()
    path = write_large_model(tmp_path / "m.ngram")
    content = path.read_bytes()
    eager, lazy = (core.NgramModel.open(str(path), **options) for options in ({}, {"verified_at_open": 0}))
    path.write_bytes(content[:70000])
    eager.save(str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == content
    with pytest.raises(ModelFileError, match=r"m\.ngram became shorter"):
        lazy.save(str(tmp_path / "no"))
    assert not (tmp_path / "no").exists()


def test_model_file_that_is_a_fifo_is_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.ngram")
    with pytest.raises(ModelFileError, match="not a regular file"):
        engines.open_file(tmp_path / "m.ngram")


def sums(lm: NgramModel, contexts: Ids) -> Floats:
    """Σ_w p(w | h) of each context."""
    total: Floats = np.exp(lm.engine.step(np.ascontiguousarray(contexts, dtype=np.int32))).sum(axis=1)
    return total


def contexts_of(lm: NgramModel, ids: Ids) -> Ids:
    """Every context of a text, line by line, and as many random ones, most of them unseen."""
    n, bos = lm.order - 1, lm.vocabulary.bos
    read = np.concatenate([np.full(n, bos), ids])
    of_text = np.lib.stride_tricks.sliding_window_view(read, n)
    drawn = np.random.default_rng(0).integers(0, lm.vocabulary.size, (len(of_text), n))
    return np.concatenate([of_text, drawn])


QUANTIZED: list[dict[str, Any]] = [{"smoothing": name} for name in SMOOTHINGS if name != "stupid-backoff"] + [
    {"prune": (0, 0, 1)},
    {"entropy_prune": 1e-4},
    {"order": 2},
    {"order": 6},
]


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("settings", QUANTIZED, ids=str)
def test_quantised_distributions_sum_to_one(settings: dict[str, Any], context: Context) -> None:
    """After seen and unseen contexts; `score` agrees with `step`."""
    corpus = Corpus.from_lines(LINES)
    chosen: dict[str, Any] = {"order": 4, "layout": "small", "bits": 8} | settings
    model = chainrule.train("ngram", corpus, context=context, **chosen)
    lm: Any = model.lm
    ids = encode(corpus, model.tokenizer).ids
    contexts = contexts_of(lm, ids)
    assert lm.is_normalized
    assert np.abs(sums(lm, contexts) - 1).max() < 1e-3
    some, words = contexts[::97].astype(np.int32), ids[: len(contexts[::97])].astype(np.int32)
    tokens = np.concatenate([np.full((len(some), 1), lm.vocabulary.bos, np.int32), some], axis=1)
    np.testing.assert_array_equal(
        lm.engine.score(np.ascontiguousarray(tokens), words[:, None].copy())[:, 0],
        lm.engine.step(np.ascontiguousarray(some))[np.arange(len(some)), words],
    )


def test_quantised_file_of_format_version_2_loads_with_a_warning(tmp_path: Path) -> None:
    """Files of version 2 were rounded without recomputing back-off weights: they load with a warning."""
    chainrule.train("ngram", Corpus.from_lines(LINES), order=3, layout="small", bits=8).save(tmp_path / "m")
    path = tmp_path / "m" / "model.ngram"
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[56:64], "little")  # header size; its last eight bytes are its checksum
    assert content[8:12] == (3).to_bytes(4, "little")
    assert engines.open_file(path).is_normalized
    content[8] = 2
    words = np.frombuffer(bytes(content[: size - 8]), dtype="<u8")
    with np.errstate(over="ignore"):
        step = np.uint64(0x9E3779B97F4A7C15)
        mixed = (words + (np.arange(len(words), dtype=np.uint64) + np.uint64(1)) * step) * np.uint64(
            0xFF51AFD7ED558CCD
        )
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xC4CEB9FE1A85EC53)
        content[size - 8 : size] = int(mixed.sum(dtype=np.uint64)).to_bytes(8, "little")
    path.write_bytes(content)
    engine = engines.open_file(path)
    assert not engine.is_normalized
    assert engine.bits == 8


def test_layouts_convert_where_many_neighbouring_contexts_have_no_extensions() -> None:
    rng = np.random.default_rng(3)
    lines = [" ".join(f"w{w}" for w in rng.zipf(1.3, 12) % 300) for _ in range(400)]
    fast, small = (
        chainrule.train("ngram", Corpus.from_lines(lines), order=4, prune=(0, 0, 4), layout=layout).lm.engine
        for layout in ("fast", "small")
    )
    has_extensions = np.zeros(fast.sizes[1], dtype=bool)
    has_extensions[fast.tables()[2]["key"] // fast.vocabulary_size] = True
    runs = np.diff(np.flatnonzero(np.concatenate([[True], has_extensions, [True]])))
    assert runs.max() > 2 * 64  # at least one whole block of the small layout
    assert small.convert(layout="fast").mark == fast.mark
    assert fast.convert(layout="small").mark == small.mark
