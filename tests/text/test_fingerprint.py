import numpy as np
import pytest

from chainrule.text import fingerprint as module
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import fingerprint

LINES = [f"this is line number {i} of a text" for i in range(20000)]


def test_fingerprint_digest_equals_corpus_digest() -> None:
    corpus = Corpus.from_lines(LINES[:50])
    assert fingerprint(corpus).sha256 == corpus.digest()


@pytest.mark.parametrize("part", [0.0, 0.3, 1.0])
def test_overlap_estimate_is_close_to_the_true_overlap(part: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SKETCH_SIZE", 4096)
    training = fingerprint(Corpus.from_lines(LINES))
    old = int(1000 * part)
    test = [*LINES[5000 : 5000 + old], *(f"a line that was never there, {i}" for i in range(1000 - old))]
    # About 1000 · 4096/20000 = 205 lines are in the sketch: a standard error of 0.03.
    assert training.overlap(fingerprint(Corpus.from_lines(test))) == pytest.approx(part, abs=0.12)


def test_texts_of_short_lines_have_an_empty_sketch() -> None:
    short = fingerprint(Corpus.from_lines(["yes", "no"] * 100))
    assert len(short.sketch) == 0
    different = fingerprint(Corpus.from_lines(["yes", "no"] * 99))
    assert short.overlap(different) == 0
    assert short.overlap(short) == 1  # identical texts
    few = fingerprint(Corpus.from_lines(LINES[:10]))
    assert few.overlap(fingerprint(Corpus.from_lines(LINES[:9]))) == 0


def test_sketch_does_not_depend_on_line_order() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SKETCH_SIZE", 4096)
        forward = fingerprint(Corpus.from_lines(LINES))
        backward = fingerprint(Corpus.from_lines(LINES[::-1]))
    assert len(forward.sketch) == 4096
    assert np.array_equal(forward.sketch, backward.sketch)
    assert np.all(forward.sketch[1:] > forward.sketch[:-1])
