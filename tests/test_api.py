"""Python API: train, load, mix, compare, and the methods of a model."""

import math
import warnings
from pathlib import Path
from typing import Any, NoReturn

import pytest
from numpy.testing import assert_allclose

import chainrule
from chainrule.api import resolve_tokenizer, split_settings
from chainrule.errors import ChainruleWarning, ConfigError, InputError, NotFoundError, VocabularyError
from chainrule.text.corpus import Corpus
from cli.command import english, write


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path / "english.txt", english())


def test_documented_api_example(toy: Path, tmp_path: Path) -> None:
    model = chainrule.train("ngram", toy, order=3, smoothing="laplace", closed=True)
    score = model.score("i love mice")
    assert score.log_prob == pytest.approx(math.log(1 / 630), rel=1e-6)
    assert score.bits == pytest.approx(math.log2(630), rel=1e-6)
    assert score.perplexity == pytest.approx(5.0100, abs=5e-5)
    assert score.tokens == ("i", "love", "mice", "</s>")
    assert [math.exp(p) for p in score.log_probs] == pytest.approx([3 / 10, 3 / 9, 1 / 9, 1 / 7], rel=1e-6)
    test = write(tmp_path / "test.txt", "i love mice\n")
    assert model.evaluate(test).bits_per_byte == pytest.approx(math.log2(630) / 12, rel=1e-6)
    assert model.evaluate(str(test)).bits_per_byte == model.evaluate([test]).bits_per_byte
    settings = {"strategy": "sample", "top_p": 0.9, "seed": 1, "max_tokens": 20}
    assert model.generate("i love", **settings) == model.generate("i love", **settings)
    # Of seven words after "i love", cats and dogs have 2/9.
    assert [token for token, _ in model.next("i love", top=2)] == ["cats", "dogs"]
    assert model.next("i love", top=1)[0][1] == pytest.approx(2 / 9, rel=1e-6)


def test_mix_example(small: Path, tmp_path: Path) -> None:
    a = chainrule.train("ngram", small, order=1, smoothing="laplace")
    b = chainrule.train("ngram", small, order=3, smoothing="laplace")
    chainrule.mix([a, b], held_out=write(tmp_path / "v.txt", english(20, seed=5))).save(tmp_path / "mix")
    assert chainrule.load(tmp_path / "mix").family == "mixture"


def test_several_lines_are_scored_as_one_text(toy: Path) -> None:
    model = chainrule.train("ngram", toy, order=3, smoothing="laplace")
    both = model.score("i love mice\ncats chase")
    first, second = model.scores(["i love mice", "cats chase"])
    assert both.tokens == first.tokens + second.tokens
    assert both.log_prob == pytest.approx(first.log_prob + second.log_prob)
    assert model.score("").tokens == ("</s>",)
    assert list(model.scores([])) == []


def test_scores_of_many_lines_equal_single_scores(small: Path) -> None:
    for context in ("line", "stream"):
        model = chainrule.train("ngram", small, order=3, smoothing="laplace", context=context, min_count=20)
        lines = [*english(30, seed=4).splitlines(), "", "a zebra", "x" * 500]
        together = [score.log_prob for score in model.scores(lines)]
        if context == "line":
            assert_allclose([model.score(line).log_prob for line in lines], together, rtol=1e-9)
        whole = model.score("\n".join(lines))
        assert whole.log_prob == pytest.approx(math.fsum(together), rel=1e-9)
        figures = model.evaluate(Corpus.from_lines(lines))
        assert figures.nats == pytest.approx(-whole.log_prob, rel=1e-9)
        assert figures.nats_of_spellings == pytest.approx(-whole.log_prob_of_spellings, rel=1e-9)
        assert figures.oov == whole.oov > 0


def test_score_equals_next_probabilities(small: Path) -> None:
    """Each token's log-probability equals the one `next` gives after the preceding words."""
    model = chainrule.train("ngram", small, order=3, smoothing="laplace")
    words = ["the", "cat", "sees", "a", "dog"]
    score = model.score(" ".join(words))
    for place, token in enumerate(score.tokens):
        result = dict(model.next(" ".join(words[:place]), top=1000))
        assert result[token] == pytest.approx(math.exp(score.log_probs[place]), rel=1e-5)


def test_text_in_memory_equals_text_on_disk(small: Path) -> None:
    settings: dict[str, Any] = {"order": 2, "smoothing": "laplace"}
    on_disk = chainrule.train("ngram", small, **settings)
    in_memory = chainrule.train("ngram", Corpus.from_lines(english().splitlines()), **settings)
    assert on_disk.score("the cat") == in_memory.score("the cat")
    assert in_memory.origin.text == "lines in memory"
    assert on_disk.origin.fingerprint is not None
    assert in_memory.origin.fingerprint is not None
    assert on_disk.origin.fingerprint.sha256 == in_memory.origin.fingerprint.sha256


def test_vocabulary_uses_the_training_text_only(small: Path, tmp_path: Path) -> None:
    valid = write(tmp_path / "valid.txt", "a zebra\n")
    model = chainrule.train("ngram", small, valid=valid, order=2, smoothing="laplace")
    assert model.score("zebra").oov == 1
    assert model.metrics["valid_perplexity"] == pytest.approx(model.evaluate(valid).perplexity)


def test_infinite_validation_is_left_out(toy: Path, tmp_path: Path) -> None:
    valid = write(tmp_path / "valid.txt", "i love mice\n")
    model = chainrule.train("ngram", toy, valid=valid, order=3, smoothing="mle")
    assert "valid_perplexity" not in model.metrics
    model.save(tmp_path / "m")  # infinity is not JSON


def test_train_test_overlap_causes_a_warning(tmp_path: Path) -> None:
    text = write(tmp_path / "t.txt", english(400))
    model = chainrule.train("ngram", text, order=2, smoothing="laplace")
    with pytest.warns(ChainruleWarning, match="about 100% of the lines"):
        model.evaluate(text)
    fresh = write(tmp_path / "fresh.txt", "".join(f"line number {i} is unlike all others\n" for i in range(50)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.evaluate(fresh)


def test_default_discounts_cause_a_warning(toy: Path) -> None:
    with pytest.warns(ChainruleWarning, match="discounts cannot be estimated from this text"):
        chainrule.train("ngram", toy, order=1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"ordr": 3}, "did you mean 'order'"),
        ({"order": "many"}, "a whole number"),
        ({"order": 2.5}, "a whole number"),
        ({"order": True}, "a whole number"),
        ({"smoothing": "magic"}, "choose one of"),
        ({"tokenizer": "emoji"}, "or a folder"),
        ({"min_count": 0}, "choose 1 or more"),
    ],
)
def test_invalid_settings_are_rejected(toy: Path, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        chainrule.train("ngram", toy, **settings)


def test_mixtures_and_unknown_families_cannot_be_trained(toy: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be trained on text"):
        chainrule.train("mixture", toy)
    with pytest.raises(ConfigError, match="there is no family 'oracle'; choose one of ngram"):
        chainrule.train("oracle", toy)


def test_train_with_a_saved_tokenizer(toy: Path, small: Path, tmp_path: Path) -> None:
    first = chainrule.train("ngram", toy, order=1, smoothing="laplace")
    first.save(tmp_path / "first")
    second = chainrule.train("ngram", small, order=2, smoothing="laplace", tokenizer=tmp_path / "first")
    assert second.tokenizer.to_json() == first.tokenizer.to_json()
    assert second.score("the").oov == 1  # a word of the second text only
    with pytest.raises(ConfigError, match="a finished tokenizer; min_count cannot be set"):
        resolve_tokenizer(tmp_path / "first", {"min_count": 2})


def test_closed_tokenizer_rejects_unknown_training_words(toy: Path, small: Path, tmp_path: Path) -> None:
    chainrule.train("ngram", toy, order=1, smoothing="laplace", closed=True).save(tmp_path / "closed")
    with pytest.raises(ConfigError, match=r"the tokenizer does not know '(the|a|one)' of the training text"):
        chainrule.train("ngram", small, order=1, smoothing="laplace", tokenizer=tmp_path / "closed")


def test_split_settings_by_tokenizer_and_family() -> None:
    tokenizer, family = split_settings({"min_count": 2, "order": 3, "lowercase": True, "k": 1.0})
    assert tokenizer == {"min_count": 2, "lowercase": True}
    assert family == {"order": 3, "k": 1.0}


def test_mix_requires_two_models_of_one_tokenizer(toy: Path, small: Path, tmp_path: Path) -> None:
    a = chainrule.train("ngram", toy, order=1, smoothing="laplace")
    b = chainrule.train("ngram", small, order=1, smoothing="laplace")
    with pytest.raises(VocabularyError, match="different tokenizers"):
        chainrule.mix([a, b], held_out=toy)
    with pytest.raises(ConfigError, match="two models or more, not 1"):
        chainrule.mix([a], held_out=toy)
    with pytest.raises(InputError, match="held-out text is empty"):
        chainrule.mix([a, a], held_out=write(tmp_path / "empty.txt", ""))


def test_missing_files_raise_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        chainrule.load(tmp_path / "nowhere")
    with pytest.raises(NotFoundError):
        chainrule.train("ngram", tmp_path / "nowhere.txt")


def test_evaluating_an_empty_text_is_rejected(toy: Path) -> None:
    model = chainrule.train("ngram", toy, order=1, smoothing="laplace")
    with pytest.raises(InputError, match="the text is empty"):
        model.evaluate(Corpus.from_lines([]))


def test_stream_yields_pieces_of_the_text(toy: Path) -> None:
    model = chainrule.train("ngram", toy, order=3, smoothing="mle")
    assert "".join(model.stream("cats")) == model.generate("cats").text == " chase mice"
    assert [str(g) for g in model.generate_several("", 2, strategy="greedy")] == ["i love cats"] * 2


def test_validation_text_without_words_is_rejected(toy: Path, tmp_path: Path) -> None:
    for content in ("", "\n\n"):
        valid = write(tmp_path / "valid.txt", content)
        with pytest.raises(InputError, match="the validation text contains no words"):
            chainrule.train("ngram", toy, valid=valid)


def test_recipe_is_applied_and_overridden(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c d\nb c d e\nc d e a\nrare\n" * 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        model = chainrule.train("lstm", text, recipe="small-lstm", epochs=1, hidden=8, device="cpu")
    assert (model.lm.context, model.tokenizer.config.min_count) == ("stream", 2)
    assert (model.config.hidden, model.config.training.batch_size, model.config.training.epochs) == (8, 16, 1)
    with pytest.raises(ConfigError, match="is for family 'lstm', not 'gru'"):
        chainrule.train("gru", text, recipe="small-lstm")


def test_setting_of_another_family_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b c\n")
    with pytest.raises(ConfigError, match="'smoothing' is a setting of ngram, not of lstm"):
        chainrule.train("lstm", tmp_path / "text.txt", smoothing="katz")


@pytest.mark.parametrize("size", [None, "auto"])
@pytest.mark.parametrize("settings", [{"stop_after": 1}, {"schedule": "plateau"}])
def test_missing_validation_text_is_reported_before_any_work(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], size: str | None
) -> None:
    def prepare(*_: object) -> NoReturn:
        raise AssertionError("the text was read")

    monkeypatch.setattr("chainrule.api.prepare_corpus", prepare)
    with pytest.raises(ConfigError, match="needs a validation text: give --valid"):
        chainrule.train("rnn", Corpus.from_lines(["a b"]), size=size, **settings)
