import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from chainrule.errors import ChainruleWarning, InputError, MissingExtra, UsageError
from chainrule.evaluation.translation import (
    CorpusScore,
    bleu,
    bleu_by_length,
    chrf,
    exact_match,
    has_four_grams,
    load_metric,
)
from chainrule.text.parallel import read_pairs

Score = Callable[[Sequence[str], Sequence[str]], CorpusScore]

# 6 words, 5 right; 4 of 5 bigrams, 3 of 4 trigrams, 2 of 3 four-grams: 5/6 · 4/5 · 3/4 · 2/3 = 1/3.
HYPOTHESIS, REFERENCE = "the cat sat on the mat", "the cat sat on the rug"


def test_bleu_by_hand() -> None:
    result = bleu([HYPOTHESIS], [REFERENCE])
    assert result.score == pytest.approx(100 * (1 / 3) ** (1 / 4))
    assert result.details["precisions"] == pytest.approx([500 / 6, 80, 75, 200 / 3])
    assert result.details["brevity_penalty"] == 1
    assert (result.details["found_length"], result.details["reference_length"]) == (6, 6)
    assert "tok:13a" in result.signature
    assert "smooth:exp" in result.signature


def test_brevity_penalty() -> None:
    # All n-grams are right, 4 words of 6: exp(1 − 6/4).
    result = bleu(["the cat sat on"], [REFERENCE])
    assert result.score == pytest.approx(100 * math.exp(-0.5))
    assert result.details["brevity_penalty"] == pytest.approx(math.exp(-0.5))


def test_counts_are_summed_before_they_are_divided() -> None:
    # Both sentences together: (5 + 4)/10, (4 + 3)/8, (3 + 2)/6, (2 + 1)/4; the mean of the two scores is another.
    score = bleu([HYPOTHESIS, "a b c d"], [REFERENCE, "a b c d"]).score
    assert score == pytest.approx(100 * (9 / 10 * 7 / 8 * 5 / 6 * 3 / 4) ** (1 / 4))


def test_punctuation_is_a_token_of_its_own() -> None:
    # the cat sat . against the cat sat !: 3/4, 2/3, 1/2 and no four-gram, smoothed to 1/2 of 1.
    assert bleu(["the cat sat."], ["the cat sat!"]).score == pytest.approx(100 * (1 / 4 * 1 / 2) ** (1 / 4))


def test_chrf_by_hand() -> None:
    # 1-grams: 2 of 2 found, 2 of 3 met; 2-grams: 1 of 1, 1 of 2; no longer ones. P = 1, R = 7/12;
    # F_2 = 5 P R / (4 P + R) = 7/11.
    result = chrf(["ab"], ["abc"])
    assert result.score == pytest.approx(700 / 11)
    assert result.details == {"character_order": 6, "word_order": 0, "beta": 2}
    assert "nc:6" in result.signature


@pytest.mark.parametrize("score", [bleu, chrf])
def test_the_extremes(score: Score) -> None:
    assert score([REFERENCE], [REFERENCE]).score == pytest.approx(100)
    assert score(["qqq"], ["zzz"]).score == 0
    assert score([""], [REFERENCE]).score == 0


@pytest.mark.parametrize("score", [bleu, chrf])
def test_incomparable_input_is_rejected(score: Score) -> None:
    with pytest.raises(InputError, match="2 texts but 1 references"):
        score(["a", "b"], ["a"])
    with pytest.raises(InputError, match="no text"):
        score([], [])
    with pytest.raises(UsageError, match="one text was given"):
        score("abc", "abc")


def test_tokenised_text_gives_a_warning() -> None:
    texts = ["the cat sat ."] * 100
    with pytest.warns(ChainruleWarning, match="without tokenization"):
        bleu(texts, texts)
    assert bleu(texts[:99], texts[:99]).score == pytest.approx(100)  # no warning


def test_exact_matches() -> None:
    assert exact_match(["a cat", " a  dog ", "a Dog", ""], ["a cat", "a dog", "a dog", "a"]) == 2 / 4
    with pytest.raises(InputError, match="2 texts but 1 references"):
        exact_match(["a", "b"], ["a"])


def test_has_four_grams() -> None:
    assert not has_four_grams(["a b c", "", "a"])
    assert has_four_grams(["a", "a b c."])  # a period is a token
    assert not has_four_grams(["1987 abc d"])


def test_a_bucket_is_a_corpus_of_its_own() -> None:
    result = [HYPOTHESIS, "a b c d", "qqq", REFERENCE]
    references = [REFERENCE, "a b c d", "zzz", REFERENCE]
    buckets = bleu_by_length(result, references, lengths=[5, 4, 9, 10], edges=[5, 10, 20])
    counts = [(bucket.low, bucket.high, bucket.sentences) for bucket in buckets]
    assert counts == [(0, 5, 1), (5, 10, 2), (10, 20, 1), (20, math.inf, 0)]
    # The second: 5 of 7 words, 4 of 5 bigrams, 3 of 4, 2 of 3; as long as its reference.
    second = 100 * (5 / 7 * 4 / 5 * 3 / 4 * 2 / 3) ** (1 / 4)
    assert [bucket.score for bucket in buckets[:3]] == pytest.approx([100, second, 100])
    assert buckets[3].score is None


def test_one_bucket_is_the_whole() -> None:
    result, references = [HYPOTHESIS, "a b c d"], [REFERENCE, "a b c d"]
    (bucket,) = bleu_by_length(result, references, [0, 1000], [])
    assert bucket.score == pytest.approx(bleu(result, references).score)


@pytest.mark.parametrize("edges", [[0], [-1, 5], [5, 5], [10, 5]])
def test_edges_must_ascend(edges: list[int]) -> None:
    with pytest.raises(UsageError, match="edges are"):
        bleu_by_length(["a"], ["a"], [1], edges)


def test_each_text_has_a_length() -> None:
    with pytest.raises(InputError, match="1 texts but 2 lengths"):
        bleu_by_length(["a"], ["a"], [1, 2], [5])


def test_without_sacrebleu_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(MissingExtra, match=r"pip install 'chainrule\[tasks\]'"):
        bleu(["a"], ["a"])


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(UsageError, match="metric is 'rouge'; choose bleu or chrf"):
        load_metric("rouge")  # type: ignore[arg-type]


def corpus_bleu(result: list[list[str]], references: list[list[str]]) -> float:
    """BLEU of word lists, in four lines: every order has a match here, so nothing is smoothed."""
    log_precision = 0.0
    for n in range(1, 5):
        right = total = 0
        for words, reference in zip(result, references, strict=True):
            grams, known = (Counter(zip(*(x[i:] for i in range(n)), strict=False)) for x in (words, reference))
            right, total = right + (grams & known).total(), total + grams.total()
        log_precision += math.log(right / total) / 4
    lengths = sum(map(len, result)), sum(map(len, references))
    return 100 * math.exp(log_precision + min(0.0, 1 - lengths[1] / lengths[0]))


@pytest.mark.data
def test_real_text_scores_as_the_formula_says(data_folder: Path) -> None:
    folder = data_folder / "multi30k"
    references = list(read_pairs([folder / "val.en", folder / "val.de"]).sources)
    words = [["".join(c for c in word if c.isalpha()) for word in text.split()] for text in references]
    words = [[word for word in text if word] for text in words]
    result = [[*text[:-1], "x"] if i % 3 else text[1:] for i, text in enumerate(words)]
    score = bleu([" ".join(text) for text in result], [" ".join(text) for text in words]).score
    assert 10 < score < 95
    assert score == pytest.approx(corpus_bleu(result, words))
