"""Duplicates of lines and documents, by hand and compared with all pairs of documents."""

import json
import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule import system
from chainrule.applications.deduplicate import Deduplication, DocumentBlock, deduplicate
from chainrule.distributed.options import EngineOptions
from chainrule.errors import UsageError
from chainrule.text.corpus import Corpus

WORKERS = EngineOptions(workers=2, partition="2k")


def test_lines_by_hand(tmp_path: Path) -> None:
    lines = ["The cat", "", "a dog", "the  CAT ", "straße", "", "cat the", "STRASSE", "a dog", " "]
    result = deduplicate(Corpus.from_lines(lines), tmp_path / "out.txt")
    assert result == Deduplication(total=10, kept=7, exact=3)
    assert (tmp_path / "out.txt").read_text() == "The cat\n\na dog\nstraße\n\ncat the\n \n"


def test_paragraphs_of_plain_text_are_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\none\ntwo\n \t\nthree\r\n\r\nOne two\n\n\nfour")
    result = deduplicate(tmp_path / "a.txt", tmp_path / "out.txt", by="document")
    assert result == Deduplication(total=4, kept=3, exact=1)
    assert (tmp_path / "out.txt").read_text() == "one\ntwo\n\nthree\n\nfour\n"


def test_records_are_documents(tmp_path: Path) -> None:
    texts = ["one\n\ntwo", "three", "ONE two", "“x”"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    corpus = Corpus.of(tmp_path / "a.jsonl", column="body")
    deduplicate(corpus, tmp_path / "out.jsonl", by="document")
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert records == [{"text": "one\n\ntwo"}, {"text": "three"}, {"text": "“x”"}]
    with pytest.raises(UsageError, match=r"ends with \.jsonl"):
        deduplicate(corpus, tmp_path / "out.txt", by="document")
    deduplicate(corpus, tmp_path / "lines.txt")
    assert (tmp_path / "lines.txt").read_text() == "one\n\ntwo\nthree\nONE two\n“x”\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "word"}, "choose one of line, document"),
        ({"near": 0.2}, "near is 0.2; choose a similarity from 0.5 to 1"),
        ({"near": float("nan")}, "near is nan"),
    ],
)
def test_options_are_checked(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        deduplicate(Corpus.from_lines(["a"]), tmp_path / "out", **options)  # type: ignore[arg-type]
    corpus = Corpus(texts=("a",), drop_blank_lines=True)
    with pytest.raises(UsageError, match="--drop-blank-lines"):
        deduplicate(corpus, tmp_path / "out", by="document")


def test_an_empty_text(tmp_path: Path) -> None:
    for near in (None, 0.8):
        assert deduplicate(Corpus.from_lines([]), tmp_path / "out", near=near) == Deduplication()
        assert (tmp_path / "out").read_bytes() == b""


words = st.lists(st.sampled_from(["a", "A", "b", "", "é", "É"]), max_size=3).map(" ".join)


@settings(max_examples=12)
@given(st.lists(words, max_size=30), st.integers(1, 60))
def test_partitions_do_not_matter(tmp_path_factory: pytest.TempPathFactory, lines: list[str], size: int) -> None:
    folder = tmp_path_factory.mktemp("dedup")
    text = folder / "text"
    text.write_text("".join(f"{line}\n" for line in lines))
    options = EngineOptions(on="processes", workers=1, partition=str(size))
    for by in ("line", "document"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EngineOptions, "uses_engine", False)  # in this process, with small partitions
            result = deduplicate(text, folder / "parts", by=by, near=0.8, options=options)
        assert deduplicate(text, folder / "whole", by=by, near=0.8) == result
        assert (folder / "parts").read_bytes() == (folder / "whole").read_bytes()
    first: dict[str, int] = {}
    kept = [line for n, line in enumerate(lines) if not line.strip() or first.setdefault(_folded(line), n) == n]
    deduplicate(text, folder / "lines")
    assert (folder / "lines").read_text() == "".join(f"{line}\n" for line in kept)


def _folded(line: str) -> str:
    return " ".join(line.casefold().split())


def random_documents(seed: int, number: int = 120) -> list[str]:
    """Documents of few different words, many of which are an earlier one with some words changed."""
    rng = random.Random(seed)
    documents: list[list[str]] = []
    for _ in range(number):
        if documents and rng.random() < 0.6:
            document = list(rng.choice(documents))
            for _ in range(rng.choice([0, 0, 1, 1, 2, 5])):
                document[rng.randrange(len(document))] = f"w{rng.randrange(50)}"
        else:
            document = [f"w{rng.randrange(50)}" for _ in range(rng.choice([1, 3, 5, 20, 60, 60]))]
        documents.append(document)
    return [" ".join(document) for document in documents]


def shingles(document: str) -> set[tuple[str, ...]]:
    """The distinct runs of five words, or all words if there are fewer."""
    tokens = document.split()
    length = min(5, len(tokens))
    return {tuple(tokens[i : i + length]) for i in range(len(tokens) - length + 1)}


def similarity(a: str, b: str) -> float:
    first, second = shingles(a), shingles(b)
    return len(first & second) / len(first | second)


def first_of_components(size: int, pairs: list[tuple[int, int]]) -> list[int]:
    """The smallest member of the component of each number."""
    heads = list(range(size))
    for a, b in pairs:
        low, high = sorted((heads[a], heads[b]))
        heads = [low if head == high else head for head in heads]
    return heads


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_near_duplicates_are_verified_and_found(threshold: float, seed: int) -> None:
    """All pairs of documents: no cluster exceeds the components of similar pairs, and similar ones are found."""
    documents = random_documents(seed)
    block = DocumentBlock.of_documents([f"{document}\n".encode() for document in documents])
    firsts = system.load_extension().near_duplicates(block.data, block.ends, threshold).tolist()
    bands = system.load_extension().band_hashes(block.data, block.ends)
    pairs = [
        (a, b)
        for a, b in combinations(range(len(documents)), 2)
        if similarity(documents[a], documents[b]) >= threshold
    ]
    agreeing = [(a, b) for a, b in pairs if (bands[a] == bands[b]).any()]
    assert firsts == first_of_components(len(documents), agreeing)
    certain = [(a, b) for a, b in pairs if similarity(documents[a], documents[b]) >= 0.9]
    assert {*certain} <= {*agreeing}
    assert len(certain) > 10


@pytest.mark.parametrize("near", [0.6, 0.8])
def test_near_duplicates_of_a_corpus(tmp_path: Path, near: float) -> None:
    """The first document of each cluster remains, whatever the partitions and the engine."""
    documents = random_documents(7, 300)
    (tmp_path / "text").write_text("\n\n".join(documents) + "\n")
    result = deduplicate(tmp_path / "text", tmp_path / "out", by="document", near=near)
    block = DocumentBlock.of_documents([f"{document}\n".encode() for document in documents])
    firsts = system.load_extension().near_duplicates(block.data, block.ends, near)
    kept = [documents[n] for n in np.flatnonzero(firsts == np.arange(len(documents)))]
    assert (tmp_path / "out").read_text() == "\n\n".join(kept) + "\n"
    assert result.kept == len(kept)
    assert result.total == result.kept + result.exact + result.near
    assert min(result.exact, result.near) > 5
    assert deduplicate(tmp_path / "text", tmp_path / "two", by="document", near=near, options=WORKERS) == result
    assert (tmp_path / "two").read_bytes() == (tmp_path / "out").read_bytes()


def test_nothing_below_the_threshold_is_removed(tmp_path: Path) -> None:
    rng = random.Random(5)
    base = [f"w{n}" for n in range(40)]
    documents = []
    for n in range(50):  # 36 of 40 shingles are in all documents: similarity 32 / 40 at most
        document = list(base)
        document[20] = f"x{n}"
        documents.append(" ".join(document))
    rng.shuffle(documents)
    highest = max(similarity(a, b) for a, b in combinations(documents, 2))
    assert 0.7 < highest < 0.8
    result = deduplicate(Corpus.from_lines(documents), tmp_path / "out", near=0.8)
    assert result == Deduplication(total=50, kept=50)
    assert deduplicate(Corpus.from_lines(documents), tmp_path / "out", near=highest).kept < 25
