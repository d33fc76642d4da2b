"""Translation reports: figures by hand, skipped pairs and comparison of systems."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chainrule.errors import ChainruleWarning, InputError, UsageError
from chainrule.evaluation.translation import bleu
from chainrule.lm import Floats
from chainrule.tasks import translate
from chainrule.tasks.translate import BEAM, Translation, Translator, count_words
from chainrule.text.parallel import read_pairs
from tasks.toy_pairs import make_pairs, no_advice, reversed_strings

evaluate: Any = Translator.evaluate  # also called with `Told`
LONG = ["the old dog sees a cat", "a cat sees the old dog", "one bird sings in the tree"]


@pytest.fixture(scope="module")
def tiny() -> Translator:
    with no_advice():
        return translate.train("gru", reversed_strings(40), tokenizer="char", hidden=8, epochs=1)


class Told:
    """A translator that says what it is told to; each target token costs one nat."""

    def __init__(self, tiny: Translator, answers: dict[str, str]) -> None:
        self.target, self.answers = tiny.target, answers
        self.asked: list[str] = []

    def translate_all(self, sources: Sequence[str], *_: Any, **__: Any) -> list[list[Translation]]:
        self.asked += sources
        return [[Translation(text, self.answers[text], [], [], [], 1.0, True)] for text in sources]

    def score(self, sources: Sequence[str], targets: Sequence[str], *_: Any) -> Floats:
        return np.array([-(len(self.target.encode(text)) + 1.0) for text in targets])


def told(tiny: Translator, *answers: str) -> Any:
    return Told(tiny, {f"s{i}": answer for i, answer in enumerate(answers)})


def sources(number: int) -> list[str]:
    return [f"s{i}" for i in range(number)]


def test_words_by_hand() -> None:
    assert count_words("Ein Mann, 3 Hunde.") == 6


def test_exact_matches_by_hand(tiny: Translator) -> None:
    report = evaluate(
        told(tiny, LONG[0], LONG[1].replace("cat ", "cat  "), "a bird in one old tree"),
        make_pairs(sources(3), LONG),
    )
    assert report.exact_match == pytest.approx(2 / 3)  # blanks do not count
    assert report.nats_per_token == pytest.approx(1)
    document = report.as_json()
    assert (document["exact_match"], document["sentences"], document["left_out"]) == (pytest.approx(2 / 3), 3, 0)
    assert document["bleu"] == report.bleu.score


@pytest.mark.parametrize(
    ("answers", "targets", "which"),
    [
        (["a cat", "dog"], ["a cat", "the dog"], "but the translations and the targets are shorter"),
        (LONG[:2], ["a cat", "the dog"], "but the targets are shorter"),
        (["a cat", "the dog"], LONG[:2], "but the translations are shorter"),
    ],
)
def test_targets_too_short_for_bleu(tiny: Translator, answers: list[str], targets: list[str], which: str) -> None:
    with pytest.warns(ChainruleWarning, match=f"{which}; use the exact matches") as caught:
        report = evaluate(told(tiny, *answers), make_pairs(sources(2), targets))
    assert [warning.filename for warning in caught] == [__file__]
    assert report.exact_match == (0.5 if len(which) > 45 else 0)


def test_pairs_with_an_empty_side_are_skipped(tiny: Translator) -> None:
    """Lines 2 and 4; another system has a text for each line, or for each pair that is left."""
    pairs = make_pairs(["s0", "", "s1", "s2"], [LONG[0], LONG[1], LONG[2], " "])
    translator = told(tiny, LONG[0], LONG[1], LONG[2])
    other = [LONG[1], "never seen", LONG[2], "never seen"]
    report = evaluate(translator, pairs, other=other)
    assert translator.asked == ["s0", "s1"]
    assert (report.left_out, report.numbers, report.translations) == (2, (1, 3), [LONG[0], LONG[1]])
    assert report.by_line == [LONG[0], "", LONG[1], ""]
    assert report.against is not None
    assert report.against.b == pytest.approx(bleu([LONG[1], LONG[2]], [LONG[0], LONG[2]]).score)
    assert report.against == evaluate(translator, pairs, other=[LONG[1], LONG[2]]).against
    with pytest.raises(InputError, match="none of 1 pairs has text on both sides"):
        evaluate(translator, make_pairs(["s0"], [""]))


def test_the_same_from_a_file(tiny: Translator, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text(f"s0\t{LONG[0]}\n\t{LONG[1]}\ns1\t{LONG[2]}\n")
    with pytest.warns(ChainruleWarning, match="1 of 3 pairs have an empty side"):
        pairs = read_pairs(tmp_path / "x.tsv")
    report = evaluate(told(tiny, LONG[0], LONG[2]), pairs, other=[LONG[0], "", LONG[2]])
    assert report.by_line == [LONG[0], "", LONG[2]]
    assert report.against is not None
    assert (report.against.a, report.against.b) == pytest.approx((100, 100))


def test_other_system_is_checked_first(tiny: Translator) -> None:
    translator, pairs = told(tiny, *LONG), make_pairs(sources(3), LONG)
    with pytest.raises(InputError, match="other has 2 texts but toy has 3 pairs"):
        evaluate(translator, pairs, other=LONG[:2])
    with pytest.raises(UsageError, match="one text was given"):
        evaluate(translator, pairs, other="abc")
    assert translator.asked == []


def test_against_another_system(tiny: Translator) -> None:
    strings = reversed_strings(30, seed=7)
    pairs = make_pairs(list(strings.sources), [f"the word {text} turned round" for text in strings.targets])
    with pytest.warns(ChainruleWarning, match="translations are shorter"):
        report = evaluate(tiny, pairs, BEAM, other=list(pairs.targets))
    assert report.against is not None
    assert report.against.difference == pytest.approx(report.bleu.score - 100)
    assert report.against.high < 0
    result = report.as_json()["bleu_minus_other"]
    assert (result["other_bleu"], result["resamples"], result["is_two_sided"]) == (pytest.approx(100), 1000, True)
    assert sum(b["sentences"] for b in report.as_json()["by_source_words"]) == 30


def test_evaluate_method(tiny: Translator, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("abc\tcba\nfed\tdef\n")
    files = [tmp_path / "x.src", tmp_path / "x.tgt"]
    files[0].write_text("abc\nfed\n")
    files[1].write_text("cba\ndef\n")
    settings = replace(BEAM, strategy="sample", seed=5)
    with pytest.warns(ChainruleWarning, match="use the exact matches"):
        reports = [tiny.evaluate(pairs, settings) for pairs in (tmp_path / "x.tsv", files, read_pairs(files))] + [
            evaluate(tiny, read_pairs(files), settings)
        ]
    assert len({replace(report, seconds=0.0).perplexity for report in reports}) == 1
    assert all(report.translations == reports[0].translations for report in reports)
