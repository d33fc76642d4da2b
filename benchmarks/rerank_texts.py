"""The texts of the reranking benchmark, all in the form of its lists: lower case, no punctuation, numbers as words.

The sentences in spoken form that come with the lists are the Penn Treebank from line 39,361 of ptb.train.txt on,
with ptb.valid.txt and ptb.test.txt: of ptb.train.txt only what is before is taken, so that no sentence is there
twice and none that is held out is learnt. Its numbers are written N: each becomes one of the numbers that the
spoken sentences have before the same word.
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

NOT_SPOKEN: Final = 39_360  # lines of ptb.train.txt before the part that is there in spoken form
HELD_OUT: Final = 800  # spoken sentences
LEAST_EXAMPLES: Final = 5  # numbers before a word, or those before any word are drawn from
NAMES: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
)
ONES: Final = NAMES.split()[:20]
TENS: Final = ["zero", "ten", *NAMES.split()[20:]]
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
    """A whole number in words."""
    if n < 20:
        return [ONES[n]]
    if n < 100:
        return [TENS[n // 10], *([ONES[n % 10]] if n % 10 else [])]
    size, name = next(pair for pair in LARGE if n >= pair[0])
    return [*cardinal(n // size), name, *(cardinal(n % size) if n % size else [])]


def number(text: str) -> Sentence:
    """Digits, with commas or a point, in words; what looks like a year is read as one."""
    whole, _, digits = text.replace(",", "").partition(".")
    if len(whole) > 12 or "." in digits:
        return [ONES[int(c)] for c in whole + digits if c.isdigit()]
    is_year = len(whole) == 4 and whole == text and "1100" < whole < "2000" and whole[2:] > "09"
    words = [*cardinal(int(whole[:2])), *cardinal(int(whole[2:]))] if is_year else cardinal(int(whole or 0))
    return [*words, "point", *(ONES[int(c)] for c in digits)] if digits else words


def spoken(words: Iterable[str]) -> Sentence:
    """Words of a written text as they are said; N, a number nobody knows, stays."""
    said: Sentence = []
    for written in after_amounts(list(words)):
        word = written.lower()
        if written in ("N", "<unk>") or word in WITH_PERIOD or re.fullmatch(r"[a-z]\.|'[a-z]*|n't", word):
            said.append(written if written == "N" else word)
        elif word in WRITTEN:
            said += WRITTEN[word].split()
        elif re.fullmatch(r"([a-z]\.){2,}", word):  # u.s. is u. s.
            said += [f"{letter}." for letter in word.split(".")[:-1]]
        else:
            for part in PARTS.findall(word):
                said += number(part) if part[0] in "0123456789." else [part]
    return said


def after_amounts(words: Sentence) -> Sentence:
    """$ 5 million as 5 million dollars."""
    said: Sentence = []
    waiting = ""
    for i, word in enumerate(words):
        if word in MONEY:
            waiting = MONEY[word]
            continue
        said.append(word)
        if waiting and not (i + 1 < len(words) and words[i + 1] in ("million", "billion", "trillion", "N")):
            said.append(waiting)
            waiting = ""
    return said


def cut_clitics(word: str) -> Sentence:
    """Don't as do n't."""
    found = CLITIC.search(word)
    return [word[: found.start()], found[1]] if found and found.start() else [word]


def sentences(words: Iterable[str]) -> Iterator[Sentence]:
    """What stands between periods."""
    begun: Sentence = []
    for word in words:
        if word in (".", "!", "?", ";"):
            yield begun
            begun = []
        else:
            begun.append(word)
    yield begun


def wikitext2() -> Iterator[Sentence]:
    """WikiText-2, all parts, without titles."""
    for part in ("train", "valid", "test"):
        for line in (DATA / "wikitext2" / f"wiki.{part}.tokens").open(encoding="utf-8"):
            if not line.strip().startswith("="):
                joined = line.replace(" @-@ ", " ").replace(" @,@ ", ",").replace(" @.@ ", ".")
                yield from map(spoken, sentences(joined.split()))


def columns(paths: Iterable[Path], place: int, is_word: Callable[[str], bool]) -> Iterator[Sentence]:
    """The words of files of columns."""
    for path in paths:
        begun: Sentence = []
        with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
            for line in file:
                if is_word(line):
                    begun.append(line.split()[place])
                elif not line.strip():
                    yield spoken(begun)
                    begun = []


def conll() -> Iterator[Sentence]:
    """The Reuters news of CoNLL-2003."""
    files = [DATA / "conll2003" / f"eng.{part}" for part in ("train", "testa", "testb")]
    return columns(files, 0, lambda line: bool(line.strip()) and not line.startswith("-DOCSTART-"))


def ewt() -> Iterator[Sentence]:
    """The English Web Treebank."""
    parts = ("train.conllu.xz", "dev.conllu", "test.conllu")
    files = [DATA / "ud_english_ewt" / f"en_ewt-ud-{part}" for part in parts]
    return columns(files, 1, lambda line: bool(re.match(r"[0-9]+\t", line)))


def novels() -> Iterator[Sentence]:
    """89 novels: 13 million words, far from the matter."""
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
                yield spoken(part for word in words if word for part in cut_clitics(word.lower()))


OTHERS: Final = {"conll": conll, "ewt": ewt, "wikitext2": wikitext2, "novels": novels}
"""Texts of other kinds, by name."""


def treebank() -> tuple[list[Sentence], list[Sentence], list[Sentence]]:
    """The Penn Treebank as it is said: sentences given so, those written with N, and those held out."""
    folder = DATA / "nbest_wsj"
    given = [
        line.lower().split()
        for part in ("validate", "test")
        for line in (folder / f"treebank-sentences-spoken-{part}.txt").open(encoding="utf-8")
    ]
    rng = random.Random(0)
    held_out = set(rng.sample(range(len(given)), HELD_OUT))
    kept = [sentence for i, sentence in enumerate(given) if i not in held_out]
    written = (DATA / "ptb" / "ptb.train.txt").read_text(encoding="utf-8").splitlines()[:NOT_SPOKEN]
    filled = with_numbers([spoken(line.split()) for line in written], kept, rng)
    return kept, filled, [given[i] for i in sorted(held_out)]


def with_numbers(texts: list[Sentence], examples: list[Sentence], rng: random.Random) -> list[Sentence]:
    """Each N, or row of them, as a number that an example has before the same word."""
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
        said: Sentence = []
        for i, word in enumerate(sentence):
            said += [word] if word != "N" else next(drawn) if i == 0 or sentence[i - 1] != "N" else []
        filled.append(said)
    return filled


def runs(sentence: Sentence, words: frozenset[str]) -> Iterator[tuple[Sentence, str]]:
    """The longest runs of these words, and the word after each; nothing at the end."""
    begun: Sentence = []
    for word in [*sentence, ""]:
        if word in words:
            begun.append(word)
        elif begun:
            yield begun, word
            begun = []


def write_texts(folder: Path, others: Iterable[str], lists: Iterable[str]) -> None:
    """All texts, a sentence a line, and the words to know: those of the lists, and what the treebank has twice."""
    folder.mkdir(parents=True, exist_ok=True)
    given, filled, held_out = treebank()
    texts: dict[str, Iterable[Sentence]] = {"spoken": given, "ptb": filled, "held-out": held_out}
    texts |= {name: OTHERS[name]() for name in others}
    for name, found in texts.items():
        lines = (" ".join(sentence) for sentence in found if sentence)
        (folder / f"{name}.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    counts = Counter(word for sentence in [*given, *filled] for word in sentence)
    words = {word for text in lists for word in text.split()} | {word for word, n in counts.items() if n > 1}
    (folder / "vocab.txt").write_text("\n".join([*sorted(words - {"<unk>"}), ""]), encoding="utf-8")
