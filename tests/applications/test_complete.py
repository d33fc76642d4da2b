"""Completions compared with brute force over words, strings and segmentations."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import chainrule
from chainrule.applications.complete import Completer, PrefixCache, TokenBytes, split_prefix
from chainrule.errors import ConfigError, InputError
from chainrule.lm import Batch, Ids
from chainrule.model import Model
from cli.command import english

pytestmark = pytest.mark.native


def trained(folder: Path, text: str, **settings: object) -> Model:
    path = folder / "text.txt"
    path.write_text(text)
    chosen = {"order": 3, "smoothing": "witten-bell"} | settings
    return chainrule.train("ngram", path, **chosen)  # type: ignore[arg-type]


def log_p_after(model: Model, ids: list[int]) -> list[float]:
    """Log p of every token after these, one step at a time from `<s>`."""
    log_p, state = model.lm.step(model.lm.start(1), np.array([model.tokenizer.bos]))
    for each in ids:
        log_p, state = model.lm.step(state, np.array([each]))
    result: list[float] = log_p[0].tolist()
    return result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the stock mar", ("the stock ", "mar")),
        ("the stock ", ("the stock ", "")),
        ("", ("", "")),
        ("mar", ("", "mar")),
        ("a\tb", ("a\t", "b")),
        ("one\nmar", ("one\n", "mar")),
        ("one\r", ("one\r", "")),
        ("a\u00a0b", ("", "a\u00a0b")),
    ],
)
def test_prefix_follows_the_last_blank(text: str, expected: tuple[str, str]) -> None:
    assert split_prefix(text) == expected


def test_the_worked_example(toy: Path) -> None:
    # Add-one, no <unk>: after "i love" cats and dogs have 2/9, i love chase mice </s> 1/9 each.
    model = chainrule.train("ngram", toy, order=3, smoothing="laplace", closed=True)
    completer = Completer(model)
    result = {each.word: each.probability for each in completer.complete("i love c")}
    assert result == pytest.approx({"cats": 2 / 3, "chase": 1 / 3}, rel=1e-6)
    result = {each.word: each.probability for each in completer.complete("i love ")}
    assert result == pytest.approx(
        {"cats": 2 / 8, "dogs": 2 / 8} | dict.fromkeys(["i", "love", "chase", "mice"], 1 / 8)
    )
    assert [each.word for each in completer.complete("i love ", top=1)] == ["cats"]  # the lowest id among equals
    assert completer.complete("i love x") == []
    assert [each.word for each in completer.complete("i love\ncat")] == ["cats"]


def test_words_that_begin_so(tmp_path: Path) -> None:
    model = trained(tmp_path, english(), min_count=2, tokenizer="whitespace")
    completer = Completer(model)
    for context in ("", "the ", "the cat ", "the zebra sees ", "one cat\nthe "):
        distribution = dict(model.next(context, top=1000))
        for prefix in ("", "t", "to", "c", "cat", "<", "</s", "zebra"):
            fit = {word: p for word, p in distribution.items() if word.startswith(prefix)}
            for control in ("</s>", "<unk>"):
                fit.pop(control, None)
            total = sum(fit.values())
            result = completer.complete(context + prefix, top=1000)
            assert {each.word: each.probability for each in result} == pytest.approx(
                {word: p / total for word, p in fit.items()}, rel=1e-5
            )
            assert result == sorted(result, key=lambda each: -each.probability)


SPLIT = """\
"I don't know," he said.
"I do," said he (a man).
He said, "No... I don't."
(a man) said: a U.S. man's hat.
He said (a man) no.
"""


@pytest.fixture
def splitting(tmp_path: Path) -> Model:
    model = trained(tmp_path, SPLIT)
    assert model.tokenizer.config.kind == "word"
    return model


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("he sa", ("he ", "sa")),
        ('he said, "I', ('he said, "', "I")),
        ("he said,", ("he said,", "")),
        ("he said, ", ("he said, ", "")),
        ("(", ("(", "")),
        ("I don'", ("I ", "don'")),  # don't is a word of the vocabulary
        ("he said'", ("he said'", "")),
        ("a U.S", ("a ", "U.S")),
        ("a well-kn", ("a well-", "kn")),
        ("one\n(a", ("one\n(", "a")),
        ("", ("", "")),
    ],
)
def test_prefix_follows_the_last_punctuation_mark(splitting: Model, text: str, expected: tuple[str, str]) -> None:
    assert Completer(splitting).split_prefix(text) == expected


@pytest.mark.parametrize(
    ("text", "read", "prefix"),
    [
        ("he sa", ["he"], "sa"),
        ('he said, "I', ["he", "said", "\uffed,", '"\uffed'], "I"),
        ("(a m", ["(\uffed", "a"], "m"),
        ("(a", ["(\uffed"], "a"),
        ("I don'", ["I"], "don'"),
        ("he ", ["he"], ""),
        ("He said (", ["He", "said", "(\uffed"], ""),  # the only form that the text has
        ("I don't know,", ["I", "don't", "know", "\uffed,"], ""),
    ],
)
def test_marks_are_offered_as_text(splitting: Model, text: str, read: list[str], prefix: str) -> None:
    known = splitting.tokenizer.vocab
    log_p = log_p_after(splitting, [known[name] for name in read])
    is_apart = text.endswith(" ") or bool(prefix and text.removesuffix(prefix)[-1:] in (" ", ""))
    fit: dict[str, float] = {}
    for name, i in known.items():
        written = name.strip("\uffed")
        if i == splitting.tokenizer.unk or not written.startswith(prefix):
            continue
        if not (is_apart and name.startswith("\uffed")):
            fit[written] = fit.get(written, 0.0) + math.exp(log_p[i])
    completions = Completer(splitting).complete(text, top=1000)
    assert {each.word: each.probability for each in completions} == pytest.approx(
        {word: p / sum(fit.values()) for word, p in fit.items()}, rel=1e-5
    )
    assert not any("\uffed" in each.word for each in completions)


def test_capitals_are_read_as_the_tokenizer_reads_them(tmp_path: Path) -> None:
    completer = Completer(trained(tmp_path, english(), lowercase=True))
    assert completer.complete("The CAT SE") == completer.complete("the cat se")
    assert completer.complete("The CAT SE")[0].word == "sees"


def every_word(model: Model, context: str, prefix: str, longest: int) -> dict[str, float]:
    """p(word | context, prefix) of every string of letters, by the chain rule over characters."""
    tokenizer = model.tokenizer
    ends = [tokenizer.eos, tokenizer.vocab[" "]]
    letters = [c for c in tokenizer.vocab if c.isalpha()]
    read = tokenizer.encode(context + prefix).tolist()
    result: dict[str, float] = {}
    for length in range(longest + 1):
        for rest in itertools.product(letters, repeat=length):
            p, ids = 1.0, list(read)
            for letter in rest:
                p *= math.exp(log_p_after(model, ids)[tokenizer.vocab[letter]])
                ids.append(tokenizer.vocab[letter])
            if prefix + "".join(rest):
                result[prefix + "".join(rest)] = p * sum(math.exp(log_p_after(model, ids)[end]) for end in ends)
    return result


@pytest.mark.parametrize(("context", "prefix"), [("ab ", "a"), ("ab ", ""), ("", "b"), ("", "")])
def test_characters_against_every_string(tmp_path: Path, context: str, prefix: str) -> None:
    model = trained(tmp_path, "ab abb ba\nba ab\nabb b ab\nbab ab ba\n", tokenizer="char")
    expected = every_word(model, context, prefix, 4)
    best = sorted(expected, key=lambda word: -expected[word])[:3]
    result = Completer(model).complete(context + prefix, top=3)
    assert [each.word for each in result] == best
    assert [each.probability for each in result] == pytest.approx([expected[word] for word in best], rel=1e-6)


@pytest.mark.filterwarnings("ignore:the loss")
def test_networks_too(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("ab abb ba\nba ab\nabb b ab\nbab ab ba\n")
    model = chainrule.train("lstm", path, tokenizer="char", hidden=6, layers=1, epochs=1, device="cpu")
    expected = every_word(model, "ab ", "a", 2)
    result = Completer(model).complete("ab a", top=2)
    best = sorted(expected, key=lambda word: -expected[word])[:2]
    assert [each.word for each in result] == best
    assert [each.probability for each in result] == pytest.approx([expected[word] for word in best], rel=1e-4)


def ways(pieces: TokenBytes, text: bytes) -> Iterator[list[int]]:
    """Every way to write the text in pieces."""
    if not text:
        yield []
    for id_, piece in enumerate(pieces.texts):
        if piece and text.startswith(piece):
            yield from ([id_, *rest] for rest in ways(pieces, text[len(piece) :]))


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "byte"])
def test_a_word_of_pieces_has_the_sum_over_its_ways(tmp_path: Path, kind: str) -> None:
    sizes = {"wordpiece": {"vocab_size": 550}, "byte": {}}
    model = trained(tmp_path, english(), tokenizer=kind, order=2, **sizes.get(kind, {"vocab_size": 290}))
    pieces, completer = TokenBytes(model.tokenizer), Completer(model)
    context = model.tokenizer.encode("the cat").tolist()
    result = {each.word: each.probability for each in completer.complete("the cat s", top=2)}
    assert len(result) == 2
    assert all(word.startswith("s") for word in result)
    assert sum(result.values()) <= 1 + 1e-6
    ends = np.flatnonzero(pieces.is_end)
    p_of: dict[str, float] = {}
    for word in result:
        p_of[word] = 0.0
        for way in ways(pieces, b" " + word.encode()):
            p, ids = 1.0, list(context)
            for id_ in way:
                p *= math.exp(log_p_after(model, ids)[id_])
                ids.append(id_)
            p_of[word] += p * sum(math.exp(log_p_after(model, ids)[end]) for end in ends)
    # Probabilities given the prefix are those of the words but for one factor, p(prefix), the same for all.
    factors = [p_of[word] / result[word] for word in result]
    assert factors == pytest.approx([factors[0]] * len(factors), rel=1e-3)
    assert factors[0] <= 1
    if kind == "byte":  # one way to write the prefix
        blank, s = model.tokenizer.encode(" s").tolist()
        log_prob = log_p_after(model, context)[blank] + log_p_after(model, [*context, blank])[s]
        assert factors[0] == pytest.approx(math.exp(log_prob), rel=1e-5)


def test_pieces_tell_words_apart(tmp_path: Path) -> None:
    pieces = TokenBytes(trained(tmp_path, "ab ab, a-b's é\n" * 3, tokenizer="char").tokenizer)
    by_text = {text: i for i, text in enumerate(pieces.texts) if text}
    assert {text.decode() for text, i in by_text.items() if pieces.is_end[i]} == {" ", ","}
    assert {pieces.texts[i].decode() for i in pieces.inner} == set("ab-'sé")
    assert pieces.is_end.sum() == 3  # </s> too
    assert pieces.starting_with(b"a").tolist() == [by_text[b"a"]]
    assert pieces.prefixes_of(b"ab").tolist() == [by_text[b"a"]]


def test_the_reader_reads_what_is_new(tmp_path: Path) -> None:
    model = trained(tmp_path, english())
    reader = PrefixCache(model.lm)
    ids = tuple(model.tokenizer.encode("the cat sees a dog").tolist())
    for size in (0, 1, 4, 4, 5, 2, 3):
        log_p, _ = reader.next_log_probs(ids[:size])
        assert log_p.tolist() == pytest.approx(log_p_after(model, list(ids[:size])), rel=1e-9)


def test_next_is_the_step_distribution(tmp_path: Path) -> None:
    model = trained(tmp_path, english(), min_count=2)
    for context in ("", "the cat", "zebra", "one cat\nthe", "the cat sees the dog in"):
        ids = [
            i
            for line in context.split("\n")[:-1]
            for i in (*model.tokenizer.encode(line).tolist(), model.tokenizer.eos)
        ]
        ids += model.tokenizer.encode(context.split("\n")[-1]).tolist()
        log_p = log_p_after(model, ids)
        expected = sorted(range(len(log_p)), key=lambda i: (-log_p[i], i))[:6]
        result = model.next(context, top=6)
        assert [token for token, _ in result] == model.tokenizer.tokens(expected)
        assert [p for _, p in result] == pytest.approx([math.exp(log_p[i]) for i in expected], rel=1e-6)


def test_wrong_usage(tmp_path: Path) -> None:
    completer = Completer(trained(tmp_path, english()))
    with pytest.raises(ConfigError, match="top is 0"):
        completer.complete("the", top=0)
    with pytest.raises(InputError, match="not UTF-8"):
        completer.complete("the a\udcff")
    with pytest.raises(InputError, match="not UTF-8"):
        completer.complete("a\udcff a")


@pytest.mark.data
def test_a_keystroke_reads_no_more_than_the_word_before_it(data_folder: Path) -> None:
    model = chainrule.train("ngram", data_folder / "ptb" / "ptb.train.txt", order=3)
    completer = Completer(model)
    read = 0
    advance, step = model.lm.advance, model.lm.step

    class Counted:
        vocabulary = model.lm.vocabulary
        start = staticmethod(model.lm.start)

        def advance(self, batch: Batch, state: Any) -> Any:
            nonlocal read
            read += batch.inputs.size
            return advance(batch, state)

        def step(self, state: Any, ids: Ids) -> Any:
            nonlocal read
            read += len(ids)
            return step(state, ids)

    completer._prefix_cache.lm = cast("Any", Counted())
    sentences = (data_folder / "ptb" / "ptb.test.txt").read_text().splitlines()[:10]
    for sentence in sentences:
        read = 0
        for size in range(len(sentence)):
            completer.complete(sentence[:size], top=5)
        assert read <= len(sentence.split()) + 1  # each word once, and <s>
    assert completer.complete("the stock mar", top=1)[0].word == "market"
