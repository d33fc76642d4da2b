"""Corpus jobs on Spark: the files and the values of this process."""

from pathlib import Path
from typing import Any

import pytest

import chainrule
import chainrule.spark
from chainrule.applications.deduplicate import deduplicate
from chainrule.applications.encode import encode_corpus
from chainrule.applications.filter import LineCost, keep_nearest
from chainrule.distributed.options import EngineOptions
from chainrule.errors import UsageError
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import TokenizerConfig
from cli.command import english, run_ok

SPARK = EngineOptions(on="spark", partition="2k")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text with exact and near duplicates of paragraphs, and a model of it."""
    folder = tmp_path_factory.mktemp("jobs")
    paragraph = english(60)
    text = (paragraph + "\n" + english(90, seed=4) + "\n") * 2 + paragraph.replace("cat", "horse", 1)
    (folder / "text.txt").write_text(text)
    chainrule.train("ngram", folder / "text.txt", order=3, smoothing="witten-bell").save(folder / "model")
    return folder


@pytest.mark.usefixtures("session")
def test_filter_and_score(folder: Path) -> None:
    options = ("--on", "spark", "--partition", "2k")
    model, text = folder / "model", folder / "text.txt"
    corpus = Corpus.of(text)
    kept = list(keep_nearest(LineCost.of(chainrule.load(model)), corpus, "20%"))
    assert run_ok("filter", model, text, "--keep", "20%", *options).out.splitlines() == kept
    assert run_ok("score", model, text, *options).out == run_ok("score", model, text).out


def test_deduplicate(session: Any, folder: Path) -> None:
    text, whole, spark = (folder / name for name in ("text.txt", "whole", "spark"))
    expected = deduplicate(text, whole, by="document", near=0.8)
    assert deduplicate(text, spark, by="document", near=0.8, options=SPARK, session=session) == expected
    assert (expected.total, expected.exact, expected.near) == (5, 2, 1)
    assert spark.read_bytes() == whole.read_bytes()


def test_encode(session: Any, folder: Path) -> None:
    config = TokenizerConfig(kind="word", min_count=2)
    settings: dict[str, Any] = {"tokenizer": config, "tokens_per_shard": 300}
    encode_corpus(folder / "text.txt", folder / "one", **settings)
    encode_corpus(folder / "text.txt", folder / "two", **settings, options=SPARK, session=session)
    names = {path.name for path in (folder / "one").iterdir()} - {"manifest.json"}
    assert len(names) > 6
    for name in names:
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes(), name


def test_score_of_a_data_frame(session: Any, folder: Path) -> None:
    model = chainrule.load(folder / "model")
    texts = ["the cat sees", "", "zebra", "the cat\na dog", None]
    frame = session.createDataFrame([(n, text) for n, text in enumerate(texts)], "id int, body string")
    for source in (model, str(folder / "model")):
        rows = chainrule.spark.score(source, frame, column="body").orderBy("id").collect()
        assert [row.body for row in rows] == texts
        for row, text in zip(rows, texts, strict=True):
            if text is None:
                assert row.log_prob is row.log_prob_with_spelling is row.bits_per_byte is None
                continue
            score = model.score(text)
            assert row.log_prob == pytest.approx(score.log_prob, rel=1e-12)
            assert row.log_prob_with_spelling == pytest.approx(score.log_prob_with_spelling, rel=1e-12)
            bits = LineCost.of(model).costs([text])[0]
            assert row.bits_per_byte == pytest.approx(bits, rel=1e-12)


def test_invalid_columns(session: Any, folder: Path) -> None:
    frame = session.createDataFrame([(1, "a", 0.5)], "id int, text string, log_prob double")
    for column, message in (
        ("body", "no column 'body'; choose one of id, text"),
        ("id", "contains int, not text"),
        ("text", "has a column 'log_prob' already"),
    ):
        with pytest.raises(UsageError, match=message):
            chainrule.spark.score(folder / "model", frame, column)
