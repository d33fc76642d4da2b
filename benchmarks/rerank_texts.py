"""Prepare the texts of the reranking benchmark: lower case, no punctuation, spelled-out numbers.

The spoken-form sentences distributed with the lists are the Penn Treebank from line 39,361 of ptb.train.txt on,
with ptb.valid.txt and ptb.test.txt. Only the lines before that are used from ptb.train.txt, so that no sentence
occurs twice and no held-out sentence is trained on. Numbers, written as N there, are replaced by random numbers
that precede the same word in the spoken sentences.
"""

import lzma
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.corpora import DATA

Sentence = list[str]

NOT_SPOKEN: Final = 39_360  # lines of ptb.train.txt that are not in the spoken-form files
HELD_OUT: Final = 800  # spoken sentences
LEAST_EXAMPLES: Final = 5  # of numbers before a word; with fewer, numbers before any word are used
NUMERALS: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
)
ONES: Final = NUMERALS.split()[:20]
TENS: Final = ["zero", "ten", *NUMERALS.split()[20:]]
LARGE: Final = ((10**9, "billion"), (10**6, "million"), (10**3, "thousand"), (100, "hundred"))
NUMBER_WORDS: Final = frozenset([*ONES, *TENS, "hundred", "thousand", "point", "oh", "half"])
WRITTEN: Final = {
    "%": "percent", "&": "and", "co.": "company", "corp.": "corporation", "inc.": "incorporated",
    "ltd.": "limited", "bros.": "brothers", "vs.": "versus", "no.": "number", "st.": "saint", "jr.": "junior",
    "sen.": "senator", "rep.": "representative", "gov.": "governor", "jan.": "january", "feb.": "february",
    "aug.": "august", "sept.": "september", "oct.": "october", "nov.": "november", "dec.": "december",
    "calif.": "california", "mass.": "massachusetts", "pa.": "pennsylvania", "conn.": "connecticut",
    "n.j.": "new jersey", "n.y.": "new york",
}  # fmt: skip
WITH_PERIOD: Final = frozenset(["mr.", "mrs.", "ms.", "dr.", "messrs."])
MONEY: Final = {"$": "dollars", "£": "pounds"}
CLITIC: Final = re.compile(r"(n't|'s|'re|'ve|'ll|'d|'m|')$")
PARTS: Final = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9][0-9,.]*[0-9]|[0-9]|\.[0-9]+")


def cardinal(n: int) -> Sentence:
    """Spell out an integer."""
    if n < 20:
        return [ONES[n]]
    if n < 100:
        return [TENS[n // 10], *([ONES[n % 10]] if n % 10 else [])]
    size, name = next(pair for pair in LARGE if n >= pair[0])
    return [*cardinal(n // size), name, *(cardinal(n % size) if n % size else [])]


def number(text: str) -> Sentence:
    """Spell out a number with optional commas and decimal point; four digits may be a year."""
    whole, _, digits = text.replace(",", "").partition(".")
    if len(whole) > 12 or "." in digits:
        return [ONES[int(c)] for c in whole + digits if c.isdigit()]
    is_year = len(whole) == 4 and whole == text and "1100" < whole < "2000" and whole[2:] > "09"
    words = [*cardinal(int(whole[:2])), *cardinal(int(whole[2:]))] if is_year else cardinal(int(whole or 0))
    return [*words, "point", *(ONES[int(c)] for c in digits)] if digits else words


def spoken(words: Iterable[str]) -> Sentence:
    """Convert written words to spoken form; N (an unknown number) is kept."""
    words_out: Sentence = []
    for written in after_amounts(list(words)):
        word = written.lower()
        if written in ("N", "<unk>") or word in WITH_PERIOD or re.fullmatch(r"[a-z]\.|'[a-z]*|n't", word):
            words_out.append(written if written == "N" else word)
        elif word in WRITTEN:
            words_out += WRITTEN[word].split()
        elif re.fullmatch(r"([a-z]\.){2,}", word):  # u.s. is u. s.
            words_out += [f"{letter}." for letter in word.split(".")[:-1]]
        else:
            for part in PARTS.findall(word):
                words_out += number(part) if part[0] in "0123456789." else [part]
    return words_out


def after_amounts(words: Sentence) -> Sentence:
    """Move currencies behind the amount: $ 5 million -> 5 million dollars."""
    words_out: Sentence = []
    currency = ""
    for i, word in enumerate(words):
        if word in MONEY:
            currency = MONEY[word]
            continue
        words_out.append(word)
        if currency and not (i + 1 < len(words) and words[i + 1] in ("million", "billion", "trillion", "N")):
            words_out.append(currency)
            currency = ""
    return words_out


def split_clitic(word: str) -> Sentence:
    """Split a clitic: don't -> do n't."""
    match = CLITIC.search(word)
    return [word[: match.start()], match[1]] if match and match.start() else [word]


def sentences(words: Iterable[str]) -> Iterator[Sentence]:
    """Split words into sentences at final punctuation."""
    current: Sentence = []
    for word in words:
        if word in (".", "!", "?", ";"):
            yield current
            current = []
        else:
            current.append(word)
    yield current


def wikitext2() -> Iterator[Sentence]:
    """Yield the sentences of WikiText-2, all splits, without headings."""
    for part in ("train", "valid", "test"):
        for line in (DATA / "wikitext2" / f"wiki.{part}.tokens").open(encoding="utf-8"):
            if not line.strip().startswith("="):
                joined = line.replace(" @-@ ", " ").replace(" @,@ ", ",").replace(" @.@ ", ".")
                yield from map(spoken, sentences(joined.split()))


def columns(paths: Iterable[Path], column: int, is_word: Callable[[str], bool]) -> Iterator[Sentence]:
    """Yield the sentences of column files."""
    for path in paths:
        current: Sentence = []
        with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
            for line in file:
                if is_word(line):
                    current.append(line.split()[column])
                elif not line.strip():
                    yield spoken(current)
                    current = []


def conll() -> Iterator[Sentence]:
    """Yield the sentences of CoNLL-2003 (Reuters news)."""
    files = [DATA / "conll2003" / f"eng.{part}" for part in ("train", "testa", "testb")]
    return columns(files, 0, lambda line: bool(line.strip()) and not line.startswith("-DOCSTART-"))


def ewt() -> Iterator[Sentence]:
    """Yield the sentences of the English Web Treebank."""
    parts = ("train.conllu.xz", "dev.conllu", "test.conllu")
    files = [DATA / "ud_english_ewt" / f"en_ewt-ud-{part}" for part in parts]
    return columns(files, 1, lambda line: bool(re.match(r"[0-9]+\t", line)))


def novels() -> Iterator[Sentence]:
    """Yield the sentences of 89 novels: 13 million out-of-domain words."""
    paragraph: list[str] = []
    with lzma.open(DATA / "novels_en" / "novels89.txt.xz", "rt", encoding="utf-8") as file:
        for line in file:
            if line.strip():
                paragraph.append(line.strip())
                continue
            text = " ".join(paragraph).replace("’", "'").replace("--", " ")
            paragraph = []
            for sentence in re.split(r"(?<=[^rs.][.!?;])[\"'”)]*\s+", text):
                words = [word.strip("\"'“”()[]_*,;:!?.—-") for word in sentence.split()]
                yield spoken(part for word in words if word for part in split_clitic(word.lower()))


OTHERS: Final = {"conll": conll, "ewt": ewt, "wikitext2": wikitext2, "novels": novels}
"""Additional texts by name."""


def treebank() -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
    """Return the Penn Treebank in spoken form: original sentences, sentences with filled numbers, held-out ones."""
    folder = DATA / "nbest_wsj"
    spoken_lines = [
        line.lower().split()
        for part in ("validate", "test")
        for line in (folder / f"treebank-sentences-spoken-{part}.txt").open(encoding="utf-8")
    ]
    rng = random.Random(0)
    held_out = set(rng.sample(range(len(spoken_lines)), HELD_OUT))
    training = [sentence for i, sentence in enumerate(spoken_lines) if i not in held_out]
    written = (DATA / "ptb" / "ptb.train.txt").read_text(encoding="utf-8").splitlines()[:NOT_SPOKEN]
    filled = with_numbers([spoken(line.split()) for line in written], training, rng)
    return training, filled, [spoken_lines[i] for i in sorted(held_out)]


def with_numbers(texts: list[Sentence], examples: list[Sentence], rng: random.Random) -> list[Sentence]:
    """Replace each N, or run of them, by a number that precedes the same word in an example."""
    known: dict[str, list[Sentence]] = defaultdict(list)
    for sentence in examples:
        for phrase, after in runs(sentence, NUMBER_WORDS):
            known[after].append(phrase)
    anything = [phrase for phrases in known.values() for phrase in phrases]
    filled = []
    for sentence in texts:
        drawn = iter(
            rng.choice(known[after] if len(known.get(after, ())) >= LEAST_EXAMPLES else anything)
            for _, after in runs(sentence, frozenset("N"))
        )
        words_out: Sentence = []
        for i, word in enumerate(sentence):
            words_out += [word] if word != "N" else next(drawn) if i == 0 or sentence[i - 1] != "N" else []
        filled.append(words_out)
    return filled


def runs(sentence: Sentence, words: frozenset[str]) -> Iterator[tuple[Sentence, str]]:
    """Yield the maximal runs of these words with the word after each ("" at the end)."""
    current: Sentence = []
    for word in [*sentence, ""]:
        if word in words:
            current.append(word)
        elif current:
            yield current, word
            current = []


def write_texts(folder: Path, others: Iterable[str], lists: Iterable[str]) -> None:
    """Write all texts, one sentence per line, and the vocabulary (n-best words, repeated treebank words)."""
    folder.mkdir(parents=True, exist_ok=True)
    spoken_lines, filled, held_out = treebank()
    texts: dict[str, Iterable[Sentence]] = {"spoken": spoken_lines, "ptb": filled, "held-out": held_out}
    texts |= {name: OTHERS[name]() for name in others}
    for name, text in texts.items():
        lines = (" ".join(sentence) for sentence in text if sentence)
        (folder / f"{name}.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    counts = Counter(word for sentence in [*spoken_lines, *filled] for word in sentence)
    words = {word for text in lists for word in text.split()} | {word for word, n in counts.items() if n > 1}
    (folder / "vocab.txt").write_text("\n".join([*sorted(words - {"<unk>"}), ""]), encoding="utf-8")
