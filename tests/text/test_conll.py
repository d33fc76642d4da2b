import gzip
import io
import lzma
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from chainrule.errors import ChainruleWarning, ConfigError, InputError, NotFoundError
from chainrule.text.conll import HEADERS, TaggedSentence, read_tagged
from text.tagging_words import read_words

COLUMNS = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

# SYM I-NP O
1 CD I-NP O
"""
SENTENCES = [TaggedSentence(("EU", "rejects"), ("I-ORG", "O")), TaggedSentence(("#", "1"), ("O", "O"))]


def conllu_line(number: str, form: str, upos: str, xpos: str) -> str:
    # ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC
    return "\t".join([number, form, "_", upos, xpos, "_", "0", "dep", "_", "_"])


CONLLU = "\n".join(
    [
        "# sent_id = 1",
        "# text = I don't see 10 000",
        conllu_line("1", "I", "PRON", "PRP"),
        conllu_line("2-3", "don't", "_", "_"),
        conllu_line("2", "do", "AUX", "VBP"),
        conllu_line("3", "n't", "PART", "RB"),
        conllu_line("4", "see", "VERB", "VB"),
        conllu_line("4.1", "them", "_", "PRP"),
        conllu_line("5", "10 000", "NUM", "CD"),
        "",
        conllu_line("1", "_", "PUNCT", "NFP"),
        "",
        "",
    ]
)
WORDS = [("I", "do", "n't", "see", "10 000"), ("_",)]
UPOS = [("PRON", "AUX", "PART", "VERB", "NUM"), ("PUNCT",)]
XPOS = [("PRP", "VBP", "RB", "VB", "CD"), ("NFP",)]


def store(folder: Path, text: str, name: str = "text") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8", newline="")
    return file


def test_columns_separated_by_spaces(tmp_path: Path) -> None:
    file = store(tmp_path, COLUMNS)
    assert read_tagged(file) == SENTENCES
    assert [sentence.tags for sentence in read_tagged(file, column=2)] == [("NNP", "VBZ"), ("SYM", "CD")]
    assert read_tagged(file, column="3") == read_tagged(str(file), column=3)
    assert read_words(file) == [sentence.words for sentence in SENTENCES]


@pytest.mark.parametrize(
    "text",
    [
        COLUMNS.replace(" ", "\t"),
        COLUMNS.replace(" ", "   "),
        COLUMNS.replace("\n\n", "\n\n \t\n\n"),
        COLUMNS.replace("\n", "\r\n"),
        "\ufeff" + COLUMNS,
        "\n\n" + COLUMNS.rstrip("\n"),
        COLUMNS.replace("\n\nEU", "\nEU"),  # a -DOCSTART- line ends a sentence by itself
        COLUMNS.replace("-DOCSTART- -X- O O", "-DOCSTART- (1 EU)"),
        COLUMNS.replace("EU NNP I-NP I-ORG", " EU\tNNP \t I-NP\tI-ORG "),
    ],
)
def test_equivalent_column_files_give_the_same_sentences(tmp_path: Path, text: str) -> None:
    assert read_tagged(store(tmp_path, text)) == SENTENCES


def test_only_spaces_and_tabs_separate_columns(tmp_path: Path) -> None:
    file = store(tmp_path, "10\u00a0000 NUM\nNew York\tPROPN\n\n\u2028 X\n")
    assert read_tagged(file) == [
        TaggedSentence(("10\u00a0000", "New York"), ("NUM", "PROPN")),
        TaggedSentence(("\u2028",), ("X",)),
    ]


@pytest.mark.parametrize("name", ["text", "text.conllu", "TEXT.CONLLU", "text.tsv"])
def test_conllu_is_detected_by_suffix_or_content(tmp_path: Path, name: str) -> None:
    file = store(tmp_path, CONLLU, name)
    assert read_tagged(file) == [TaggedSentence(words, tags) for words, tags in zip(WORDS, UPOS, strict=True)]
    assert [sentence.tags for sentence in read_tagged(file, column="xpos")] == XPOS
    assert [sentence.tags for sentence in read_tagged(file, column="UPOS")] == UPOS
    assert [sentence.tags for sentence in read_tagged(file, column=8)] == [("dep",) * 5, ("dep",)]
    assert read_words(file) == WORDS


def test_conllu_is_detected_by_ranges_without_comments(tmp_path: Path) -> None:
    lines = [conllu_line("1-2", "zum", "_", "_"), conllu_line("1", "zu", "ADP", "APPR")]
    lines += [conllu_line("2", "dem", "DET", "ART")]
    assert read_tagged(store(tmp_path, "\n".join(lines))) == [TaggedSentence(("zu", "dem"), ("ADP", "DET"))]


def test_ten_columns_without_ids_are_not_conllu(tmp_path: Path) -> None:
    assert read_tagged(store(tmp_path, "word" + "\tx" * 8 + "\ttag\n")) == [TaggedSentence(("word",), ("tag",))]


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstandard.compress)]
)
def test_compressed_column_files(tmp_path: Path, suffix: str, pack: object) -> None:
    assert callable(pack)
    columns, conllu, plain = (tmp_path / f"{name}{suffix}" for name in ("text", "text.conllu", "text.txt"))
    columns.write_bytes(pack(COLUMNS.encode()))
    conllu.write_bytes(pack(("# only a comment\n\n" + CONLLU).encode()))
    plain.write_bytes(pack(b"a b\n"))
    assert read_tagged(columns) == SENTENCES
    assert [sentence.words for sentence in read_tagged(conllu)] == WORDS
    assert read_words(plain) == [("a", "b")]


def test_tagged_text_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, words in [(COLUMNS, [sentence.words for sentence in SENTENCES]), (CONLLU, WORDS)]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert [sentence.words for sentence in read_tagged("-")] == words
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a O\n\nb\n")))
    with pytest.raises(InputError, match="standard input, line 3 has one column but the first line has 2"):
        read_tagged("-")


def test_folder_columns_are_checked_per_file(tmp_path: Path) -> None:
    store(tmp_path, "a X\n", "1")
    store(tmp_path, CONLLU, "2.conllu")
    store(tmp_path, "b _ _ Y\nc _ _\n", "3")
    with pytest.raises(InputError, match=r"3, line 2 has 3 columns but the first line has 4"):
        read_tagged(tmp_path)
    store(tmp_path, "b _ _ Y\n", "3")
    assert [sentence.words for sentence in read_tagged(tmp_path)] == [("a",), *WORDS, ("b",)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a X\nb\n", r"text, line 2 has one column but the first line has 2; correct it"),
        ("a X\nb Y Z\n", r"text, line 2 has 3 columns but the first line has 2; correct it"),
        ("# by hand, 2020\na X\n", r"text, line 1 looks like a comment, '# by hand, 2020'; .*remove the line"),
        ("a X\n\n#id 1 2\nb Y\n", r"text, line 3 looks like a comment"),
        ("a\nb\n", r"text, line 1 has one column and no tags"),
        ("\na X\nb _\n", r"text, line 3: 'b' has no tag in column 2 \('_'\)"),
        ("a\tX\nb\t\n", r"text, line 2: 'b' has no tag in column 2 \(''\)"),
        ("a\tX\n\tX\n", r"text, line 2 has no word in column 1"),
        ("a\tDT I-NP\n", r"text, line 1: the tag 'DT I-NP' of 'a' contains a blank"),
        ("", r"text contains no sentence"),
        ("\n \n-DOCSTART- O\n\n", r"text contains no sentence"),
    ],
)
def test_invalid_columns_are_rejected_with_line_number(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_tagged(store(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CONLLU + "3\tword\tNOUN\n", r"text\.conllu, line 13 has 3 columns separated by tabs but CoNLL-U has 10"),
        (
            CONLLU.replace("\t", " "),
            r"text\.conllu, line 3 has one column separated",
        ),  # also without the word that contains a space
        (CONLLU.replace("4.1", "4a"), r"text\.conllu, line 8 begins with '4a'"),
        (CONLLU.replace("AUX", "_"), r"text\.conllu, line 5: 'do' has no tag in column 4 \('_'\)"),
        (CONLLU.replace("\tsee\t", "\t\t"), r"text\.conllu, line 7 has no word in column 2"),
        ("# text = nothing\n\n", r"text\.conllu contains no sentence"),
        (conllu_line("1-2", "del", "_", "_") + "\n", r"text\.conllu contains no sentence"),
    ],
)
def test_invalid_conllu_is_rejected_with_line_number(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_tagged(store(tmp_path, text, "text.conllu"))


@pytest.mark.parametrize("column", [0, -1, 5, "5"])
def test_missing_tag_column_is_rejected(tmp_path: Path, column: int | str) -> None:
    with pytest.raises(InputError, match=rf"text, line 3 has 4 columns, so there is no column {column}; .*1 to 4"):
        read_tagged(store(tmp_path, COLUMNS), column=column)


def test_word_column_is_rejected_as_tag_column(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 3 has words in column 1"):
        read_tagged(store(tmp_path, COLUMNS), column=1)
    with pytest.raises(InputError, match="line 3 has words in column 2"):
        read_tagged(store(tmp_path, CONLLU), column=2)


def test_id_column_is_rejected_as_tag_column(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 3 has word ids in column 1"):
        read_tagged(store(tmp_path, CONLLU), column="1")


def test_header_line_causes_a_warning(tmp_path: Path) -> None:
    with pytest.warns(ChainruleWarning, match=r"text, line 1 looks like a header; remove it$"):
        read_tagged(store(tmp_path, "Token POS\nthe DET\nsaw NOUN\n"))
    for text in ("word NOUN\n", "word NOUN\nsaw NOUN\n", "the DET\nword NOUN\n", "cat POS\nthe DET\n"):
        read_tagged(store(tmp_path, text))  # no warning; warnings are errors in tests


def test_unknown_column_name_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'pos'; choose upos or xpos"):
        read_tagged(store(tmp_path, CONLLU), column="pos")
    with pytest.raises(ConfigError, match=r"'upos' but .*text is not CoNLL-U"):
        read_tagged(store(tmp_path, COLUMNS), column="upos")


def test_longer_lines_are_allowed_with_a_named_column(tmp_path: Path) -> None:
    assert read_tagged(store(tmp_path, "a X\nb Y Z\n"), column=2) == [TaggedSentence(("a", "b"), ("X", "Y"))]


def test_unreadable_tagged_files_are_rejected(tmp_path: Path) -> None:
    for reader in (read_tagged, read_words):
        with pytest.raises(NotFoundError, match="there is no file or folder"):
            reader(tmp_path / "absent.conllu")
    file = tmp_path / "latin"
    file.write_bytes(b"caf\xe9 NN\n")
    with pytest.raises(InputError, match="byte 3"):
        read_tagged(file)
    assert read_tagged(file, errors="replace") == [TaggedSentence(("caf\ufffd",), ("NN",))]


def test_read_words_accepts_files_without_tags(tmp_path: Path) -> None:
    assert read_words(store(tmp_path, "a\nb\n\n\nc\n")) == [("a", "b"), ("c",)]
    assert read_words(store(tmp_path, "a _\nb _\n")) == [("a", "b")]
    with pytest.raises(
        InputError, match=r"line 2 has 2 columns but the first line has 3; .*plain text \(--plain\)"
    ):
        read_words(store(tmp_path, "the cat sat\non mats\n"))


def test_read_words_from_plain_text(tmp_path: Path) -> None:
    text = " the cat\tsat \n\n\u00a0x\n"
    words = [("the", "cat", "sat"), (), ("\u00a0x",)]
    assert read_words(store(tmp_path, text, "text.TXT")) == words
    assert read_words(store(tmp_path, text), plain=True) == words
    assert read_words(store(tmp_path, COLUMNS, "columns.txt"), plain=False) == [s.words for s in SENTENCES]
    with pytest.raises(InputError, match=r"text\.txt contains no sentence"):
        read_words(store(tmp_path, "\n \n", "text.txt"))


def test_tagged_sentence_requires_equal_lengths() -> None:
    with pytest.raises(InputError, match="2 words have 1 tags"):
        TaggedSentence(("a", "b"), ("X",))


NAMES = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1).filter(
    lambda name: name != "_" and not name.startswith("-DOCSTART-") and name.lower() not in HEADERS
)


@given(st.lists(st.lists(st.tuples(NAMES, NAMES), min_size=1), min_size=1), st.sampled_from(" \t"))
def test_written_columns_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[list[tuple[str, str]]], blank: str
) -> None:
    text = "\n".join("".join(f"{word}{blank}{tag}\n" for word, tag in pairs) for pairs in sentences)
    tagged = read_tagged(store(tmp_path_factory.mktemp("columns"), text))
    assert [list(zip(sentence.words, sentence.tags, strict=True)) for sentence in tagged] == sentences


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "sentences", "words"),
    [("train", 14_041, 203_621), ("testa", 3_250, 51_362), ("testb", 3_453, 46_435)],
)
def test_conll_2003_has_the_published_counts(data_folder: Path, name: str, sentences: int, words: int) -> None:
    # Counts of Tjong Kim Sang & De Meulder (2003), without the -DOCSTART- lines.
    tagged = read_tagged(data_folder / "conll2003" / f"eng.{name}")
    assert (len(tagged), sum(len(sentence.words) for sentence in tagged)) == (sentences, words)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "sentences", "words"),
    [("train.conllu.xz", 12_544, 204_577), ("dev.conllu", 2_001, 25_147), ("test.conllu", 2_077, 25_094)],
)
def test_english_web_treebank_has_the_published_counts(
    data_folder: Path, name: str, sentences: int, words: int
) -> None:
    tagged = read_tagged(data_folder / "ud_english_ewt" / f"en_ewt-ud-{name}")
    assert (len(tagged), sum(len(sentence.words) for sentence in tagged)) == (sentences, words)
    assert len({tag for sentence in tagged for tag in sentence.tags}) == 17
