"""Translators on toy pairs: training, saving, resumption, decoding limits and rejected input."""

import copy
import dataclasses
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import chainrule
from chainrule import api
from chainrule.data.training_data import RunOptions
from chainrule.decoding.generate import generate
from chainrule.decoding.settings import Decoding
from chainrule.errors import ChainruleWarning, ConfigError, InputError, ModelFileError, UsageError
from chainrule.neural.encoders import seq2seq
from chainrule.tasks import translate
from chainrule.tasks.translate import BEAM, Translator, source_seed
from tasks.toy_pairs import dates, make_pairs, no_advice, reversed_strings
from training.small_networks import entries
from training.test_resume import send_signal_during_step

TINY: dict[str, Any] = {"hidden": 16, "epochs": 1, "batch_size": 16, "dropout": 0.1}
LEARN: dict[str, Any] = {"hidden": 64, "dropout": 0.0, "batch_size": 32, "label_smoothing": 0.0, "warmup": 50}
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "additive": ("gru", {"attention": "additive", "learning_rate": 5e-3, "epochs": 9}),
    "general": ("lstm", {"attention": "general", "learning_rate": 5e-3, "epochs": 10}),
    "transformer": ("transformer", {"heads": 4, "layers": 2, "learning_rate": 3e-3, "epochs": 10}),
}


@pytest.fixture(scope="module")
def tiny() -> Translator:
    with no_advice():
        quick = TINY | {"epochs": 6, "learning_rate": 1e-2}
        return translate.train("gru", reversed_strings(200), tokenizer="char", **quick)


@pytest.mark.parametrize("system", SYSTEMS)
def test_strings_are_reversed(system: str) -> None:
    family, own = SYSTEMS[system]
    with no_advice():
        translator = translate.train(family, reversed_strings(1600), tokenizer="char", **LEARN, **own)
    unseen = reversed_strings(100, seed=2)
    translations = [candidates[0].text for candidates in translator.translate_all(unseen.sources)]
    assert np.mean([a == b for a, b in zip(translations, unseen.targets, strict=True)]) >= 0.97
    if system == "additive":  # it looks where the character is that it writes next
        alignment = translator.align("abcdef")
        assert alignment.target[:6] == list("fedcba")
        assert (alignment.weights[1:5].argmax(axis=1) == [4, 3, 2, 1]).mean() >= 0.75


def test_dates_become_iso() -> None:
    with no_advice():
        own: dict[str, Any] = {"attention": "additive", "learning_rate": 5e-3, "epochs": 8}
        translator = translate.train("gru", dates(2000), tokenizer="char", **LEARN, **own)
    unseen = dates(100, seed=2)
    report = translator.evaluate(unseen, BEAM)
    assert np.mean([a == b for a, b in zip(report.translations, unseen.targets, strict=True)]) >= 0.97
    assert report.perplexity < 1.1
    assert report.unfinished == 0


def test_conditioned_on_a_source_it_is_a_language_model(tiny: Translator) -> None:
    """`generate` of the decoding folder serves; so does the beam, which `translate` uses."""
    lm = tiny.condition_on("abc")
    greedy = generate(lm, tiny.target, "", Decoding(strategy="greedy", max_tokens=20))[0]
    assert tiny.translate("abc", strategy="greedy", max_tokens=20).tokens == greedy.tokens
    beams = generate(lm, tiny.target, "", dataclasses.replace(BEAM, max_tokens=26), num=3)
    translations = tiny.translate_all(["abc"], dataclasses.replace(BEAM, max_tokens=26), num=3)[0]
    assert [f.tokens for f in translations] == [b.tokens for b in beams]
    assert [f.log_prob for f in translations] == pytest.approx([b.log_prob for b in beams])
    assert translations[0].score == pytest.approx(
        translations[0].log_prob / len(translations[0].tokens)
    )  # length penalty 1


def test_a_forced_target_has_the_log_prob_of_its_tokens(tiny: Translator) -> None:
    best = tiny.translate("abc", strategy="greedy")
    assert best.is_finished
    scores = tiny.score(["abc", "f", "abcdef"], [best.text, "f", "a"])
    assert scores[0] == pytest.approx(best.log_prob, rel=1e-5)
    assert_allclose(tiny.score(["f"], ["f"]), scores[1:2], rtol=1e-5)


def test_samples_follow_the_seed(tiny: Translator) -> None:
    settings = Decoding(strategy="sample", seed=3, max_tokens=10)
    first, again = (tiny.translate_all(["abc"], settings, num=3)[0] for _ in range(2))
    assert [t.text for t in first] == [t.text for t in again]
    assert len(first) == 3


def test_empty_sources_stay_empty_and_order_is_kept(tiny: Translator) -> None:
    sources = ["abc", "", "f", "  ", "abcdef"]
    translations = [t[0] for t in tiny.translate_all(sources)]
    assert [t.source for t in translations] == sources
    assert (translations[1].text, translations[3].text) == ("", "")
    assert translations[0].text == tiny.translate("abc").text


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_save_and_load(tmp_path: Path, family: str, joint: bool) -> None:
    pairs = make_pairs(["ein hund", "eine katze"] * 20, ["a dog", "a cat"] * 20)
    with no_advice():
        translator = translate.train(family, pairs, valid=pairs, tokenizer="word", joint=joint, **TINY)
    translator.save(tmp_path / "model")
    loaded = chainrule.load(tmp_path / "model", device="cpu")
    assert loaded.score(["ein hund"], ["a dog"]) == pytest.approx(translator.score(["ein hund"], ["a dog"]))
    assert loaded.translate("eine katze") == translator.translate("eine katze")
    assert loaded.metrics == translator.metrics
    assert loaded.metrics["valid_perplexity"] > 1
    assert loaded.log == translator.log
    assert (loaded.source.to_json() == loaded.target.to_json()) == joint
    with pytest.raises(ModelFileError, match="use it with chainrule translate predict"):
        api.load(tmp_path / "model", kind="language model")
    with pytest.raises(ConfigError, match="there is no task 'tags'"):
        api.load(tmp_path / "model", kind="tags")


def test_damaged_folder_is_rejected(tmp_path: Path, tiny: Translator) -> None:
    tiny.save(tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"model\.safetensors"):
        api.load(tmp_path / "model", kind="translate")


@pytest.mark.parametrize(
    ("family", "own"),
    [
        ("gru", {"label_smoothing": 0.0}),
        ("lstm", {"label_smoothing": 0.2, "layers": 2, "locked": True}),
        ("transformer", {"heads": 2, "layers": 2}),
    ],
)
def test_resumed_run_equals_uninterrupted_run(tmp_path: Path, family: str, own: dict[str, Any]) -> None:
    settings = TINY | own | {"epochs": 2, "tokenizer": "char", "valid": reversed_strings(20, seed=5)}
    with no_advice():
        complete = translate.train(family, reversed_strings(100), **settings)
        with send_signal_during_step(signal.SIGTERM, 9), pytest.raises(SystemExit):
            translate.train(family, reversed_strings(100), options=RunOptions(out=tmp_path), **settings)
        with pytest.raises(UsageError, match="unfinished run"):
            translate.train(family, reversed_strings(100), options=RunOptions(out=tmp_path), **settings)
        again = translate.train(family, reversed_strings(100), out=tmp_path, resume=True, **settings)
    for name, weight in complete.network.state_dict().items():
        assert (again.network.state_dict()[name] == weight).all(), name
    assert entries(again.log) == entries(complete.log)
    assert entries(complete.log)[-1]["step"] == 14  # two epochs of 100 pairs by 16


def test_too_long_sources_and_targets() -> None:
    pairs = make_pairs(["a b c d e f", "a b"] * 10, ["a", "b"] * 10)
    with (
        pytest.warns(ChainruleWarning, match="10 pairs are longer than 5 tokens and left out"),
        no_advice_but_first(),
    ):
        translator = translate.train("transformer", pairs, tokenizer="word", longest=5, heads=2, **TINY)
    with pytest.raises(InputError, match=r"source 2 has 7 tokens with </s>, but this model reads at most 5"):
        translator.translate_all(["a b", "a b c d e f"])
    for refused in (translator.score, lambda s, t: translator.evaluate(make_pairs(s, t))):
        with pytest.raises(InputError, match=r"target 2 has 7 tokens with </s>, but this model reads at most 5"):
            refused(["a b", "a"], ["a b", "a b c d e f"])
    with pytest.raises(InputError, match="target 1 has 7 tokens"):
        translator.align("a b", "a b c d e f")
    assert len(endless(translator).translate("a b").ids) == 5  # it has no more positions
    with pytest.raises(InputError, match="every pair is longer than 1 tokens"):
        translate.train("gru", pairs, tokenizer="word", longest=1, **TINY)


def no_advice_but_first() -> Any:
    catching = warnings.catch_warnings()
    warnings.filterwarnings("ignore", message="the (loss|gradient|network)")
    return catching


@pytest.mark.parametrize(
    ("settings", "words_"),
    [
        ({"heads": 2}, "heads is not a setting of family 'gru'"),
        ({"atention": "dot"}, "did you mean 'attention'"),
        ({"precision": "bf16", "options": RunOptions(device="cpu")}, "which requires a GPU"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], words_: str) -> None:
    with pytest.raises(ConfigError, match=words_):
        translate.train("gru", reversed_strings(20), tokenizer="char", **settings)


def endless(translator: Translator) -> Translator:
    """The same, but it never ends a translation."""
    network = copy.deepcopy(translator.network)
    with torch.no_grad():
        network.output.bias[translator.target.eos] = -1e6
    return dataclasses.replace(translator, network=network)


def test_maximum_length_of_a_translation(tiny: Translator) -> None:
    """2 · S + 20, `</s>` of the source included; a recurrent net may write more than the longest it has learnt."""
    short = endless(dataclasses.replace(tiny, config=dataclasses.replace(tiny.config, longest=7)))
    for text, length in (("abc", 28), ("abcdef" * 10, 142)):
        translation = short.translate(text)
        assert (len(translation.ids), translation.is_finished) == (length, False)
        assert len(short.translate(text, max_tokens=9).ids) == 9
    sampled = short.translate_all(["abc"], dataclasses.replace(BEAM, strategy="sample", seed=1))
    assert len(sampled[0][0].ids) == 28
    assert short.translate("abc", max_tokens=0).text == ""


@pytest.mark.parametrize("strategy", ["beam", "greedy", "sample"])
def test_a_stop_string_ends_a_translation(tiny: Translator, strategy: Any) -> None:
    settings = dataclasses.replace(BEAM, strategy=strategy, seed=4, max_tokens=28)
    complete = endless(tiny).translate_all(["abcdef"], settings)[0][0]
    sign = complete.text[3:5]
    stopping = dataclasses.replace(settings, stop=(sign,))
    translation = endless(tiny).translate_all(["abcdef"], stopping)[0][0]
    seeded = dataclasses.replace(stopping, seed=source_seed(4, 0))  # of the first source
    lm = endless(tiny).condition_on("abcdef")
    lm.vocabulary = dataclasses.replace(lm.vocabulary, closed=True)  # a translation has no <unk>
    expected = generate(lm, tiny.target, "", seeded)[0]
    assert (translation.text, translation.ids) == (expected.text, expected.ids)
    assert not complete.is_finished
    assert translation.is_finished
    assert "".join(translation.tokens) == translation.text + sign
    if strategy != "beam":  # which may now prefer another one
        assert translation.text == complete.text[: complete.text.index(sign)]


def test_progress_counts_the_pairs_that_are_done(tiny: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seq2seq, "BATCH_SIZE", 8)
    pairs, seen = reversed_strings(20, seed=9), list[tuple[str, int, int | None]]()
    tiny.score(pairs.sources, pairs.targets, lambda *progress_calls: seen.append(progress_calls))
    assert seen == [("scoring", 0, 20), ("scoring", 8, 20), ("scoring", 16, 20)]


def test_without_attention_there_is_no_alignment() -> None:
    with no_advice():
        translator = translate.train("gru", reversed_strings(20), tokenizer="char", attention="none", **TINY)
    for target in (None, "cba"):
        with pytest.raises(ConfigError, match="this model has no attention"):
            translator.align("abc", target)


def test_alignment_of_the_best_translation(tiny: Translator) -> None:
    """Cut off it has no `</s>`; nor has its alignment."""
    cut = endless(tiny)
    assert cut.align("abc").target == cut.translate("abc").tokens
    assert "</s>" not in cut.align("abc").target
    assert tiny.align("abc").target == tiny.translate("abc").tokens
    assert tiny.align("").target == ["</s>"]


def test_max_tokens_above_the_default(tiny: Translator) -> None:
    """2 · 4 + 20 = 28 for abc; what is asked for takes its place."""
    assert [len(endless(tiny).translate("abc", max_tokens=n).ids) for n in (5, 40)] == [5, 40]


@pytest.mark.parametrize(
    ("sources", "targets", "message"),
    [
        (["a", "b"], ["c"], "2 sources but 1 targets; give one target for each source"),
        ([], [], "there are no pairs; give at least one"),
        ("abc", ["c"], "sources is one text; give a list of texts"),
        (["a"], "cba", "targets is one text; give a list of texts"),
    ],
)
def test_invalid_pairs(tiny: Translator, sources: Any, targets: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tiny.score(sources, targets)
    if sources == "abc":
        with pytest.raises(InputError, match=message):
            tiny.translate_all(sources)


def test_scores_of_empty_sides(tiny: Translator) -> None:
    scores = tiny.score(["abc", "", "abc", " "], ["", "abc", "cba", ""])
    assert np.isnan(scores).tolist() == [False, True, False, True]
    first = tiny.condition_on("abc").step(tiny.condition_on("abc").start(1), np.array([tiny.target.bos]))[0]
    assert scores[0] == pytest.approx(first[0, tiny.target.eos], rel=1e-5)  # </s> alone


@pytest.mark.parametrize("family", ["gru", "transformer"])
def test_a_finished_model_is_not_resumed(tmp_path: Path, family: str) -> None:
    with no_advice():
        translate.train(family, reversed_strings(20), tokenizer="char", **TINY).save(tmp_path / "m")
    before = (tmp_path / "m" / "manifest.json").read_bytes()
    with pytest.raises(UsageError, match="m contains a finished model; remove --resume to retrain it"):
        translate.train(family, reversed_strings(20), tokenizer="char", out=tmp_path / "m", resume=True, **TINY)
    assert (tmp_path / "m" / "manifest.json").read_bytes() == before
