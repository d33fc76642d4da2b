"""What `compare` plans, for which tokenizers, and the status of each model."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule
from chainrule.comparison import mixtures
from chainrule.comparison import plan as planning
from chainrule.comparison.mixtures import choose_components
from chainrule.comparison.plan import ngram_candidates
from chainrule.comparison.results import Results, Row
from chainrule.comparison.settings import make_settings, parse_duration
from chainrule.comparison.tokenized_text import Tokenized, collapse_blanks, tokenize_all
from chainrule.errors import ConfigError, InputError
from chainrule.neural import gru, rnn
from chainrule.ngram import family as ngram
from chainrule.ngram.config import Config
from chainrule.progress import silent
from chainrule.text.corpus import Corpus
from chainrule.text.splits import CorpusSplit, split_text
from chainrule.tokenizers.encode import encode
from chainrule.training.config import TrainingConfig
from cli.command import english


def lines(count: int = 60, seed: int = 3) -> Corpus:
    return Corpus.from_lines(english(count, seed).splitlines())


@pytest.fixture
def tiny_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two n-grams, and two networks of four units that read the text twice."""
    monkeypatch.setattr(ngram, "candidates", lambda: [Config(order=2), Config(order=1)])
    for module in (rnn, gru):
        config = module.Config(hidden=4, training=TrainingConfig(epochs=2, batch_size=8))
        family = dataclasses.replace(module.family, candidates=lambda config=config: [config])
        monkeypatch.setattr(module, "family", family)


def compare(**options: Any) -> Results:
    settings = {"families": ("ngram", "rnn"), "device": "cpu", "size": "fixed"} | options
    return chainrule.compare(lines(), **settings)


def tokenized(*names: str, **options: Any) -> list[Tokenized]:
    settings = make_settings({"tokenizers": names, **options})
    return tokenize_all(split_text(lines(), None, None, 0), settings, silent)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1h", 3600), ("1.5 m", 90), (".5h", 1800)]
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-1", "0", "1d", "1e999", "nan", "inf", "10 minutes"])
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="such as 90s, 10m or 1h"):
        parse_duration(text)


def test_networks_share_the_budget(tiny_candidates: None) -> None:
    parts = tokenized("word", "char")
    settings = make_settings({"tokenizers": ("word", "char"), "size": "fixed"})
    plan = planning.plan_networks(parts, ["rnn", "gru"], settings, 100)
    # 50 s per family is too little for a second tokenizer; words come first.
    assert [(one.name, one.seconds) for one in plan] == [("rnn-word-1-4", 50), ("gru-word-1-4-after", 50)]
    assert all(one.config.training.max_seconds is None for one in plan)
    plan = planning.plan_networks(parts, ["rnn", "gru"], settings, 2400)
    assert [(one.name, one.seconds) for one in plan] == [
        ("rnn-word-1-4", 600),
        ("rnn-char-1-4", 600),
        ("gru-word-1-4-after", 600),
        ("gru-char-1-4-after", 600),
    ]


def test_max_seconds_is_shared_by_the_seeds_of_a_family(tiny_candidates: None) -> None:
    parts = tokenized("char")
    settings = make_settings({"tokenizer": "char", "size": "fixed", "max_seconds": 30, "seeds": 3})
    plan = planning.plan_networks(parts, ["rnn", "gru"], settings, None)
    assert [one.seconds for one in plan] == [10, 10]
    plan = planning.plan_networks(parts, ["rnn", "gru"], settings, 6)  # the smaller budget applies
    assert [one.seconds for one in plan] == [1, 1]


def test_candidate_time_limit_does_not_override_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of the candidate itself does not shorten the planned time."""
    monkeypatch.setattr(ngram, "candidates", lambda: [Config(order=1)])
    config = rnn.Config(hidden=4, training=TrainingConfig(epochs=3, batch_size=8, max_seconds=1e-9))
    monkeypatch.setattr(rnn, "family", dataclasses.replace(rnn.family, candidates=lambda: [config]))
    row = next(row for row in compare(max_seconds=600).rows if row.family == "rnn")
    assert row.epochs == 3
    assert not row.is_still_falling


def test_plan_is_announced_before_the_first_network(tiny_candidates: None) -> None:
    messages: list[str] = []
    results = compare(announce=messages.append, families=("ngram", "rnn", "gru"))
    places = {line.split(":")[0].strip(): place for place, line in enumerate(messages)}
    assert places["ngram-1-modified-kneser-ney"] < places["plan"] < places["rnn-1-4"] < places["gru-1-4-after"]
    assert messages[places["plan"]].startswith("plan: 2 networks, about ")
    assert messages[places["plan"] + 1].startswith("  rnn-1-4, word: up to 2 epochs in ")
    assert list(results.plan) == messages[places["plan"] : places["plan"] + 3]


def test_row_status_after_training(tiny_candidates: None, monkeypatch: pytest.MonkeyPatch) -> None:
    results = compare()
    rows = {row.family: row for row in results.rows}
    assert (rows["ngram"].status, rows["ngram"].epochs, rows["ngram"].steps) == ("complete", None, None)
    assert rows["rnn"].epochs == 2
    assert rows["rnn"].steps == 2 * math.ceil(48 / 8)
    assert not rows["rnn"].is_still_falling
    stopped = compare(families=("rnn",), max_seconds=1e-6)
    row = next(row for row in stopped.rows if row.family == "rnn")
    assert row.is_still_falling
    assert row.to_json()["status"] == row.status != "complete"


def test_status_is_taken_from_training_metrics() -> None:
    from chainrule.comparison.measurement import is_still_falling, status

    metrics = {"status": "converged", "train_is_converged": True, "train_stopped": "time limit reached"}
    assert (status(metrics), is_still_falling(metrics)) == ("converged", False)
    assert is_still_falling({"train_is_converged": False})


def test_ngram_orders_rise_while_validation_improves() -> None:
    (part,) = tokenized("char")
    valid_bits = {1: 4.0, 2: 3.0, 3: 2.5, 4: 2.5, 5: 1.0}
    names = []
    orders: dict[str, int] = {}
    for candidate in ngram_candidates(part, lambda name: valid_bits[orders[name]], is_labelled=False):
        names.append(candidate.name)
        orders[candidate.name] = candidate.config.order
    rising = [f"ngram-{order}-modified-kneser-ney" for order in (1, 2, 3, 4)]
    assert names == [*rising, "ngram-3-kneser-ney", "ngram-3-absolute", "ngram-3-witten-bell"]
    falling = list(ngram_candidates(part, lambda name: -float(name.split("-")[1]), is_labelled=False))
    assert [one.config.order for one in falling] == [*range(1, 13), 12, 12, 12]
    (pieces,) = tokenized("bpe", tokenizer_settings={"vocab_size": 300})
    falling = list(ngram_candidates(pieces, lambda name: -float(name.split("-")[1]), is_labelled=False))
    assert max(one.config.order for one in falling) == 8


def test_word_ngrams_use_the_full_grid(tiny_candidates: None) -> None:
    (part,) = tokenized("word")
    names = [one.name for one in ngram_candidates(part, lambda name: math.nan, is_labelled=True)]
    assert names == ["ngram-word-2-modified-kneser-ney", "ngram-word-1-modified-kneser-ney"]


def blanks() -> CorpusSplit:
    text = ["a  b", " c d ", "e\tf", "a b c"]
    return CorpusSplit(name="t", train=text, valid=text, test=text, seed=None, sha256="0")


def test_all_tokenizers_read_the_same_bytes() -> None:
    settings = make_settings({"tokenizers": ("word", "char", "byte")})
    texts = collapse_blanks(blanks(), settings)
    assert texts.test == ["a b", "c d", "e f", "a b c"]
    parts = tokenize_all(texts, settings, silent)
    assert [part.test.bytes for part in parts] == [4 + 4 + 4 + 6] * 3
    without_words = make_settings({"tokenizers": ("char", "byte")})
    assert collapse_blanks(blanks(), without_words) == blanks()
    alone = make_settings({"tokenizer": "word"})
    assert collapse_blanks(blanks(), alone) == blanks()


def test_tokenizers_of_different_texts_are_rejected(tmp_path: Path) -> None:
    lower = chainrule.train(
        "ngram", Corpus.from_lines(["A İ"] * 3), order=1, smoothing="laplace", tokenizer="char", lowercase=True
    )
    lower.save(tmp_path / "lower")
    texts = CorpusSplit(name="t", train=["A İ"] * 3, valid=["A İ"], test=["A İ"], seed=None, sha256="0")
    settings = make_settings({"tokenizers": ("char", str(tmp_path / "lower"))})
    with pytest.raises(InputError, match="bits per byte cannot be compared"):
        tokenize_all(collapse_blanks(texts, settings), settings, silent)
    with pytest.raises(ConfigError, match="tokenizers contains 'char' twice"):
        make_settings({"tokenizers": ("char", "char")})


def test_one_table_for_several_tokenizers(tiny_candidates: None) -> None:
    results = compare(tokenizers=("word", "char"), budget=600)
    assert {row.tokenizer for row in results.rows} == {"word", "char"}
    names = {row.name for row in results.rows}
    assert {"ngram-word-2-modified-kneser-ney", "ngram-char-2-modified-kneser-ney", "rnn-word-1-4"} <= names
    ranked = [row.bits_per_byte for row in results.rows if row.is_ranked]
    assert ranked == sorted(ranked)
    assert results.remarks
    assert results.tokenizer.startswith("word, 19 ids; char, ")


def row(name: str, family: str, valid: float, smoothing: str = "katz", **options: Any) -> Row:
    facets = {"order": 2, "smoothing": smoothing} if family == "ngram" else {}
    figures = dict.fromkeys(("perplexity", "perplexity_per_word", "bits_per_byte"), 2.0)
    numbers = {"parameters": 1, "size_bytes": 1, "train_seconds": 1.0, "train_tokens_per_second": 1.0}
    values = {"sample": "", "is_ranked": True, "facets": facets, "valid_bits_per_byte": valid}
    return Row(name=name, family=family, **{**figures, **numbers, **values, **options})


def test_mixture_names() -> None:
    n, networks = row("n", "ngram", 1.9), [row(f"net{i}", f"family{i}", 3.0) for i in range(3)]
    assert mixtures._name([n, networks[0]], "") == "mixture-ngram-family0"
    assert mixtures._name([n, *networks[:2]], "word") == "mixture-word-ngram-family0-family1"
    assert mixtures._name([n, *networks], "") == "mixture-ngram-3-networks"
    assert mixtures._name(networks, "") == "mixture-3-networks"
    assert mixtures._name([n, row("m", "ngram", 2.0, smoothing="absolute")], "") == "mixture-ngram-katz-absolute"


def test_mixture_components_are_chosen_by_validation() -> None:
    n = row("n", "ngram", 1.9)
    same, different = row("same", "ngram", 2.0), row("other", "ngram", 2.1, smoothing="absolute")
    assert choose_components([n]) == []
    assert choose_components([same, n, different]) == [("n", "other")]
    networks = [row(f"net{i}", f"family{i}", 3.0 - i / 10) for i in range(4)]
    assert choose_components([different, n, networks[0]]) == [("n", "net0")]
    assert choose_components([n, *networks]) == [("n", "net3"), ("n", "net0", "net1", "net2", "net3")]
    assert choose_components(networks[:2]) == [("net0", "net1")]
    impossible = row("mle", "ngram", 1.0, is_ranked=False)
    assert choose_components([impossible, n, networks[0]]) == [("n", "net0")]


def test_mixture_row_equals_chainrule_mix(
    tiny_candidates: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixtures, "MIN_IMPROVEMENT", -1.0)  # shown even if no better than the n-gram
    results = compare(out=tmp_path, keep="all")
    mixed = next(row for row in results.rows if row.family == "mixture")
    assert mixed.name == "mixture-ngram-rnn"
    parts = split_text(lines(), None, None, 0)
    again = chainrule.mix(
        [tmp_path / "models" / name for name in mixed.components], held_out=Corpus.from_lines(parts.valid)
    )
    figures = again.evaluate(Corpus.from_lines(parts.test))
    assert mixed.bits_per_byte == pytest.approx(figures.bits_per_byte, rel=1e-9)
    saved = chainrule.load(tmp_path / "models" / mixed.name)
    np.testing.assert_allclose(saved.config.weights, again.config.weights)
    assert saved.evaluate(Corpus.from_lines(parts.test)).bits_per_byte == pytest.approx(mixed.bits_per_byte)
    assert mixed.note == ", ".join(
        f"{weight:.2f} {name}" for weight, name in zip(again.config.weights, mixed.components, strict=True)
    )


def test_mixture_that_does_not_help_is_left_out(tiny_candidates: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixtures, "MIN_IMPROVEMENT", 0.99)
    assert {row.family for row in compare().rows} == {"ngram", "rnn"}


def test_line_nats_sum_to_the_text() -> None:
    """The sum over lines equals the whole text, including spellings of unknown words."""
    model = chainrule.train("ngram", lines(), order=2, smoothing="laplace", min_count=2)
    encoded = encode(Corpus.from_lines(["the zebra sees", "", "a dog"]), model.tokenizer)
    assert encoded.oov == 1
    figures, nats = model.evaluate_lines(encoded)
    assert len(nats) == 3
    assert nats.sum() / math.log(2) / encoded.bytes == pytest.approx(figures.bits_per_byte)
    assert nats[2] == pytest.approx(-model.score("a dog").log_prob)
    assert nats[1] == pytest.approx(-model.score("").log_prob)
