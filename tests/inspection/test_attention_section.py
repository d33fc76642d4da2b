"""The attention section: what it says of models with attention, of others, of a translator, on odd input."""

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
from chainrule.inspection.sample import Sample, take_sample
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


def checked(found: Section | None) -> Section:
    """Whatever it found: finite JSON, sentences, nothing that breaks out of the page or needs another."""
    assert found is not None
    json.dumps(found.data, allow_nan=False)
    for figure in found.figures:
        for text in (figure.drawing, figure.caption):
            assert "<script" not in text
            assert "nan" not in text
            assert "http" not in text.replace("http://www.w3.org/", "")
        assert figure.caption.endswith(".")
    assert len({figure.name for figure in found.figures}) == len(found.figures)
    assert all(finding.endswith(".") and "nan" not in finding for finding in found.sentences)
    assert all(np.isfinite(values).all() for values in found.arrays.values())
    return found


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("kind", MODELS)
def test_models_with_attention(kind: str, context: str) -> None:
    found = checked(section([sample_of(kind, context=context)]))
    name = f"the <{kind}>"
    assert (found.name, found.title) == ("attention", "Attention")
    assert all(finding.startswith(f"{name}: ") for finding in found.sentences)
    data = found.data[name]
    is_transformer = kind == "transformer"
    assert len(data["heads"]) == (4 if is_transformer else 1)
    assert len(data["scores"]) == (0 if kind == "lstm-additive" else len(data["heads"]))
    names = [figure.name for figure in found.figures]
    assert ("by distance" in names, f"{name}: maps" in names) == (True, is_transformer)
    assert (f"{name}: score variance" in names) == (kind != "lstm-additive")
    assert "&lt;" in found[f"{name}: heads"].caption
    assert not any("<transformer>" in figure.caption + figure.drawing for figure in found.figures)


def test_the_excerpt_is_where_the_model_looked() -> None:
    """The longest line of the sample, ten words; a window of 6 holds its beginning."""
    sample = sample_of("transformer")
    found = checked(section([sample], excerpt=5))
    lm: Any = sample.model.lm
    parts = [part for part in iter_attention(lm, sample.text) if part.weights.shape[1] >= 5]
    for layer in (0, 1):
        first = next(part for part in parts if part.layer == layer)
        assert_allclose(found.arrays[f"the <transformer>/layer {layer + 1}/weights"], first.weights[:, :5, :5])
    large = next(figure for figure in found.figures if "head" in figure.name and "heads" not in figure.name)
    assert ">&lt;s&gt;<" in large.drawing  # a line begins with what is read before its first word
    longest = checked(section([sample], excerpt=32)).arrays["the <transformer>/layer 1/weights"]
    assert longest.shape == (2, 6, 6)


def test_scores_say_what_the_square_root_does() -> None:
    found = checked(section([sample_of("transformer")]))
    for each in found.data["the <transformer>"]["scores"]:
        assert each["deviation"] == pytest.approx(each["scaled_deviation"] * np.sqrt(each["width"]))
        assert each["by_width"][-1] == pytest.approx(each["visible"])
    assert any(
        "with division by √d and" in finding and "in the median head, d = 4" in finding
        for finding in found.sentences
    )
    dot = checked(section([sample_of("gru")]))
    assert any("this model does not divide by √d" in finding for finding in dot.sentences)
    scaled = checked(section([sample_of("lstm-state")]))
    assert not any("does not divide" in finding for finding in scaled.sentences)


def test_several_models_share_one_axis() -> None:
    """Those without attention are left out."""
    samples = [sample_of(kind) for kind in ("transformer", "feedforward", "gru")]
    found = checked(section(samples))
    assert list(found.data) == ["the <transformer>", "the <gru>"]
    assert "the &lt;gru&gt;" in found["by distance"].drawing
    assert len([figure for figure in found.figures if figure.name == "by distance"]) == 1


def test_models_without_attention_have_nothing_to_say() -> None:
    assert section([sample_of("lstm"), sample_of("feedforward")]) is None
    ngram = api.train("ngram", Corpus.from_lines(SENTENCES), order=2, smoothing="witten-bell")
    assert section([take_sample(ngram, Corpus.from_lines(SENTENCES), name="ngram", tokens=9)]) is None
    assert section([]) is None


def test_an_ngram_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    ngram = api.train("ngram", Corpus.from_lines(SENTENCES), order=1, smoothing="witten-bell")
    sample = take_sample(ngram, Corpus.from_lines(SENTENCES), name="ngram", tokens=9)
    monkeypatch.setitem(sys.modules, "chainrule.neural.probes.attention_weights", None)
    assert section([sample]) is None


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("lines", [[""], ["river"], ["unknown مرحبا <b> \x07"], ["the bank " * 40]])
def test_odd_texts(kind: str, lines: list[str]) -> None:
    checked(section([sample_of(kind, lines)]))
    checked(section([sample_of(kind, lines, tokens=1)], excerpt=1))


@pytest.mark.parametrize("chosen", [{"heads": 1, "hidden": 2, "layers": 1}, {"heads": 2, "hidden": 2, "layers": 1}])
def test_the_narrowest_transformer(chosen: dict[str, Any]) -> None:
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


def test_progress_reaches_its_end() -> None:
    told: list[tuple[int, int | None]] = []
    section([sample_of("transformer")], progress=lambda what, done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1]


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
def test_a_translator(translators: dict[str, Translator], kind: str) -> None:
    model, pairs = translators[kind], reversed_strings(6, seed=3)
    found = checked(translator_section(model, pairs))
    assert found.data["pairs"] == 6
    first = model.align(pairs.sources[0], pairs.targets[0])
    assert_allclose(found.arrays["pair 1/weights"], first.by_head)
    names = [figure.name for figure in found.figures]
    assert names[:4] == [f"alignment {i}" for i in range(1, 5)]
    assert ("encoder" in names, "self" in names) == (kind == "transformer",) * 2
    assert len(found.data["across"]) == (4 if kind == "transformer" else 1)
    assert bool(found.data["scores"]) == (kind != "additive")
    assert "cost" in names
    assert found.sentences[0].startswith("On average a target token puts")


@pytest.mark.parametrize("kind", ["additive", "general", "transformer"])
def test_every_pair_is_read_once(
    translators: dict[str, Translator], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, read = type(translators[kind].network), list[int]()
    align = network.align

    def counted(self: Any, ids: Any, state: Any) -> Any:
        read.append(ids.shape[1])
        return align(self, ids, state)

    monkeypatch.setattr(network, "align", counted)
    translator_section(translators[kind], [("ab", "ba"), ("abc", "cba")])
    assert read == [3, 4]  # the targets with their </s>


def test_all_that_was_counted_is_told(translators: dict[str, Translator]) -> None:
    found = inspect(translators["additive"], reversed_strings(70, seed=3))
    assert found.subjects[0].looked_at == "64 of 70 pairs"
    with pytest.warns(ChainruleWarning, match="1 of the first 2 pairs"):
        found = inspect(translators["transformer"], make_pairs(["ab", "abcdefabcdef"], ["ba", "fedcbafedcba"]))
    assert found.subjects[0].looked_at == "1 of 2 pairs"
    with pytest.raises(UsageError, match="has no attention"):
        inspect(translators["none"], make_pairs(["ab"], ["ba"]))


def test_pairs_can_be_given_as_they_are(translators: dict[str, Translator]) -> None:
    found = checked(translator_section(translators["additive"], [("ab<", "ba")]))
    assert found.data["pairs"] == 1
    assert "ab<" not in found["alignment 1"].caption
    # Five tokens of the source at most, four of the target: nothing is farther from the diagonal than the source.
    assert 0 <= found.data["across"][0]["diagonal"] <= 5


def test_without_attention_there_is_no_section(translators: dict[str, Translator]) -> None:
    assert translator_section(translators["none"], [("ab", "ba")]) is None


def test_pairs_that_cannot_be_read_are_left_out(translators: dict[str, Translator]) -> None:
    """The Transformer reads 8 tokens, `</s>` among them."""
    model = translators["transformer"]
    with pytest.warns(
        ChainruleWarning,
        match="1 of the first 2 pairs cannot be encoded and are skipped: source 2 has 13 tokens with </s>, but",
    ):
        found = checked(translator_section(model, make_pairs(["ab", "abcdefabcdef"], ["ba", "fedcbafedcba"])))
    assert found.data["pairs"] == 1
    with pytest.raises(InputError, match="this model reads at most 8"):
        translator_section(model, [("abcdefabcdef", "a")])
    with pytest.raises(InputError, match="there are no pairs"):
        translator_section(model, [])


def test_an_empty_pair(translators: dict[str, Translator]) -> None:
    for kind in ("additive", "transformer"):
        checked(translator_section(translators[kind], [("", "")]))
