import hashlib
import lzma
import re
import sys
from pydoc_data.topics import topics

import pytest

from chainrule.errors import NotFoundError, UsageError
from chainrule.text.corpus import Corpus
from chainrule.text.splits import NOVEL, default_corpus, default_text, python_reference, split_text

DIGEST = "eaa94544bb57de7a1e7e9823ef185e7ee52d14d376d55b525054511124ad75de"


def test_embedded_text_matches_its_readme() -> None:
    lines = default_text()
    text = "\n".join([*lines, ""])
    readme = (NOVEL.parent / "README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(text.encode()).hexdigest() == DIGEST
    assert f"{len(lines):,} lines, {len(text.split()):,} words between blanks, {len(text):,} bytes" in readme
    assert f"`{DIGEST}`" in readme
    assert "public domain" in readme


def test_embedded_text_is_small_and_clean() -> None:
    assert NOVEL.stat().st_size <= 300_000
    assert 500_000 <= len(lzma.decompress(NOVEL.read_bytes())) <= 700_000
    lines = default_text()
    assert lines[0].startswith("It is a truth universally acknowledged")
    assert lines[-1].endswith("had been the means of uniting them.")
    assert all(line == " ".join(line.split()) != "" for line in lines)
    assert not [line for line in lines if re.search(r"gutenberg|_|\*|^chapter \d", line, re.IGNORECASE)]


def test_default_text_returns_a_new_list() -> None:
    default_text().clear()
    assert len(default_text()) == 2_057


def test_split_text_defaults_to_the_embedded_text() -> None:
    parts = split_text(None, None, None, seed=0)
    assert (parts.name, parts.sha256) == ("Pride and Prejudice (embedded)", DIGEST)
    assert sorted(parts.train + parts.valid + parts.test) == sorted(default_text())


def test_default_corpus_python_is_the_language_reference() -> None:
    corpus = default_corpus("python")
    assert corpus.name == "the Python language reference"
    assert list(corpus) == python_reference()
    assert Corpus.of(corpus) == corpus  # including the title
    assert split_text(corpus, None, None, seed=0).name == corpus.name
    with pytest.raises(UsageError, match="text is 'perl'; choose one of novel, python"):
        default_corpus("perl")


def test_python_reference_contains_every_topic_in_order() -> None:
    reference = iter(python_reference())
    earlier_lines: set[str] = set()
    for topic in sorted(topics):
        for line in topics[topic].split("\n"):
            if line.strip(" \t") and (len(line.rstrip(" \t")) < 20 or line.strip(" \t") not in earlier_lines):
                assert next(reference) == line.rstrip(" \t")
                earlier_lines.add(line.strip(" \t"))
    assert list(reference) == []


def test_python_reference_has_no_repeated_long_lines() -> None:
    lines = [line.strip(" \t") for line in python_reference() if len(line) >= 20]
    assert len(lines) == len(set(lines)) > 4_000


def test_python_reference_has_no_blank_lines_or_trailing_spaces() -> None:
    assert all(line and line[-1] not in " \t\r\n" for line in python_reference())


def test_missing_python_reference_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(NotFoundError, match="give a text of your own"):
        python_reference()
    assert default_text()
