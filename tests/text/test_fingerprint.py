from concurrent.futures import Future
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from chainrule.errors import InputError
from chainrule.text import fingerprint as module
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import Fingerprint, fingerprint, fingerprint_in_background

LINES = [f"this is line number {i} of a text" for i in range(20000)]


def test_fingerprint_is_computed_in_the_background(tmp_path: Path) -> None:
    corpus = Corpus.from_lines(LINES)
    with fingerprint_in_background(corpus) as future:
        expected = fingerprint(corpus)
    assert future.result().sha256 == expected.sha256
    assert np.array_equal(future.result().sketch, expected.sketch)
    (tmp_path / "text").write_bytes(b"a\xffb\n")
    with fingerprint_in_background(Corpus.of(tmp_path / "text")) as invalid:
        pass  # the error is raised with the result
    with pytest.raises(InputError, match="not UTF-8 at byte 1"):
        invalid.result()


def test_fingerprint_in_the_background_is_stopped_by_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, begun = Event(), Event()

    class WaitingDigest:
        def update(self, block: bytes) -> None:
            begun.set()
            assert stop.wait(60)

    def fail() -> None:
        with fingerprint_in_background(Corpus.from_lines(["a" * (1 << 20)] * 8)) as future:
            futures.append(future)
            assert begun.wait(60)
            raise ValueError("the work failed")

    futures: list[Future[Fingerprint]] = []
    monkeypatch.setattr(module, "Event", lambda: stop)
    monkeypatch.setattr("chainrule.text.fingerprint.hashlib.sha256", WaitingDigest)
    with pytest.raises(ValueError, match="the work failed"):
        fail()
    assert "_Stopped" in repr(futures[0].exception())


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
