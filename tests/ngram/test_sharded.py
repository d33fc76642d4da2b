"""Sharded n-gram models: equal to the unsharded model bit for bit."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import chainrule
from chainrule.applications.convert import join_model, split_model
from chainrule.config import build_config
from chainrule.errors import ChainruleError, ConfigError, ModelFileError, ShardError
from chainrule.lm import Batch
from chainrule.ngram import engine as engines
from chainrule.ngram import sharded
from chainrule.ngram.config import Config
from chainrule.ngram.engine import Engine
from chainrule.ngram.model import NgramModel
from chainrule.ngram.sharded import ShardedModel
from chainrule.ngram.tables import BackoffTables
from chainrule.storage.verified_dir import file_sha256
from chainrule.text.corpus import Corpus
from ngram.query_pairs import SMALL, WORDS, Pair, level, pair_of, pairs

pytestmark = pytest.mark.native

TEXT = ["the mouse sees a rare cat", "a bird likes the dog", "the the fish"]
LINES = [
    "the cat sees the dog",
    "a dog likes the cat",
    "the fish sees a mouse",
    "a mouse likes the fish",
    "rare",
] * 3


def split(model: NgramModel, shards: int) -> ShardedModel:
    return sharded.split(model, Config(order=model.order), shards)


def saved_bytes(engine: Engine, folder: Path, name: str) -> bytes:
    engines.save(engine, folder / name)
    return (folder / name).read_bytes()


def check_equal(whole: NgramModel, parts: ShardedModel, pair: Pair, rows: int, columns: int) -> None:
    """Compare scores, distributions and states on rows of random ids, with `<s>` and `</s>` anywhere."""
    targets = pair.rows(rows, columns)
    inputs = np.concatenate([pair.rows(rows, 1), targets[:, :-1]], axis=1)
    is_other = pair.rng.random(inputs.shape) < pair.rng.choice([0.0, 0.2])
    inputs[is_other] = pair.rng.integers(0, pair.vocabulary.size, is_other.sum())
    mask = np.arange(columns)[None, :] < pair.rng.integers(0, columns + 1, (rows, 1))
    batch = Batch(inputs, targets, mask)
    state, other = whole.start(rows), parts.start(rows)
    for _ in range(2):
        expected, state = whole.score(batch, state)
        scores, other = parts.score(batch, other)
        assert_array_equal(scores[mask], expected[mask])
    words = pair.rng.integers(0, pair.vocabulary.size, rows)
    expected, state = whole.step(state, words)
    log_probs, other = parts.step(other, words)
    assert_array_equal(log_probs, expected)
    assert_array_equal(parts.distributions(batch, other)[0], whole.distributions(batch, state)[0])
    lines = targets.ravel()
    expected_lines, line_scores = whole.score_lines(lines), parts.score_lines(lines)
    if expected_lines is None:
        assert line_scores is None
    else:
        assert line_scores is not None
        assert_array_equal(line_scores, expected_lines)


@settings(max_examples=60, deadline=None)
@given(pair=pairs(), shards=st.integers(1, 7), bits=st.sampled_from([0, 8]), columns=st.sampled_from([1, 3, 40]))
def test_shards_score_and_join_like_the_unsharded_model(
    pair: Pair, shards: int, bits: int, columns: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Random orders, smoothings, cut-offs, closed and open vocabularies, line and stream; all layouts."""
    whole = pair.compiled
    if whole.engine.layout == "small" and bits:
        whole = replace(whole, engine=whole.engine.convert(layout="small", bits=8))
    parts = split(whole, min(shards, whole.vocabulary.size))
    assert parts.config.shards == min(shards, whole.vocabulary.size)
    assert sharded.parameters(parts) == whole.parameters
    check_equal(whole, parts, pair, rows=3, columns=columns)
    joined, config = sharded.join(parts)
    assert config == Config(order=whole.order)
    folder = tmp_path_factory.mktemp("joined")
    assert saved_bytes(joined.engine, folder, "joined") == saved_bytes(whole.engine, folder, "whole")


@pytest.mark.parametrize("layout", ["fast", "small"])
def test_context_weight_of_missing_contexts(layout: str) -> None:
    """An n-gram is stored without its suffix, and contexts that are not stored have a weight."""
    for context in ("line", "stream"):
        pair = pair_of(SMALL, WORDS, context, layout, seed=5)
        for shards in (1, 2, 4):
            check_equal(pair.compiled, split(pair.compiled, shards), pair, rows=9, columns=12)


def test_repeated_bos_is_a_stored_context() -> None:
    """A model of another program can store `<s> <s>`; its weight applies to the first word of a line."""
    tables = BackoffTables(
        (
            level([0, 1, 2, 3], [-np.inf, -1.0, -1.25, -1.5], [-0.5, 0.0, -0.25, -0.125]),
            level([0 * 4 + 0, 2 * 4 + 3], [-np.inf, -0.75], [-3.0, -2.0]),
            level([1 * 4 + 2], [-0.0625], [0.0]),
        ),
    )
    parts = split(pair_of(tables, WORDS, "line", "fast").compiled, 2)
    log_probs = parts.score_lines(np.array([2, 1]))
    assert log_probs is not None
    assert log_probs.tolist() == [-1.25 - 0.5 - 3.0, -1.0 - 0.25]  # log p(a) + weight(<s>) + weight(<s> <s>)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of a trigram model and of the same model in three shards."""
    root = tmp_path_factory.mktemp("sharded")
    model = chainrule.train("ngram", Corpus.from_lines(LINES), order=3, smoothing="witten-bell", min_count=4)
    model.save(root / "whole")
    split_model(model, 3).save(root / "parts")
    return root / "whole", root / "parts"


def test_saved_shards_are_model_files_that_join_to_the_same_file(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    whole, parts = (chainrule.load(folder, verify=True) for folder in folders)
    assert (parts.family, parts.config.shards, parts.parameters) == ("sharded-ngram", 3, whole.parameters)
    names = sorted(path.name for path in (folders[1] / "shards").iterdir())
    assert names == [f"0000{shard}-of-00003.ngram" for shard in range(3)]
    opened = [engines.open_file(folders[1] / "shards" / name, verify=True) for name in names]
    for n, size in enumerate(whole.lm.engine.sizes):
        assert sum(engine.sizes[n] for engine in opened) == (3 * size if n == 0 else size)
    text = "the mouse sees a rare cat\nlikes"
    assert parts.score(text).log_probs == whole.score(text).log_probs
    assert parts.evaluate(Corpus.from_lines(TEXT)).nats == whole.evaluate(Corpus.from_lines(TEXT)).nats
    assert parts.next("the", top=20) == whole.next("the", top=20)
    assert parts.generate("a", seed=3, max_tokens=9).text == whole.generate("a", seed=3, max_tokens=9).text
    join_model(parts).save(tmp_path / "joined")
    assert file_sha256(tmp_path / "joined" / "model.ngram") == file_sha256(folders[0] / "model.ngram")


def copy(folder: Path, target: Path) -> Path:
    return Path(shutil.copytree(folder, target))


def test_folder_can_lack_shards_that_are_not_used(folders: tuple[Path, Path], tmp_path: Path) -> None:
    folder = copy(folders[1], tmp_path / "parts")
    (folder / "shards" / "00001-of-00003.ngram").unlink()
    model = chainrule.load(folder)
    assert cast(ShardedModel, model.lm).missing == [1]
    with pytest.raises(ShardError, match=r"parts lacks shards/00001-of-00003.ngram; copy the file into"):
        model.evaluate(Corpus.from_lines(TEXT))
    with pytest.raises(ConfigError, match="lacks 1 of 3 shard files, the first is shards/00001"):
        join_model(model)
    with pytest.raises(ConfigError, match="lacks 1 of 3 shard files"):
        model.save(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("fault", ["swapped", "damaged", "not a file", "other model"])
def test_faulty_shard_is_rejected(fault: str, folders: tuple[Path, Path], tmp_path: Path) -> None:
    folder = copy(folders[1], tmp_path / "parts")
    first, second, _ = sorted((folder / "shards").iterdir())
    if fault == "swapped":
        first.write_bytes(second.read_bytes())
    elif fault == "damaged":
        content = bytearray(first.read_bytes())
        content[len(content) // 2] ^= 1
        first.write_bytes(content)
    elif fault == "not a file":
        first.unlink()
        first.mkdir()
    else:
        model = chainrule.train("ngram", Corpus.from_lines(LINES[::-1]), order=3, min_count=4, smoothing="laplace")
        split_model(model, 3).save(tmp_path / "other")
        first.write_bytes((tmp_path / "other" / "shards" / first.name).read_bytes())
    with pytest.raises(ModelFileError, match=r"00000-of-00003.ngram"):
        chainrule.load(folder).evaluate(Corpus.from_lines(TEXT))


@pytest.mark.parametrize("change", [{"bounds": [0]}, {"bounds": [0, 5, 2, 9]}, {"bounds": [1, 9]}, {"sizes": [1]}])
def test_config_of_shards_is_checked(change: dict[str, list[int]]) -> None:
    with pytest.raises(ConfigError, match=r"bounds is|sizes has"):
        build_config(sharded.Config, {"order": 3, **change}, "model", is_saved=True)


def test_numbers_of_shards_that_are_impossible() -> None:
    model = chainrule.train("ngram", Corpus.from_lines(["a b", "b a"]), order=2, smoothing="witten-bell")
    for shards in (0, 6):
        with pytest.raises(ConfigError, match=f"shards is {shards}; choose a number from 1 to 5"):
            split_model(model, shards)
    parts = split_model(model, 5)
    with pytest.raises(ConfigError, match="only n-gram models can be split"):
        split_model(parts, 2)
    with pytest.raises(ConfigError, match="is made from an n-gram model"):
        chainrule.families.get("sharded-ngram").train(None, parts.config)  # type: ignore[arg-type]


def test_shards_have_about_equal_sizes() -> None:
    rng = np.random.default_rng(1)
    lines = [" ".join(map(str, rng.integers(0, 200, 12))) for _ in range(400)]
    model = chainrule.train("ngram", Corpus.from_lines(lines), order=4, smoothing="witten-bell")
    parts = split_model(model, 4)
    engine, shards = model.lm.engine, sharded.local_shards(cast(ShardedModel, parts.lm))
    rows = [sum(shard.sizes[1:]) for shard in shards]
    assert sum(rows) == sum(engine.sizes[1:])
    assert max(rows) < 1.2 * min(rows)
    other = [shards[0], shards[1].convert("small")]
    with pytest.raises(ChainruleError, match="the shards are of different models"):
        engine.join_shards(other, [0, 5, 9], False, "unused")
