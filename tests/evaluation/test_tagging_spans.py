from collections import Counter
from itertools import pairwise, product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

from chainrule.errors import InputError
from chainrule.evaluation.tagging import (
    Scheme,
    Span,
    SpanScores,
    allowed_transitions,
    convert_tags,
    detect_scheme,
    score_spans,
    spans_to_tags,
    tags_to_spans,
)
from chainrule.text.conll import read_tagged

SCHEMES: tuple[Scheme, ...] = get_args(Scheme)


def tags_of(scheme: Scheme, labels: str = "XY") -> list[str]:
    prefixes = "BIES" if scheme == "bioes" else "BI"
    return ["O", *(f"{prefix}-{label}" for prefix in prefixes for label in labels)]


def every_sequence(scheme: Scheme, longest: int = 4) -> list[tuple[str, ...]]:
    return [tags for length in range(longest + 1) for tags in product(tags_of(scheme), repeat=length)]


@st.composite
def gold_and_found(draw: st.DrawFn, scheme: Scheme) -> tuple[list[list[str]], list[list[str]]]:
    """Two taggings of the same sentences, ill-formed as often as chance has it."""
    tag = st.sampled_from(tags_of(scheme))
    lengths = draw(st.lists(st.integers(1, 8), min_size=1, max_size=6))
    gold = [draw(st.lists(tag, min_size=length, max_size=length)) for length in lengths]
    result = [[draw(st.just(right) | tag) for right in sentence] for sentence in gold]
    return gold, result


# "New York" LOC, then "London" LOC right after it, "and" outside, "Ada" PER: spans 0-1, 2-2, 4-4.
PLACES = [Span(0, 1, "LOC"), Span(2, 2, "LOC"), Span(4, 4, "PER")]
WRITTEN: dict[Scheme, list[str]] = {
    "iob1": ["I-LOC", "I-LOC", "B-LOC", "O", "I-PER"],
    "iob2": ["B-LOC", "I-LOC", "B-LOC", "O", "B-PER"],
    "bioes": ["B-LOC", "E-LOC", "S-LOC", "O", "S-PER"],
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_worked_sentence(scheme: Scheme) -> None:
    tags = WRITTEN[scheme]
    assert tags_to_spans(tags, scheme) == PLACES
    assert spans_to_tags(reversed(PLACES), 5, scheme) == tags
    assert detect_scheme([["O"], tags, []]) == scheme
    for other in SCHEMES:
        assert convert_tags(tags, scheme, other) == WRITTEN[other]


@pytest.mark.parametrize(
    ("scheme", "tags", "spans"),
    [
        ("iob2", "I-X I-X O", [Span(0, 1, "X")]),  # I begins where nothing did
        ("iob2", "B-X I-Y I-Y", [Span(0, 0, "X"), Span(1, 2, "Y")]),  # another label, another span
        ("iob1", "B-X B-X I-X", [Span(0, 0, "X"), Span(1, 2, "X")]),
        ("iob1", "O B-X O I-Y I-X", [Span(1, 1, "X"), Span(3, 3, "Y"), Span(4, 4, "X")]),
        ("bioes", "B-X I-X O", [Span(0, 1, "X")]),  # never ended
        ("bioes", "E-X E-X I-X", [Span(0, 0, "X"), Span(1, 1, "X"), Span(2, 2, "X")]),  # nothing outlives an E
        ("bioes", "S-X I-X E-X B-X S-X", [Span(0, 0, "X"), Span(1, 2, "X"), Span(3, 3, "X"), Span(4, 4, "X")]),
        ("bioes", "B-X E-Y", [Span(0, 0, "X"), Span(1, 1, "Y")]),
        ("iob2", "B-a-b I-a-b B-a", [Span(0, 1, "a-b"), Span(2, 2, "a")]),  # the first hyphen parts
        ("iob2", "B I O B", [Span(0, 1, ""), Span(3, 3, "")]),
        ("iob2", "B-X I", [Span(0, 0, "X"), Span(1, 1, "")]),
        ("iob2", "", []),
    ],
)
def test_ill_formed_tags_are_read_all_the_same(scheme: Scheme, tags: str, spans: list[Span]) -> None:
    assert tags_to_spans(tags.split(), scheme) == spans


@pytest.mark.parametrize("scheme", SCHEMES)
def test_spans_are_those_of_seqeval(scheme: Scheme) -> None:
    for tags in every_sequence(scheme):
        theirs = [Span(first, last, label) for label, first, last in get_entities(list(tags))]
        assert tags_to_spans(tags, scheme) == theirs, tags


@pytest.mark.parametrize("scheme", SCHEMES)
def test_well_formed_is_what_transitions_allow(scheme: Scheme) -> None:
    # A sequence is well-formed if writing what it says gives it back; the transitions must agree, on all there are.
    names = tags_of(scheme)
    follows, starts, ends = allowed_transitions(names, scheme)
    assert follows.shape == (len(names), len(names))
    assert starts.dtype == ends.dtype == follows.dtype == np.bool_
    count = 0
    for tags in every_sequence(scheme):
        ids = [names.index(tag) for tag in tags]
        is_allowed = all(follows[left, right] for left, right in pairwise(ids))
        is_allowed &= not ids or bool(starts[ids[0]] and ends[ids[-1]])
        assert is_allowed == (convert_tags(tags, scheme, scheme) == list(tags)), tags
        if is_allowed:
            count += 1
            for other in SCHEMES:
                there = convert_tags(tags, scheme, other)
                assert convert_tags(there, other, scheme) == list(tags)
                assert detect_scheme([there]) in (other, None)
                assert (detect_scheme([there]) is None) == (set(tags) <= {"O"})
    # n words as spans of two labels and words outside: a(n) = a(n-1) + 2 (a(0) + … + a(n-1)), by the last of them;
    # 1, 3, 11, 41, 153, together 209, whatever the scheme.
    assert count == 209


def test_transitions_by_hand() -> None:
    follows, starts, ends = allowed_transitions(["O", "B-X", "I-X", "I-Y"], "iob2")
    assert follows.tolist() == [
        [True, True, False, False],  # after O
        [True, True, True, False],  # after B-X
        [True, True, True, False],  # after I-X
        [True, True, False, True],  # after I-Y
    ]
    assert starts.tolist() == [True, True, False, False]
    assert ends.tolist() == [True] * 4
    follows, starts, ends = allowed_transitions(["O", "B-X", "I-X", "B-Y"], "iob1")
    assert follows.tolist() == [
        [True, False, True, False],
        [True, True, True, False],
        [True, True, True, False],
        [True, False, True, True],
    ]
    assert starts.tolist() == [True, False, True, False]
    assert ends.tolist() == [True] * 4
    follows, starts, ends = allowed_transitions(["O", "B", "I", "E", "S"], "bioes")
    assert follows.tolist() == [
        [True, True, False, False, True],
        [False, False, True, True, False],
        [False, False, True, True, False],
        [True, True, False, False, True],
        [True, True, False, False, True],
    ]
    assert starts.tolist() == [True, True, False, False, True]
    assert ends.tolist() == [True, False, False, True, True]
    assert [array.shape for array in allowed_transitions([], "iob2")] == [(0, 0), (0,), (0,)]


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["B-X I-X", "O"], "iob2"),
        (["I-X B-X", "O"], "iob1"),
        (["I-X I-Y"], "iob1"),
        (["B-X", "S-X O"], "bioes"),
        (["I-X E-X"], "bioes"),
        (["B I O"], "iob2"),
        (["B E O S"], "bioes"),
        (["O B-X O B-X", "I-X"], "iob2"),  # one span breaks iob2, two break iob1
        (["O I-X O I-X", "B-X"], "iob1"),
        (["I-X O B-X"], "iob1"),  # one breaks either
        (["DET NOUN", "PUNCT"], None),
        (["B I S V"], None),  # letters that are parts of speech
        (["B-X I-X U-X"], None),
        (["B-"], None),
        (["O O"], None),
        ([], None),
    ],
)
def test_detect_scheme(sentences: list[str], scheme: Scheme | None) -> None:
    assert detect_scheme(sentence.split() for sentence in sentences) == scheme


@pytest.mark.parametrize(
    ("tag", "scheme"),
    [("E-X", "iob2"), ("S", "iob1"), ("NOUN", "bioes"), ("B-", "iob2"), ("O-X", "iob2"), ("", "iob2")],
)
def test_foreign_tags_are_rejected(tag: str, scheme: Scheme) -> None:
    with pytest.raises(InputError, match=f"'{tag}' is not a tag of {scheme}"):
        tags_to_spans(["O", tag], scheme)
    with pytest.raises(InputError, match=f"'{tag}' is not a tag of {scheme}"):
        allowed_transitions(["O", tag], scheme)


@pytest.mark.parametrize(
    "spans", [[Span(0, 1, "X"), Span(1, 2, "Y")], [Span(2, 3, "X")], [Span(-1, 0, "X")], [Span(1, 0, "X")]]
)
def test_spans_that_no_tags_can_express(spans: list[Span]) -> None:
    with pytest.raises(InputError, match="overlaps another span or exceeds the sentence of 3 words"):
        spans_to_tags(spans, 3, "iob2")


def test_scores_by_hand() -> None:
    gold = [[Span(0, 1, "LOC"), Span(3, 3, "PER")], [Span(0, 0, "PER")], []]
    result = [[Span(0, 1, "LOC"), Span(3, 4, "PER")], [Span(0, 0, "LOC")], [Span(2, 2, "ORG")]]
    # One of 3 is found, among 4: P = 1/4, R = 1/3, F = 2 · 1 / (3 + 4).
    scores = score_spans(gold, result)
    assert (scores.gold, scores.predicted, scores.correct) == (3, 4, 1)
    assert (scores.precision, scores.recall) == (1 / 4, 1 / 3)
    assert scores.f1 == pytest.approx(2 / 7)
    assert scores.f1 == pytest.approx(2 * (1 / 4) * (1 / 3) / (1 / 4 + 1 / 3))
    assert scores.by_label == {"LOC": SpanScores(1, 2, 1), "ORG": SpanScores(0, 1, 0), "PER": SpanScores(2, 1, 0)}
    assert list(scores.by_label) == ["LOC", "ORG", "PER"]
    location, organisation = scores.by_label["LOC"], scores.by_label["ORG"]
    assert (location.precision, location.recall) == (1 / 2, 1)
    assert location.f1 == pytest.approx(2 / 3)
    assert (organisation.precision, organisation.recall, organisation.f1) == (0, 0, 0)


def test_scores_without_spans() -> None:
    scores = score_spans([[], []], [[], []])
    assert (scores.precision, scores.recall, scores.f1, scores.by_label) == (0, 0, 0, {})
    with pytest.raises(InputError, match="2 gold sentences but 1 predictions"):
        score_spans([[], []], [[]])


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data(), is_well_formed=st.booleans())
def test_scores_are_those_of_seqeval(scheme: Scheme, data: st.DataObject, is_well_formed: bool) -> None:
    gold, result = data.draw(gold_and_found(scheme))
    if is_well_formed:
        gold, result = ([convert_tags(tags, scheme, scheme) for tags in sentences] for sentences in (gold, result))
    scores = score_spans(
        [tags_to_spans(tags, scheme) for tags in gold], [tags_to_spans(tags, scheme) for tags in result]
    )
    assert scores.precision == pytest.approx(precision_score(gold, result, zero_division=0))
    assert scores.recall == pytest.approx(recall_score(gold, result, zero_division=0))
    assert scores.f1 == pytest.approx(f1_score(gold, result, zero_division=0))
    labels = sorted({label for label, *_ in get_entities(gold) + get_entities(result)})
    assert list(scores.by_label) == labels
    if labels:
        by_label = [scores.by_label[label].f1 for label in labels]
        assert by_label == pytest.approx(f1_score(gold, result, average=None, zero_division=0))


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "counts"),
    [  # Tjong Kim Sang & De Meulder (2003), table 2
        ("train", {"LOC": 7140, "MISC": 3438, "ORG": 6321, "PER": 6600}),
        ("testa", {"LOC": 1837, "MISC": 922, "ORG": 1341, "PER": 1842}),
        ("testb", {"LOC": 1668, "MISC": 702, "ORG": 1661, "PER": 1617}),
    ],
)
def test_the_entities_of_conll_2003(data_folder: Path, name: str, counts: dict[str, int]) -> None:
    sentences = read_tagged(data_folder / "conll2003" / f"eng.{name}")
    assert detect_scheme(sentence.tags for sentence in sentences) == "iob1"
    spans = [tags_to_spans(sentence.tags, "iob1") for sentence in sentences]
    assert Counter(span.label for sentence in spans for span in sentence) == counts
    for scheme in SCHEMES:
        converted = [convert_tags(sentence.tags, "iob1", scheme) for sentence in sentences]
        assert detect_scheme(converted) == scheme
        assert [tags_to_spans(tags, scheme) for tags in converted] == spans
    # Two sentences of the training set begin a span with B- after O, which is no IOB1: they alone are mended.
    mended = sum(convert_tags(sentence.tags, "iob1", "iob1") != list(sentence.tags) for sentence in sentences)
    assert mended == (2 if name == "train" else 0)


@pytest.mark.data
def test_parts_of_speech_are_no_spans(data_folder: Path) -> None:
    for column in ("upos", "xpos"):
        sentences = read_tagged(data_folder / "ud_english_ewt" / "en_ewt-ud-dev.conllu", column=column)
        assert detect_scheme(sentence.tags for sentence in sentences) is None
