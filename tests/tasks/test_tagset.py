"""Tag sets and scheme conversion, gold tags, and a report worked by hand."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.evaluation import tagging
from chainrule.tasks.tag import TagSet, bilou_to_bioes, evaluate_tags
from chainrule.text.conll import TaggedSentence, read_tagged


def tagged(*sentences: str) -> list[TaggedSentence]:
    """Sentences of these tags; what the words are makes no difference here."""
    return [TaggedSentence(tuple("w" * len(s.split())), tuple(s.split())) for s in sentences]


IOB1 = tagged("I-PER I-PER O I-LOC", "O O", "I-LOC B-LOC")


def test_spans_are_learnt_in_bioes() -> None:
    tag_set = TagSet.of(IOB1, "auto", "x")
    assert (tag_set.scheme, tag_set.model_scheme) == ("iob1", "bioes")
    # B-PER E-PER O S-LOC / O O / S-LOC S-LOC: O and S-LOC three times each, by name among equals
    assert tag_set.names == ("O", "S-LOC", "B-PER", "E-PER")
    assert [row.tolist() for row in tag_set.encode(IOB1)] == [[2, 3, 0, 1], [0, 0], [1, 1]]
    assert [tag_set.decode(row) for row in tag_set.encode(IOB1)] == [list(s.tags) for s in IOB1]


def test_requested_schemes() -> None:
    kept, plain = TagSet.of(IOB1, "keep", "x"), TagSet.of(IOB1, "iob2", "x")
    assert (kept.scheme, kept.model_scheme) == ("iob1", "iob1")
    assert set(kept.names) == {"O", "I-PER", "I-LOC", "B-LOC"}
    assert (plain.scheme, plain.model_scheme) == ("iob1", "iob2")
    assert set(plain.names) == {"O", "B-PER", "I-PER", "B-LOC"}
    for tag_set in (kept, plain):
        assert [tag_set.decode(row) for row in tag_set.encode(IOB1)] == [list(s.tags) for s in IOB1]


def test_tags_without_spans() -> None:
    tag_set = TagSet.of(tagged("DET NOUN VERB", "NOUN"), "auto", "x")
    assert tag_set == TagSet(("NOUN", "DET", "VERB"), None, None)
    assert tag_set.allowed is None
    assert tag_set.decode(np.array([1, 0])) == ["DET", "NOUN"]
    with pytest.raises(ConfigError, match=r"model\.scheme is 'bioes', but the tags of x follow no span scheme"):
        TagSet.of(tagged("DET NOUN VERB"), "bioes", "x")


def test_is_known() -> None:
    """Of spans in any scheme, by their labels; that most words are outside of spans is true of all spans."""
    names = TagSet.of(IOB1, "auto", "x")
    assert all(map(names.is_known, ({"O"}, {"I-PER", "O"}, {"U-LOC", "B-ORG"})))
    assert not any(map(names.is_known, ({"NN", "DT"}, {"O", "I-NP"}, {"PER"})))
    words = TagSet.of(tagged("DET NOUN"), "auto", "x")
    assert words.is_known({"NOUN", "X"})
    assert not words.is_known({"O", "I-PER"})


def test_bilou_is_read_as_bioes() -> None:
    """L ends a span of several words and U is a span of one: E and S by other letters."""
    data = bilou_to_bioes(tagged("B-PER I-PER L-PER O", "U-LOC O"))
    assert [s.tags for s in data] == [("B-PER", "I-PER", "E-PER", "O"), ("S-LOC", "O")]
    assert TagSet.of(data, "auto", "x").scheme == "bioes"
    for other in (IOB1, tagged("O O"), tagged("U-LOC S-LOC"), tagged("L U"), tagged("UH LS O")):
        assert bilou_to_bioes(other) is other  # no L or U, two schemes mixed, or no spans


@pytest.mark.parametrize(
    ("tags", "like", "odd"),
    [
        ("B-PER M-PER E-PER O", "B-PER", "M-PER"),
        ("B-PER I-PER O ORG", "B-PER", "ORG"),
        ("B-LOC E-LOC U-LOC O", "B-LOC", "U-LOC"),
    ],
)
def test_unknown_span_schemes_give_a_warning(tags: str, like: str, odd: str) -> None:
    with pytest.warns(ChainruleWarning, match=f"x: tags such as '{like}' look like spans, but '{odd}' fits none"):
        assert TagSet.of(tagged(tags), "auto", "x").scheme is None


def test_plain_tags_with_hyphens() -> None:
    assert TagSet.of(tagged("N-msn V-p -LRB- NN-HL"), "auto", "x").scheme is None  # pytest refuses any warning


def test_ill_formed_gold_tags_are_repaired() -> None:
    """The second B-PER of IOB1 follows no span: every tag is learnt as BIOES allows."""
    data = tagged("I-PER O B-PER", "I-PER O I-PER", "I-PER O", "I-PER B-PER")
    tag_set = TagSet.of(data, "auto", "x")
    assert tag_set.scheme == "iob1"
    assert tag_set.allowed is not None
    follows, starts, ends = tag_set.allowed
    for row in tag_set.encode(data):
        assert starts[row[0]]
        assert ends[row[-1]]
        assert all(follows[i, j] for i, j in pairwise(row.tolist()))


def test_ill_formed_predictions_are_repaired() -> None:
    """Without a chain anything may be found: E after O is a span of its own, in the file's scheme."""
    tag_set = TagSet(("O", "B-PER", "I-PER", "E-PER"), "iob2", "bioes")
    assert tag_set.decode(np.array([0, 3, 0, 2, 3])) == ["O", "B-PER", "O", "B-PER", "I-PER"]


def test_gold_in_another_scheme_is_converted() -> None:
    tag_set = TagSet.of(IOB1, "auto", "x")
    assert tag_set.gold(tagged("B-PER E-PER O S-LOC"), "y") == [["I-PER", "I-PER", "O", "I-LOC"]]
    assert tag_set.gold(tagged("B-PER I-PER B-PER"), "y") == [["I-PER", "I-PER", "B-PER"]]
    assert tag_set.gold(tagged("O O"), "y") == [("O", "O")]


def test_unknown_gold_tags_give_one_warning() -> None:
    tag_set = TagSet.of(IOB1, "auto", "x")
    with pytest.warns(ChainruleWarning, match="y: not in the training data: ORG; such tags count") as message:
        assert tag_set.gold(tagged("I-ORG O", "I-ORG I-LOC"), "y") == [("I-ORG", "O"), ("I-ORG", "I-LOC")]
    assert len(message) == 1
    plain = TagSet.of(tagged("A B2"), "auto", "x")
    with pytest.warns(ChainruleWarning, match="y: not in the training data: C, D, E, F, G, …; "):
        plain.gold(tagged("H G F E D C"), "y")


def test_plain_gold_tags_are_rejected_for_span_models() -> None:
    tag_set = TagSet.of(IOB1, "auto", "x")
    with pytest.raises(InputError, match=r"y: a tag such as 'NNP' is not a span tag.*\(iob1\); specify the column"):
        tag_set.gold(tagged("I-LOC NNP"), "y")


@pytest.mark.parametrize(
    "given",
    [
        {"names": [], "scheme": None, "learnt": None},
        {"names": ["A", "A"], "scheme": None, "learnt": None},
        {"names": ["A", 1], "scheme": None, "learnt": None},
        {"names": ["O"], "scheme": "iob3", "learnt": "bioes"},
        {"names": ["O"], "scheme": "iob1", "learnt": None},
        {"names": ["O", "NNP"], "scheme": "iob1", "learnt": "bioes"},
    ],
)
def test_json_round_trip_and_invalid_json(given: dict[str, object]) -> None:
    for whole in (TagSet.of(IOB1, "auto", "x"), TagSet(("A", "B2"), None, None)):
        assert TagSet.from_json(whole.to_json()) == whole
    with pytest.raises(ValueError, match=r"tags are names|scheme|is not a tag of bioes"):
        TagSet.from_json(given)


def test_a_report_by_hand() -> None:
    gold = [["B-PER", "I-PER", "O"], ["B-LOC", "O"]]
    result = [["B-PER", "O", "O"], ["B-LOC", "O"]]
    is_unknown = [np.array([True, True, False]), np.array([False, False])]
    report = evaluate_tags(gold, result, is_unknown, "iob2", seconds=2.0)
    assert (report.sentences, report.words, report.unknown_words) == (2, 5, 2)
    assert report.accuracy == pytest.approx(4 / 5)
    assert report.unknown_accuracy == pytest.approx(1 / 2)
    assert report.spans is not None
    assert (report.spans.gold, report.spans.predicted, report.spans.correct) == (2, 2, 1)  # PER ends too early
    assert report.error == pytest.approx(1 - 1 / 2)
    assert report.words_per_second == pytest.approx(2.5)
    assert report.by_label["LOC"].f1 == 1
    assert report.by_label["PER"].f1 == 0


def test_a_report_on_plain_tags() -> None:
    report = evaluate_tags([["A", "B2", "A"]], [["A", "A", "A"]], [np.zeros(3, dtype=bool)], None, seconds=0.0)
    assert report.error == pytest.approx(1 / 3)
    assert report.unknown_accuracy == 0
    assert report.spans is None
    assert report.by_label["A"].precision == pytest.approx(2 / 3)
    assert report.by_label["A"].recall == 1
    assert (report.by_label["B2"].gold, report.by_label["B2"].predicted, report.by_label["B2"].correct) == (
        1,
        0,
        0,
    )


@pytest.mark.data
def test_conll_2003(data_folder: Path) -> None:
    """Four labels in four places each, and O; what is learnt is the file again, its ill-formed sentences mended."""
    data = read_tagged(data_folder / "conll2003" / "eng.train")
    tag_set = TagSet.of(data, "auto", "x")
    assert tag_set.scheme == "iob1"
    places = {f"{place}-{label}" for place in "BIES" for label in ("LOC", "MISC", "ORG", "PER")}
    assert set(tag_set.names) == places | {"O"}
    changed = 0
    for sentence, ids in zip(data, tag_set.encode(data), strict=True):
        again = tag_set.decode(ids)
        assert tagging.tags_to_spans(again, "iob1") == tagging.tags_to_spans(sentence.tags, "iob1")
        changed += again != list(sentence.tags)
    assert changed <= 2
