"""The word tokenizer: hand-worked examples, a reference implementation of its rules, and round trips."""

import gzip
import io
import json
import math
import re
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import chainrule
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.model import Model
from chainrule.prepared_corpus import prepare_corpus
from chainrule.storage import verified_dir
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import JOINER, TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.punctuation import (
    is_punctuation,
    join,
    joined_forms,
    joined_sides,
    looks_pretokenised,
    split,
    split_spans,
    split_without_joiners,
)
from chainrule.tokenizers.tokenizer import Tokenizer, load_tokenizer, split_words
from chainrule.tokenizers.train import from_words, train

pytestmark = pytest.mark.native

J = JOINER
LINE = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=30)
PARTS = st.sampled_from(
    [
        *"abSs12.,:;'\"()-&@_/!? \t日本カ",
        "’",
        "é",
        "\u0301",
        "\xa0",
        "—",
        "😀",
        J,
        "http://",
        "www.",
        "<unk>",
        "’s",
        "U.S.",
    ]
)
ODD = st.lists(PARTS, max_size=14).map("".join)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", ""),
        (" \t ", ""),
        ("two  words\t", "two words"),
        ("don't won’t", "don't won’t"),
        ("John's boys'", f"John {J}'s boys {J}'"),
        ("’Tis o'clock", f"’{J} Tis o'clock"),
        ("e.g. this, i.e. that", f"e.g. this {J}, i.e. that"),
        ("the U.S. and U.S.A.", "the U.S. and U.S.A."),
        ("the end. A", f"the end {J}. A"),
        ("I. A", f"I {J}. A"),  # a single letter is not an abbreviation
        ("3.14 1,000 12:30", "3.14 1,000 12:30"),
        ("in 1999, 3.", f"in 1999 {J}, 3 {J}."),
        ("AT&T R&D a@b", "AT&T R&D a@b"),
        ("a & b", "a & b"),
        ("see http://x.com/a.", f"see http://x.com/a {J}."),
        ("(https://x.com/?q=a,b&c=1)", f"({J} https://x.com/?q=a,b&c=1 {J})"),
        ("www.x.org, ftp://y", f"www.x.org {J}, ftp {J}: {J}//{J} y"),
        ('"(quoted)"', f'" {J}({J} quoted {J}) {J}"'),
        ("wait... --well--", f"wait {J}... --{J} well {J}--"),
        ("?!", f"? {J}!"),
        ("well-known", f"well {J}-{J} known"),
        ("snake_case __init__", "snake_case __init__"),
        ("我爱北京。", f"我 {J}爱 {J}北 {J}京 {J}。"),
        ("カタカナ test", f"カ {J}タ {J}カ {J}ナ test"),
        ("日本 日本", f"日 {J}本 日 {J}本"),
        ("B站x", f"B {J}站{J} x"),
        ("한국어 텍스트.", f"한국어 텍스트 {J}."),  # Korean separates words by spaces
        ("ok😀 😀😀", f"ok {J}😀 😀😀"),
        ("a\xa0b", f"a {J}\xa0{J} b"),
        ("$5 50%", f"${J} 5 50 {J}%"),
        ("café cafe\u0301", "café cafe\u0301"),
        ("<unk> <s>", f"<unk> <{J} s {J}>"),
        (f"a{J} {J} {J}. .{J}a", f"a{J} {J} {J} {J}. .{J} {J}a"),  # a joiner in the text is a letter
    ],
)
def test_word_tokenizer_examples_worked_by_hand(text: str, tokens: str) -> None:
    assert split(text, "<unk>") == tokens
    assert join(tokens) == " ".join(split_words(text))


BLANKS = " \t"
HAN = [(0x3040, 0x30FF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF)]
HAN += [(0xFF66, 0xFF9D), (0x1B000, 0x1B16F), (0x20000, 0x3134F)]


def category(character: str) -> str:
    """`mark`, `han` or `word`, from Python's Unicode tables."""
    of_unicode = unicodedata.category(character)
    if character not in ("_", J) and (of_unicode[0] in "PS" or (of_unicode == "Zs" and character not in BLANKS)):
        return "mark"
    return "han" if any(first <= ord(character) <= last for first, last in HAN) else "word"


def classes(chunk: str) -> str:
    """One letter per character: d digit, l letter, w other word character, h ideograph, m mark."""
    return "".join(
        {"mark": "m", "han": "h"}.get(category(c)) or ("d" if c in "0123456789" else "w" if c in ("_", J) else "l")
        for c in chunk
    )


def reference_chunk(chunk: str) -> list[tuple[int, int, bool]]:
    """Start, end and whether it is a mark, for each token of a chunk without spaces."""
    kinds = classes(chunk)
    tokens: list[tuple[int, int, bool]] = []
    at = 0
    while at < len(chunk):
        end, is_one_mark = next_token(chunk, kinds, at)
        tokens.append((at, end, is_one_mark))
        at = end
    return tokens


def next_token(chunk: str, kinds: str, at: int) -> tuple[int, bool]:
    if re.match(r"https?://|www\.", chunk[at:]) and len(chunk[at:].encode()) <= 2048:
        address = chunk[at:].rstrip(".,;:!?)\"'>]")
        if J not in address:
            return at + len(address), False
    if kinds[at] == "h":
        return at + 1, True
    if kinds[at] == "m":
        if at and kinds[at - 1] == "l" and is_clitic(chunk, kinds, at):
            return at + 2, True
        same = at
        while same < len(chunk) and chunk[same] == chunk[at]:
            same += 1
        return same, True
    letters = 0
    while kinds[at + 2 * letters : at + 2 * letters + 2] == "lm" and chunk[at + 2 * letters + 1] == ".":
        letters += 1
    if 2 <= letters <= 16 and kinds[at + 2 * letters : at + 2 * letters + 1] not in ("l", "d", "w"):
        return at + 2 * letters, False
    end = at + 1
    while end < len(chunk):
        if kinds[end] in "ldw":
            end += 1
        elif kinds[end] == "m" and kinds[end + 1 : end + 2] in ("l", "d", "w") and is_inside(chunk, kinds, end):
            end += 2
        else:
            break
    return end, False


def is_clitic(chunk: str, kinds: str, at: int) -> bool:
    is_s = chunk[at] in "'’" and chunk[at + 1 : at + 2] in ("s", "S")
    return is_s and kinds[at + 2 : at + 3] not in ("l", "d", "w")


def is_inside(chunk: str, kinds: str, at: int) -> bool:
    around = kinds[at - 1] + kinds[at + 1]
    if J in (chunk[at - 1], chunk[at + 1]):
        return False
    if chunk[at] in "'’":
        return around == "ll" and not is_clitic(chunk, kinds, at)
    return around == "dd" if chunk[at] in ".,:" else chunk[at] in "&@"


def reference(text: str, placeholder: str) -> list[tuple[str, int, int]]:
    """The tokens of a line with their joiners and spans."""
    spans = []
    for match in re.finditer(r"[^ \t]+", text):
        if match[0] == placeholder:
            spans.append((match[0], *match.span()))
            continue
        tokens = reference_chunk(match[0])
        for number, (first, last, is_mark) in enumerate(tokens):
            left = J if is_mark and number else ""
            right = J if is_mark and number + 1 < len(tokens) and not tokens[number + 1][2] else ""
            spans.append((left + match[0][first:last] + right, match.start() + first, match.start() + last))
    return spans


@settings(max_examples=400, deadline=None)
@given(text=LINE | ODD)
@example(text="a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.")
@example(text="a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.")
@example(text="www." + "é" * 1022)
@example(text="www." + "é" * 1023)
@example(text="x's.a'sb'S")
def test_word_tokenizer_equals_the_reference_implementation(text: str) -> None:
    spans = reference(text, "<unk>")
    assert split_spans(text, "<unk>") == spans
    assert split(text, "<unk>") == " ".join(name for name, _, _ in spans)


@settings(max_examples=400, deadline=None)
@given(text=LINE | ODD)
def test_join_restores_the_split_text(text: str) -> None:
    assert join(split(text, "<unk>")) == " ".join(split_words(text))


@settings(max_examples=200, deadline=None)
@given(text=LINE | ODD, is_lower=st.booleans())
def test_decode_restores_known_tokens(text: str, is_lower: bool) -> None:
    config = TokenizerConfig(lowercase=is_lower)
    tokenizer = from_words(sorted(set(from_words([], config).words(text)) - {"<unk>", "<s>", "</s>"}), config)
    ids = tokenizer.encode(text).tolist()
    assert tokenizer.decode(ids) == tokenizer.canonicalize(text)
    again = Tokenizer.from_json(tokenizer.to_json(), config)
    assert again.decode(ids) == tokenizer.canonicalize(text)
    encoded = encode(Corpus.from_lines([text]), tokenizer)
    assert encoded.ids.tolist() == [*ids, tokenizer.eos]
    assert encoded.bytes == len(tokenizer.canonicalize(text).encode()) + 1  # the denominator of bits per byte


def test_backend_decoder_restores_text_without_joiners() -> None:
    line = "\"I don't know,\" said John's aunt (the U.S. one)... 我爱 http://x.com/a."
    tokenizer = train(Corpus.from_lines([line]), TokenizerConfig())
    assert tokenizer.backend.decode(tokenizer.encode(line).tolist()) == line


@settings(max_examples=200, deadline=None)
@given(text=LINE | ODD, locale=st.sampled_from(["", "tr"]))
@example(text="İ.X. İx, I\u0307y HTTP://A.com", locale="tr")
@example(text="İ.X. İx, I\u0307y HTTP://A.com", locale="")
def test_spans_refer_to_the_text_before_lower_casing(text: str, locale: Any) -> None:
    tokenizer = from_words([], TokenizerConfig(lowercase=True, locale=locale))
    spans = tokenizer.spans(text)
    assert [name for name, _, _ in spans] == tokenizer.words(text)
    end = 0
    for name, first, last in spans:
        assert not text[end:first].strip(BLANKS)  # only spaces between tokens
        assert tokenizer.normalize(text[first:last]) == name.removeprefix(J).removesuffix(J) or J in text
        end = last
    assert not text[end:].strip(BLANKS)


def test_turkish_lower_casing() -> None:
    lines = ["İSTANBUL ve ISPARTA, I\u0307zmir"]
    turkish = train(Corpus.from_lines(lines), TokenizerConfig(lowercase=True, locale="tr"))
    assert turkish.tokens(turkish.encode(lines[0]).tolist()) == ["istanbul", "ve", "ısparta", f"{J},", "izmir"]
    again = Tokenizer.from_json(turkish.to_json(), turkish.config)
    assert again.canonicalize("ISI İKİ") == "ısı iki"
    with pytest.raises(ConfigError, match="add --lowercase"):
        TokenizerConfig(locale="tr")
    with pytest.raises(ConfigError, match="choose tr or az"):
        TokenizerConfig(lowercase=True, locale="de")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [".", f"{J}.", f".{J}", f"{J}.{J}", f"{J}'s", "日", "...", "😀"])
def test_punctuation_marks_are_recognised(name: str) -> None:
    assert is_punctuation(name)
    assert joined_sides(name) == (name.startswith(J), name.endswith(J))


@pytest.mark.parametrize("name", ["a", "don't", "e.g.", "3.14", J, f"{J}a", f"a{J}", "http://x.com/a", ""])
def test_words_are_not_punctuation(name: str) -> None:
    assert not is_punctuation(name)
    assert joined_sides(name) == (False, False)


def test_word_list_adds_joined_forms_of_punctuation(tmp_path: Path) -> None:
    assert joined_forms("the") == ["the"]
    assert joined_forms("'s") == ["'s", f"{J}'s"]
    assert joined_forms(",") == [",", f"{J},", f",{J}", f"{J},{J}"]
    words = tmp_path / "words.txt"
    words.write_text("the\n,\n'S\nman\n")
    tokenizer = train(Corpus(), TokenizerConfig(vocab=str(words)))
    assert tokenizer.tokens(tokenizer.encode("the man'S, the").tolist()) == ["the", "man", f"{J}'S", f"{J},", "the"]
    tokenizer = train(Corpus(), TokenizerConfig(vocab=str(words), kind="whitespace"))
    assert tokenizer.vocab_size == 4 + 3


TEXT = '"I don\'t know," said he.\nHe (the man) said: "No..."\n\n我爱北京。 the man\'s hat, a hat\n'


def test_ids_do_not_depend_on_the_container_of_the_text(tmp_path: Path, monkeypatch: Any) -> None:
    lines = TEXT.split("\n")[:-1]
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    records = "".join(json.dumps({"text": line}) + "\n" for line in lines)
    (tmp_path / "a.jsonl").write_text(records, encoding="utf-8")
    corpora = [Corpus.of(tmp_path / name) for name in ("a.txt", "a.txt.gz", "a.jsonl")]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    corpora += [Corpus.from_lines(lines), Corpus.of("-")]
    results = []
    for corpus in corpora:
        prepared = prepare_corpus(corpus, TokenizerConfig(min_count=2))
        text = prepared.train
        sizes = (text.words, text.characters, text.bytes, text.lines, text.oov)
        results.append(
            (prepared.tokenizer.to_json(), prepared.tokenizer.config, text.ids.tolist(), text.spellings, sizes)
        )
    assert results[0][1].kind == "word"
    assert all(result == results[0] for result in results)
    assert results[0][4][2] == len(TEXT.encode())


@pytest.mark.parametrize(
    ("lines", "is_so"),
    [
        (["the cat sat .", "a dog , a cat"], True),
        (["mr. <unk> is chairman of <unk> of the dutch <unk> group"], True),  # as in the Penn Treebank
        (["it 's n't so", "a @-@ b"], True),
        (["The cat sat. A dog, a cat!"], False),
        (["no marks at all"], False),
        ([], False),
        (["He said: wait ... and went, (slowly) home."], False),
        (["Mr. B. did n't go to the U. S. then", "it 's Mr. A. of Acme Corp. now", "an Acme Corp. plan"], True),
        (["The cat sat.", "Hmm ... no.", "A dog sat."], False),  # the periods end lines
        (["So ... we sat. It rained. We left. No one came"], False),  # no word occurs twice with its period
        (
            ["We sat. You sat. So ... he sat down and they sat down and all sat there"],
            False,
        ),  # "sat" occurs without a period
    ],
)
def test_pretokenised_text_selects_the_whitespace_tokenizer(lines: list[str], is_so: bool) -> None:
    assert looks_pretokenised(Corpus.from_lines(lines), "<unk>") == is_so
    tokenizer = train(Corpus.from_lines([*lines, "x"]), TokenizerConfig())
    assert tokenizer.config.kind == ("whitespace" if is_so else "word")


def test_pretokenised_detection_reads_the_first_megabyte_only() -> None:
    raw, apart = "Yes, no. " * 20, "yes , no . " * 20
    size = (1 << 20) // len(raw) + 1
    assert not looks_pretokenised(Corpus.from_lines([raw] * size + [apart] * 4 * size), "<unk>")
    assert looks_pretokenised(Corpus.from_lines([apart] * size + [raw] * 4 * size), "<unk>")


def saved_model(text: str, folder_: Path, **chosen: Any) -> Model:
    model = chainrule.train(
        "ngram", Corpus.from_lines(text.split("\n")), order=2, smoothing="witten-bell", **chosen
    )
    model.save(folder_)
    loaded: Model = chainrule.load(folder_)
    return loaded


def test_stored_tokenizer_keeps_its_kind(tmp_path: Path) -> None:
    model = saved_model(TEXT, tmp_path / "m")
    assert model.tokenizer.config.kind == "word"
    apart = Corpus.from_lines(["he said , no ."] * 9)
    again = chainrule.train("ngram", apart, tokenizer=tmp_path / "m", order=2, smoothing="laplace")
    assert again.tokenizer.config.kind == "word"


def test_folder_from_before_punctuation_splitting_loads_as_whitespace(tmp_path: Path) -> None:
    model = saved_model(TEXT, tmp_path / "m", tokenizer="whitespace", min_count=1)
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config["tokenizer"]["kind"] = "word"
    del config["tokenizer"]["joiner"]
    del config["tokenizer"]["locale"]
    old = tmp_path / "old"
    sealed = verified_dir.open_dir(tmp_path / "m")
    files = {name: sealed.bytes(name) for name in sealed.files}
    files["config.json"] = json.dumps(config).encode()

    def fill(place: Path) -> None:
        for name, content in files.items():
            (place / name).write_bytes(content)

    verified_dir.write(old, fill, dict(sealed.facts))
    loaded = chainrule.load(old)
    assert loaded.tokenizer.config.kind == "whitespace"
    assert load_tokenizer(old).config.kind == "whitespace"
    lines = ['He said: "No..."', "the man's hat, a zebra"]
    assert [s.log_probs for s in loaded.scores(lines)] == [s.log_probs for s in model.scores(lines)]


def total_probability(model: Model, alphabet: str, longest: int) -> float:
    """Sum of p(line), spellings included, over all lines of these characters up to a length."""
    lines = {""}
    for _ in range(longest):
        lines |= {line + c for line in lines for c in alphabet}
    canonical_lines = sorted({model.tokenizer.canonicalize(line) for line in lines})
    return math.fsum(math.exp(score.log_prob_with_spelling) for score in model.scores(canonical_lines))


@pytest.mark.filterwarnings("ignore::chainrule.errors.ChainruleWarning")
@pytest.mark.parametrize("min_count", [1, 2])
def test_text_probabilities_sum_to_at_most_one(tmp_path: Path, min_count: int) -> None:
    model = saved_model("a a, a.\nb a,b\n(a) b\na\na\nb", tmp_path / "m", min_count=min_count)
    assert model.tokenizer.config.kind == "word"
    few, more = (total_probability(model, "ab,( ", longest) for longest in (2, 4))
    assert 0 < few < more <= 1


def test_text_without_word_boundaries_causes_a_warning() -> None:
    thai = ["ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอนหรือวรรณยุกต์"] * 1100
    with pytest.warns(ChainruleWarning, match="few blanks between words; choose --tokenizer char or bpe"):
        prepare_corpus(Corpus.from_lines(thai), TokenizerConfig())
    with pytest.warns(ChainruleWarning, match="choose --tokenizer word, char or bpe"):
        prepare_corpus(
            Corpus.from_lines(["我爱北京天安门天安门上太阳升" * 3] * 1100), TokenizerConfig(kind="whitespace")
        )
    lines = [f"the word{i} stands" for i in range(300)]
    with pytest.warns(ChainruleWarning, match=r"25% of the training text's tokens.*--min-count"):
        prepare_corpus(Corpus.from_lines(lines), TokenizerConfig(min_count=2))
    other = [f"the sign{i} stands" for i in range(300)]
    with pytest.warns(ChainruleWarning, match=r"25% of the validation text's tokens.*train on more text"):
        prepare_corpus(Corpus.from_lines(lines), TokenizerConfig(), valid=Corpus.from_lines(other))


def test_no_warning_for_ideographs_and_placeholders() -> None:
    chinese = ["我爱北京天安门，天安门上太阳升。"] * 200
    prepare_corpus(Corpus.from_lines(chinese), TokenizerConfig())  # each ideograph is a token
    placeholders = ["the <unk> <unk> stands , it <unk>"] * 300
    prepare_corpus(
        Corpus.from_lines(placeholders), TokenizerConfig()
    )  # the corpus itself contains the placeholders


def test_split_without_joiners_separates_punctuation() -> None:
    assert split_without_joiners("a, b\n\n(c) d") == b"a , b \n\n( c ) d "


def test_split_rejects_a_lone_surrogate() -> None:
    with pytest.raises(InputError, match="not UTF-8"):
        split("a\ud800", "<unk>")


OPEN_LINES = [
    'He said (as he did) that "the cat" was well-known.',
    'She said "go home" and (then) left, as "he" did.',
    "He - and she - paid $5 (or $6) for f(x).",
]


@pytest.mark.parametrize(
    ("prompt", "last"),
    [
        ("He said (", f"({J}"),
        ('He said "', f'"{J}'),
        ("He said ( ", "<unk>"),  # a bracket between spaces, which does not occur in the training text
        ('She said "go home"', f'{J}"'),  # closing quote
        ("for f(", f"{J}({J}"),
        ("He paid $", f"${J}"),
        ("He -", "-"),  # between spaces more often than joined
        ("was well-", f"{J}-{J}"),
        ("She left,", f"{J},"),
        ("He said", "said"),
        ("He said “", "<unk>"),
    ],
)
def test_encode_prompt_joins_the_last_mark_as_in_training(prompt: str, last: str) -> None:
    tokenizer = train(Corpus.from_lines(OPEN_LINES), TokenizerConfig())
    ids = tokenizer.encode_prompt(prompt).tolist()
    assert tokenizer.tokens(ids)[-1] == last
    assert ids[:-1] == tokenizer.encode(prompt).tolist()[:-1]


def test_encode_prompt_equals_encode_for_other_tokenizers() -> None:
    for kind in ("whitespace", "char", "byte"):
        tokenizer = train(Corpus.from_lines(OPEN_LINES), TokenizerConfig(kind=kind))
        assert tokenizer.encode_prompt('He said "').tolist() == tokenizer.encode('He said "').tolist()
    words = train(Corpus.from_lines(OPEN_LINES), TokenizerConfig())
    assert words.encode_prompt("").tolist() == []


@pytest.mark.parametrize(("prompt", "text"), [("He said (", "as he did) that"), ('He said "', 'the cat" was well')])
def test_generation_after_an_opening_mark_adds_no_space(prompt: str, text: str) -> None:
    model = chainrule.train("ngram", Corpus.from_lines(OPEN_LINES[:1]), order=3, smoothing="witten-bell")
    settings: dict[str, Any] = {"strategy": "greedy", "max_tokens": 5}
    assert str(model.generate(prompt, **settings)) == prompt + text
    assert "".join(model.stream(prompt, **settings)) == text
    assert model.next(prompt, 1)[0][0] == text.split()[0]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "is_so"),
    [
        ("ptb/ptb.train.txt", True),
        ("wikitext2/wiki.train.tokens", True),
        ("sst2/stsa.binary.train", True),
        ("nbest_wsj/treebank-sentences-spoken-validate.txt", True),
        ("nbest_wsj/treebank-sentences-spoken-test.txt", True),
        ("text8_head/text8.head.xz", False),  # no punctuation: both tokenizers split it identically
        ("novels_en/novels89.txt.xz", False),
        ("tinyshakespeare/input.txt", False),
        ("multi30k/train.en", False),
        ("multi30k/train.de", False),
        ("sms_spam/SMSSpamCollection", False),
        ("spelling/big.txt.gz", False),
    ],
)
def test_pretokenised_detection_on_benchmark_texts(data_folder: Path, name: str, is_so: bool) -> None:
    assert looks_pretokenised(Corpus.of(data_folder / name), "<unk>") == is_so
