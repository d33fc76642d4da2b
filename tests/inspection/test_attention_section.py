"""Attention section: models with and without attention, translators, edge cases."""

import json
import sys
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from chainrule import api
from chainrule.errors import ChainruleWarning, InputError, UsageError
from chainrule.inspection.attention import section, translator_section
from chainrule.inspection.report import Section
from chainrule.inspection.run import inspect
from chainrule.inspection.text_excerpt import Sample, take_sample
from chainrule.model import Model
from chainrule.neural.probes.attention_weights import iter_attention
from chainrule.tasks import translate
from chainrule.tasks.translate import Translator
from chainrule.text.corpus import Corpus
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import TokenizerConfig
from neural.adaptation_models import FAMILIES, make
from neural.small_networks import SENTENCES, words
from tasks.toy_pairs import make_pairs, no_advice, reversed_strings

pytest.importorskip("matplotlib")

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer", {}),
    "gru": ("gru", {}),
    "lstm-state": ("lstm", {"attention": "scaled-dot", "attention_use": "state", "memory": 3}),
    "lstm-additive": ("lstm", {"attention": "additive", "memory": 3}),
}


def sample_of(kind: str, lines: list[str] = SENTENCES, context: Any = "line", tokens: int = 100) -> Sample:
    family, chosen = MODELS.get(kind, (kind, {}))
    tokenizer = words()
    lm = make(family, context, tokenizer.vocabulary, **chosen)
    config = FAMILIES[family][0].Config(**FAMILIES[family][1], **chosen)
    model = Model(lm=lm, tokenizer=tokenizer, family=family, config=config)
    return take_sample(model, Corpus.from_lines(lines), name=f"the <{kind}>", tokens=tokens)


def checked(result: Section | None) -> Section:
    """Check that the section has finite JSON, sentences, and self-contained escaped figures."""
    assert result is not None
    json.dumps(result.data, allow_nan=False)
    for figure in result.figures:
        for text in (figure.drawing, figure.caption):
            assert "<script" not in text
            assert "nan" not in text
            assert "http" not in text.replace("http://www.w3.org/", "")
        assert figure.caption.endswith(".")
    assert len({figure.name for figure in result.figures}) == len(result.figures)
    assert all(finding.endswith(".") and "nan" not in finding for finding in result.sentences)
    assert all(np.isfinite(values).all() for values in result.arrays.values())
    return result


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("kind", MODELS)
def test_attention_section_of_language_models(kind: str, context: str) -> None:
    section_ = checked(section([sample_of(kind, context=context)]))
    name = f"the <{kind}>"
    assert (section_.name, section_.title) == ("attention", "Attention")
    assert all(finding.startswith(f"{name}: ") for finding in section_.sentences)
    data = section_.data[name]
    is_transformer = kind == "transformer"
    assert len(data["heads"]) == (4 if is_transformer else 1)
    assert len(data["scores"]) == (0 if kind == "lstm-additive" else len(data["heads"]))
    names = [figure.name for figure in section_.figures]
    assert ("by distance" in names, f"{name}: maps" in names) == (True, is_transformer)
    assert (f"{name}: score variance" in names) == (kind != "lstm-additive")
    assert "&lt;" in section_[f"{name}: heads"].caption
    assert not any("<transformer>" in figure.caption + figure.drawing for figure in section_.figures)


def test_excerpt_shows_the_extracted_weights() -> None:
    """The longest line of the sample, ten words; a window of 6 contains its beginning."""
    sample = sample_of("transformer")
    section_ = checked(section([sample], excerpt=5))
    lm: Any = sample.model.lm
    parts = [part for part in iter_attention(lm, sample.text) if part.weights.shape[1] >= 5]
    for layer in (0, 1):
        first = next(part for part in parts if part.layer == layer)
        assert_allclose(section_.arrays[f"the <transformer>/layer {layer + 1}/weights"], first.weights[:, :5, :5])
    large = next(figure for figure in section_.figures if "head" in figure.name and "heads" not in figure.name)
    assert ">&lt;s&gt;<" in large.drawing  # a line begins with the token read before its first word
    longest = checked(section([sample], excerpt=32)).arrays["the <transformer>/layer 1/weights"]
    assert longest.shape == (2, 6, 6)


def test_score_deviation_is_scaled_by_the_square_root() -> None:
    section_ = checked(section([sample_of("transformer")]))
    for scores in section_.data["the <transformer>"]["scores"]:
        assert scores["deviation"] == pytest.approx(scores["scaled_deviation"] * np.sqrt(scores["width"]))
        assert scores["by_width"][-1] == pytest.approx(scores["visible"])
    assert any(
        "with division by √d and" in finding and "in the median head, d = 4" in finding
        for finding in section_.sentences
    )
    dot = checked(section([sample_of("gru")]))
    assert any("this model does not divide by √d" in finding for finding in dot.sentences)
    scaled = checked(section([sample_of("lstm-state")]))
    assert not any("does not divide" in finding for finding in scaled.sentences)


def test_several_models_share_one_axis() -> None:
    """Models without attention are left out."""
    samples = [sample_of(kind) for kind in ("transformer", "feedforward", "gru")]
    section_ = checked(section(samples))
    assert list(section_.data) == ["the <transformer>", "the <gru>"]
    assert "the &lt;gru&gt;" in section_["by distance"].drawing
    assert len([figure for figure in section_.figures if figure.name == "by distance"]) == 1


def test_models_without_attention_have_no_section() -> None:
    assert section([sample_of("lstm"), sample_of("feedforward")]) is None
    ngram = api.train("ngram", Corpus.from_lines(SENTENCES), order=2, smoothing="witten-bell")
    assert section([take_sample(ngram, Corpus.from_lines(SENTENCES), name="ngram", tokens=9)]) is None
    assert section([]) is None


def test_ngram_attention_section_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    ngram = api.train("ngram", Corpus.from_lines(SENTENCES), order=1, smoothing="witten-bell")
    sample = take_sample(ngram, Corpus.from_lines(SENTENCES), name="ngram", tokens=9)
    monkeypatch.setitem(sys.modules, "chainrule.neural.probes.attention_weights", None)
    assert section([sample]) is None


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("lines", [[""], ["river"], ["unknown مرحبا <b> \x07"], ["the bank " * 40]])
def test_attention_section_of_unusual_texts(kind: str, lines: list[str]) -> None:
    checked(section([sample_of(kind, lines)]))
    checked(section([sample_of(kind, lines, tokens=1)], excerpt=1))


@pytest.mark.parametrize("chosen", [{"heads": 1, "hidden": 2, "layers": 1}, {"heads": 2, "hidden": 2, "layers": 1}])
def test_attention_section_of_the_narrowest_transformer(chosen: dict[str, Any]) -> None:
    """Heads of one dimension, byte tokens, a window of one token."""
    from chainrule.neural import transformer
    from chainrule.neural.model import NeuralModel

    tokenizer = tokenizer_training.train(Corpus.from_lines(["añ"]), TokenizerConfig(kind="byte"))
    for window in (1, 8):
        config = transformer.Config(**chosen, window=window, positions="learned")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            network = transformer.build(config, tokenizer.vocabulary, None)
        lm = NeuralModel(network, tokenizer.vocabulary, "stream")
        model = Model(lm=lm, tokenizer=tokenizer, family="transformer", config=config)
        checked(section([take_sample(model, Corpus.from_lines(["añ日 \x00"]), name="narrow", tokens=50)]))


def test_attention_section_reports_progress_to_the_end() -> None:
    calls: list[tuple[int, int | None]] = []
    section([sample_of("transformer")], progress=lambda what, done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1]


@pytest.fixture(scope="module")
def translators() -> dict[str, Translator]:
    tiny: dict[str, Any] = {"hidden": 16, "epochs": 1, "batch_size": 16, "tokenizer": "char"}
    data = reversed_strings(60)
    with no_advice():
        return {
            "additive": translate.train("gru", data, **tiny),
            "general": translate.train("lstm", data, attention="general", **tiny),
            "none": translate.train("gru", data, attention="none", **tiny),
            "transformer": translate.train("transformer", data, heads=2, layers=2, longest=8, **tiny),
        }


@pytest.mark.parametrize("kind", ["additive", "general", "transformer"])
def test_attention_section_of_translators(translators: dict[str, Translator], kind: str) -> None:
    model, pairs = translators[kind], reversed_strings(6, seed=3)
    section_ = checked(translator_section(model, pairs))
    assert section_.data["pairs"] == 6
    first = model.align(pairs.sources[0], pairs.targets[0])
    assert_allclose(section_.arrays["pair 1/weights"], first.by_head)
    names = [figure.name for figure in section_.figures]
    assert names[:4] == [f"alignment {i}" for i in range(1, 5)]
    assert ("encoder" in names, "self" in names) == (kind == "transformer",) * 2
    assert len(section_.data["across"]) == (4 if kind == "transformer" else 1)
    assert bool(section_.data["scores"]) == (kind != "additive")
    assert "cost" in names
    assert section_.sentences[0].startswith("On average a target token puts")


@pytest.mark.parametrize("kind", ["additive", "general", "transformer"])
def test_every_translated_pair_is_read_once(
    translators: dict[str, Translator], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, read = type(translators[kind].network), list[int]()
    align = network.align

    def recorded_align(self: Any, ids: Any, state: Any) -> Any:
        read.append(ids.shape[1])
        return align(self, ids, state)

    monkeypatch.setattr(network, "align", recorded_align)
    translator_section(translators[kind], [("ab", "ba"), ("abc", "cba")])
    assert read == [3, 4]  # the targets with their </s>


def test_inspection_reports_the_number_of_pairs_read(translators: dict[str, Translator]) -> None:
    inspection = inspect(translators["additive"], reversed_strings(70, seed=3))
    assert inspection.subjects[0].looked_at == "64 of 70 pairs"
    with pytest.warns(ChainruleWarning, match="1 of the first 2 pairs"):
        inspection = inspect(translators["transformer"], make_pairs(["ab", "abcdefabcdef"], ["ba", "fedcbafedcba"]))
    assert inspection.subjects[0].looked_at == "1 of 2 pairs"
    with pytest.raises(UsageError, match="has no attention"):
        inspect(translators["none"], make_pairs(["ab"], ["ba"]))


def test_translator_section_accepts_tuples(translators: dict[str, Translator]) -> None:
    section_ = checked(translator_section(translators["additive"], [("ab<", "ba")]))
    assert section_.data["pairs"] == 1
    assert "ab<" not in section_["alignment 1"].caption
    # At most five source tokens and four target tokens: no distance from the diagonal exceeds the source.
    assert 0 <= section_.data["across"][0]["diagonal"] <= 5


def test_translator_without_attention_has_no_section(translators: dict[str, Translator]) -> None:
    assert translator_section(translators["none"], [("ab", "ba")]) is None


def test_pairs_that_are_too_long_are_skipped(translators: dict[str, Translator]) -> None:
    """The Transformer reads 8 tokens including `</s>`."""
    model = translators["transformer"]
    with pytest.warns(
        ChainruleWarning,
        match="1 of the first 2 pairs cannot be encoded and are skipped: source 2 has 13 tokens with </s>, but",
    ):
        section_ = checked(translator_section(model, make_pairs(["ab", "abcdefabcdef"], ["ba", "fedcbafedcba"])))
    assert section_.data["pairs"] == 1
    with pytest.raises(InputError, match="this model reads at most 8"):
        translator_section(model, [("abcdefabcdef", "a")])
    with pytest.raises(InputError, match="there are no pairs"):
        translator_section(model, [])


def test_attention_section_of_an_empty_pair(translators: dict[str, Translator]) -> None:
    for kind in ("additive", "transformer"):
        checked(translator_section(translators[kind], [("", "")]))
