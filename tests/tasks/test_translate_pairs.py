"""Translation scores, sampling seeds and decoding settings."""

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from chainrule.data.training_data import RunOptions
from chainrule.decoding.generate import generate
from chainrule.decoding.settings import Decoding
from chainrule.errors import ChainruleWarning, ConfigError
from chainrule.tasks import translate
from chainrule.tasks.run_setup import make_tokenizer
from chainrule.tasks.translate import (
    BEAM,
    Translation,
    Translator,
    override_decoding,
    rank_translations,
    source_seed,
)
from chainrule.text.parallel import SentencePairs
from tasks.toy_pairs import no_advice, reversed_strings


@pytest.fixture(scope="module")
def tiny() -> Translator:
    with no_advice():
        quick: dict[str, Any] = {"hidden": 16, "epochs": 4, "batch_size": 16, "learning_rate": 1e-2}
        return translate.train("gru", reversed_strings(200), tokenizer="char", **quick)


def test_source_seed() -> None:
    seeds = {source_seed(seed, number) for seed in range(4) for number in range(50)}
    assert len(seeds) == 200
    assert source_seed(3, 7) == source_seed(3, 7)
    assert source_seed(None, 7) is None


def test_finished_translations_rank_first() -> None:
    """Scores −1 / 2, −3 / 2, −0.5 / 1 with p = 1; the third was cut off."""
    candidates = [
        Translation("s", text, [0] * len(log_probs), [], log_probs, 1.0, is_finished)
        for text, log_probs, is_finished in (
            ("c", [-0.5], False),
            ("b", [-1.0, -2.0], True),
            ("a", [-0.5, -0.5], True),
        )
    ]
    assert [(t.text, t.score) for t in rank_translations(candidates)] == [
        ("a", -0.5),
        ("b", -1.5),
        ("c", -0.5),
    ]
    assert Translation("", "", [], [], [], 1.0, True).score == 0


def test_equal_sources_get_different_reproducible_samples(tiny: Translator) -> None:
    settings = dataclasses.replace(BEAM, strategy="sample", seed=3, temperature=2.0)
    sources = ["abcdef"] * 6
    first, again = ([t[0].ids for t in tiny.translate_all(sources, settings)] for _ in range(2))
    assert first == again
    assert len({tuple(ids) for ids in first}) > 1
    # What stands beside a source, and how many samples it is given, changes nothing.
    mixed = tiny.translate_all(["f", "abcdef", "abc"], settings, num=2)
    assert mixed[1][0].ids == first[1]


@pytest.mark.parametrize("strategy", ["beam", "sample"])
@pytest.mark.parametrize("p", [0.0, 1.0, 0.6])
def test_a_score_is_log_p_over_length(tiny: Translator, strategy: Any, p: float) -> None:
    settings = dataclasses.replace(BEAM, strategy=strategy, length_penalty=p, seed=1)
    for result in tiny.translate_all(["abcd"], settings, num=3)[0]:
        assert result.log_prob == pytest.approx(sum(result.log_probs))
        assert result.score == pytest.approx(sum(result.log_probs) / len(result.ids) ** p)


def in_favour(translator: Translator, token: int) -> Translator:
    """The same, but this token is likely everywhere."""
    network = copy.deepcopy(translator.network)
    with torch.no_grad():
        network.output.bias[token] += 20
    return dataclasses.replace(translator, network=network)


@pytest.mark.parametrize("strategy", ["beam", "greedy", "sample"])
def test_unk_is_never_generated(tiny: Translator, strategy: Any) -> None:
    unk = tiny.target.unk
    assert unk is not None
    fond = in_favour(tiny, unk)
    lm = fond.condition_on("abc")  # the model itself stays as it is: it would write nothing else
    assert generate(lm, tiny.target, "", Decoding(strategy="greedy", max_tokens=3, unk="keep"))[0].ids == [unk] * 3
    result = fond.translate_all(["abc", "fed"], dataclasses.replace(BEAM, strategy=strategy, seed=1))
    assert all(unk not in best.ids and best.ids for (best,) in result)
    # Scoring does not forbid it: each token's own log p is what the model says, with <unk> among the choices.
    best = result[0][0]
    assert max(best.log_probs) < -5
    if best.is_finished:
        assert fond.score(["abc"], [best.text])[0] == pytest.approx(best.log_prob, rel=1e-4)


def test_named_settings_override_decoding() -> None:
    result = override_decoding(BEAM, {"beam_size": 2, "max_tokens": 7}, num=2)
    assert result == Decoding(strategy="beam", beam_size=2, length_penalty=1.0, max_tokens=7)
    assert override_decoding(Decoding(strategy="beam"), {}).length_penalty == 0  # a whole one is taken as it is
    with pytest.raises(ConfigError, match="num is 3, but greedy gives one translation; use beam or sample"):
        override_decoding(BEAM, {"strategy": "greedy"}, num=3)
    with pytest.raises(ConfigError, match="decoding has no setting 'beams'"):
        override_decoding(BEAM, {"beams": 3})


def test_lists_and_reports_take_the_same_names_as_one_source(tiny: Translator) -> None:
    pairs = reversed_strings(1)
    settings: list[dict[str, Any]] = [{"length_penalty": 0.0, "max_tokens": 3}, {"strategy": "sample", "seed": 4}]
    for chosen in settings:
        result = tiny.translate(pairs.sources[0], **chosen)
        assert tiny.translate_all(pairs.sources, **chosen) == [[result]]
        with no_advice():
            assert tiny.evaluate(SentencePairs(pairs.sources, pairs.targets), **chosen).translations == [
                result.text
            ]
    assert len(tiny.translate_all(["abc"], max_tokens=3)[0][0].ids) <= 3


def test_vocabulary_without_words_gives_a_warning() -> None:
    with pytest.warns(ChainruleWarning, match="the vocabulary is <unk> alone.*; lower min_count, 9 now"):
        make_tokenizer(["a b", "a c"], "word", {"min_count": 9})
    make_tokenizer(["a b", "a c"], "word", {"min_count": 2})


def test_run_options_are_checked_first(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seed is -1; choose 0 or more"):
        RunOptions.merge(None, {"seed": -1})
    messages: list[str] = []
    RunOptions(announce=messages.append, out=tmp_path, resume=True).check_output()
    assert messages == [f"nothing to resume in {tmp_path}; starting from the beginning"]
    (tmp_path / "checkpoint").mkdir()
    RunOptions(announce=messages.append, out=tmp_path, resume=True).check_output()
    assert len(messages) == 1
