"""Spelling correction on Norvig's lists and in running text, and its speed.

    python -m benchmarks.correct --out runs/correct

**Words alone.** The language model is `big.txt`, lower-case runs of a-z as Norvig cuts them, order 1. The channel
is learnt from the Birkbeck and Aspell pairs without every pair whose right word is a right word of either list: the
lists derive from Birkbeck, and so neither a pair nor a word of theirs is learnt from. Settings were chosen on the
first list. Norvig publishes 75 % and 68 %.

**Running text.** Every twentieth paragraph of `big.txt` is kept from the language model; its words are replaced by
misspellings of theirs, about one word in `--every`. Pairs are parted by their right word: those of one half teach
the channel, those of the other are the errors. Errors that are words of the vocabulary themselves are counted
apart. Settings were chosen on other paragraphs (`--part dev`). Words/s include looking up candidates for the first
time.

**As written.** The same paragraphs with their capitals and punctuation, words split at blanks. Misspellings take
the case of the word they replace. Of the right words that are changed, those changed in case alone and those that
are capitalised and not in the vocabulary (names, for the most part) are counted apart.
"""

import argparse
import gzip
import random
import re
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.corpora import DATA, machine, table

import chainrule
from chainrule.applications.candidates import Settings
from chainrule.applications.channel import Channel
from chainrule.applications.correct import Corrector
from chainrule.applications.misspellings import Misspelling, read_misspellings
from chainrule.model import Model

SPELLING = DATA / "spelling"
NORVIG = {"spell-testset1": 75.0, "spell-testset2": 68.0}  # per cent, as published
ALWAYS_WRONG = 0.999  # the rate of errors in a list of errors
HELD_OUT = 20  # of so many paragraphs, one


def sentences(paragraphs: Sequence[str]) -> list[str]:
    """Lower-case words of a-z, a sentence a line."""
    pieces = (piece for paragraph in paragraphs for piece in re.split(r"[.!?;:]+", paragraph))
    words = (" ".join(re.findall(r"[a-z]+", piece.lower())) for piece in pieces)
    return [line for line in words if line]


def sentences_as_written(paragraphs: Sequence[str]) -> list[str]:
    """Words as they are written, a sentence a line."""
    joined = (" ".join(paragraph.split()) for paragraph in paragraphs)
    return [line for text in joined for line in re.split(r"(?<=[.!?])[\"')]* +", text) if line]


def paragraphs() -> list[str]:
    return re.split(r"\n\s*\n", gzip.decompress((SPELLING / "big.txt.gz").read_bytes()).decode())


def trained(out: Path, name: str, lines: Sequence[str], order: int) -> Model:
    """A model of these lines, or the one that is there."""
    if not (out / name).exists():
        model = chainrule.train("ngram", _written(out / f"{name}.txt", lines), tokenizer="whitespace", order=order)
        model.save(out / name)
    found: Model = chainrule.load(out / name)
    return found


def _written(path: Path, lines: Sequence[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def all_pairs() -> list[Misspelling]:
    found = read_misspellings([SPELLING / "birkbeck.dat", SPELLING / "aspell.dat"])
    return [Misspelling(pair.wrong.lower(), pair.right.lower()) for pair in found]


def alone(out: Path) -> Iterator[list[str]]:
    """Accuracy on the two lists."""
    model = trained(out, "words", sentences(paragraphs()), 1)
    lists = {name: read_misspellings([SPELLING / f"{name}.txt"]) for name in NORVIG}
    rights = {pair.right.lower() for pairs in lists.values() for pair in pairs}
    pairs = [pair for pair in all_pairs() if pair.right not in rights]
    say(f"{len(pairs)} pairs are left to learn from")
    settings = Settings(error_rate=ALWAYS_WRONG, weight=0.7)
    for title, channel in (("no pairs", Channel()), ("learnt channel", Channel.learn(pairs))):
        corrector = Corrector(model, channel, settings)
        for name, tests in lists.items():
            found = corrector.candidates_of([pair.wrong for pair in tests], 1)
            hits = [best.text == pair.right for (best,), pair in zip(found, tests, strict=True)]
            figure = 100 * sum(hits) / len(hits)
            yield [f"{name} ({len(hits)}), {title}", f"{figure:.1f} %", f"{NORVIG[name]:.0f} %"]


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence as it should be and as it is given."""

    right: list[str]
    wrong: list[str]


def spoilt(lines: Sequence[str], pairs: Sequence[Misspelling], every: int, seed: int) -> list[Line]:
    """About one word in `every` replaced by a misspelling of it."""
    rng = random.Random(seed)
    slips: dict[str, list[str]] = {}
    for pair in pairs:
        if re.fullmatch("[a-z]+", pair.wrong):
            slips.setdefault(pair.right, []).append(pair.wrong)
    words = [word for line in lines for word in line.split()]
    can = sum(word in slips for word in words) / len(words)
    rate = min(1.0, 1 / (every * can))
    found = []
    for right in (line.split() for line in lines):
        wrong = [rng.choice(slips[w]) if w in slips and rng.random() < rate else w for w in right]
        found.append(Line(right, wrong))
    return found


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of wrong words (not in the vocabulary, and in it) and of right ones."""

    mended: int
    wrong: int
    mended_real: int
    wrong_real: int
    spoilt: int
    right: int
    words_per_second: float

    def cells(self) -> list[str]:
        """In per cent."""
        parts = (
            (self.mended + self.mended_real, self.wrong + self.wrong_real),
            (self.mended, self.wrong),
            (self.mended_real, self.wrong_real),
            (self.spoilt, self.right),
        )
        return [*(f"{100 * a / max(b, 1):.2f} %" for a, b in parts), f"{self.words_per_second:,.0f}"]


def measure(corrector: Corrector, lines: Sequence[Line]) -> Tally:
    """Correct the lines and look at each of their words."""
    known = corrector.model.tokenizer.known
    start = time.perf_counter()
    found = list(corrector.corrections(" ".join(line.wrong) for line in lines))
    seconds = time.perf_counter() - start
    counts = dict.fromkeys(("mended", "wrong", "mended_real", "wrong_real", "spoilt", "right"), 0)
    for line, correction in zip(lines, found, strict=True):
        read = {change.start: change for change in correction.words}
        at = 0
        for right, wrong in zip(line.right, line.wrong, strict=True):
            change = read.get(at)
            is_right = change is not None and change.written == wrong and change.corrected == right
            at += len(wrong) + 1
            if right == wrong:
                counts["right"] += 1
                counts["spoilt"] += not is_right
            else:
                kind = "_real" if wrong in known else ""
                counts["wrong" + kind] += 1
                counts["mended" + kind] += is_right
    words = sum(len(line.wrong) for line in lines)
    return Tally(**counts, words_per_second=words / seconds)


@dataclass(frozen=True, slots=True)
class RunningText:
    """The models, the channel and the spoilt lines."""

    unigram: Model
    trigram: Model
    channel: Channel
    lines: list[Line]


def running_text(out: Path, part: str, every: int) -> RunningText:
    """Made anew from the seed each time; the models are kept."""
    whole = paragraphs()
    kept = [paragraph for i, paragraph in enumerate(whole) if i % HELD_OUT]
    held = [paragraph for i, paragraph in enumerate(whole) if not i % HELD_OUT]
    half = held[len(held) // 2 :] if part == "test" else held[: len(held) // 2]
    pairs = all_pairs()
    is_noise = {pair.right: zlib.crc32(pair.right.encode()) % 2 == 0 for pair in pairs}
    noise = [pair for pair in pairs if is_noise[pair.right]]
    lines = spoilt(sentences(half), noise, every, seed=len(part))
    text = sentences(kept)
    return RunningText(
        trained(out, "unigram", text, 1),
        trained(out, "trigram", text, 3),
        Channel.learn([pair for pair in pairs if not is_noise[pair.right]]),
        lines,
    )


def in_context(out: Path, part: str, every: int) -> Iterator[list[str]]:
    """Wrong words mended and right words spoilt, without and with context."""
    given = running_text(out, part, every)
    wrong = sum(a != b for line in given.lines for a, b in zip(line.right, line.wrong, strict=True))
    say(f"{sum(len(line.right) for line in given.lines)} words, {wrong} of them wrong")
    settings = Settings(error_rate=1 / every)
    for title, channel in (("no pairs", Channel()), ("learnt channel", given.channel)):
        for name, model in (("unigram", given.unigram), ("trigram", given.trigram)):
            corrector = Corrector(model, channel, settings)
            yield [f"{name}, {title}", *measure(corrector, given.lines).cells()]
    yield ["the same again, candidates at hand", *measure(corrector, given.lines).cells()]
    known = replace(settings, real_word_distance=0)
    title = "trigram, learnt channel, words of the vocabulary left alone"
    yield [title, *measure(Corrector(given.trigram, given.channel, known), given.lines).cells()]


def spoilt_as_written(lines: Sequence[str], pairs: Sequence[Misspelling], every: int, seed: int) -> list[Line]:
    """About one word in `every` replaced by a misspelling in the same case, punctuation kept."""
    rng = random.Random(seed)
    slips: dict[str, list[str]] = {}
    for pair in pairs:
        if re.fullmatch("[a-z]+", pair.wrong):
            slips.setdefault(pair.right, []).append(pair.wrong)
    words = [re.sub(r"^\W+|\W+$", "", word) for line in lines for word in line.split()]
    rate = min(1.0, len(words) / (every * sum(word.lower() in slips for word in words)))
    spoilt_lines = []
    for right in (line.split() for line in lines):
        wrong = []
        for word in right:
            core = re.sub(r"^\W+|\W+$", "", word)
            if core.lower() in slips and rng.random() < rate:
                slip = rng.choice(slips[core.lower()])
                slip = slip.upper() if core.isupper() and len(core) > 1 else slip
                slip = slip.capitalize() if core.istitle() else slip
                word = word.replace(core, slip)
            wrong.append(word)
        spoilt_lines.append(Line(right, wrong))
    return spoilt_lines


def as_written(out: Path, part: str, every: int) -> Iterator[list[str]]:
    """Wrong words mended and right words changed in text with capitals and punctuation, by kind."""
    whole = paragraphs()
    held = [paragraph for i, paragraph in enumerate(whole) if not i % HELD_OUT]
    half = held[len(held) // 2 :] if part == "test" else held[: len(held) // 2]
    pairs = all_pairs()
    noise = [pair for pair in pairs if zlib.crc32(pair.right.encode()) % 2 == 0]
    learnt = Channel.learn([pair for pair in pairs if zlib.crc32(pair.right.encode()) % 2])
    lines = spoilt_as_written(sentences_as_written(half), noise, every, seed=len(part))
    kept = [paragraph for i, paragraph in enumerate(whole) if i % HELD_OUT]
    model = trained(out, "as-written", sentences_as_written(kept), 3)
    wrong = sum(a != b for line in lines for a, b in zip(line.right, line.wrong, strict=True))
    say(f"{sum(len(line.right) for line in lines)} words as written, {wrong} of them wrong")
    for title, channel in (("no pairs", Channel()), ("learnt channel", learnt)):
        corrector = Corrector(model, channel, Settings(error_rate=1 / every))
        tally = measure(corrector, lines)
        kinds = harmed(corrector, lines)
        mended = tally.mended + tally.mended_real
        yield [f"trigram, {title}", f"{mended} of {wrong}", *(str(kinds[kind]) for kind in HARMS)]


HARMS = ("all", "case alone", "capitalised, unknown")


def harmed(corrector: Corrector, lines: Sequence[Line]) -> dict[str, int]:
    """Right words that are changed, by kind."""
    counts = dict.fromkeys(HARMS, 0)
    corrections = corrector.corrections(" ".join(line.wrong) for line in lines)
    for line, correction in zip(lines, corrections, strict=True):
        read = {change.start: change for change in correction.words}
        at = 0
        for right, wrong in zip(line.right, line.wrong, strict=True):
            change = read.get(at)
            at += len(wrong) + 1
            if right != wrong or (change is not None and change.written == change.corrected == right):
                continue
            counts["all"] += 1
            counts["case alone"] += change is not None and change.corrected.lower() == right.lower()
            core = re.sub(r"^\W+|\W+$", "", right)
            is_known = {right, core, core.lower()} & corrector.model.tokenizer.known.keys()
            counts["capitalised, unknown"] += core[:1].isupper() and not is_known
    return counts


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/correct"))
    parser.add_argument("--part", choices=("dev", "test"), default="test", help="of the held-out paragraphs")
    parser.add_argument("--every", type=int, default=20, help="about one word in so many is wrong")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    print(f"{machine()}\n")
    print(table(["words alone", "right", "Norvig"], list(alone(given.out))))
    head = ["running text", "wrong words mended", "of non-words", "of real words", "right words changed", "words/s"]
    print(table(head, list(in_context(given.out, given.part, given.every))))
    head = ["as written", "wrong words mended", *(f"right words changed, {kind}" for kind in HARMS)]
    print(table(head, list(as_written(given.out, given.part, given.every))))


if __name__ == "__main__":
    main()
