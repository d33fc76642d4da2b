"""Benchmark spelling correction: accuracy on isolated words and in running text, and speed.

    python -m benchmarks.correct --out runs/correct

**Isolated words.** The language model is a unigram of `big.txt`, split into lower-case runs of a-z as by Norvig.
The channel is learned from the Birkbeck and Aspell pairs, excluding every pair whose correct word occurs in a
test list: the lists derive from Birkbeck. Settings were chosen on the first list. Norvig reports 75 % and 68 %.

**Running text.** Every twentieth paragraph of `big.txt` is held out; about one word in `--every` is replaced by
one of its misspellings. The pairs are split by correct word: one half trains the channel, the other provides the
errors. Real-word errors (misspellings that are in the vocabulary) are counted separately. Settings were chosen on
other paragraphs (`--part dev`). Words/s include the first lookup of candidates.

**As written.** The same paragraphs with capitals and punctuation, split at white space. Misspellings take the
case of the word they replace. Of the correct words that are changed, those that differ in case only and those
that are capitalized and out-of-vocabulary (mostly names) are counted separately.
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
from chainrule.applications.spelling.candidates import Settings
from chainrule.applications.spelling.corrector import Corrector
from chainrule.applications.spelling.noisy_channel import Channel, Misspelling, read_misspellings
from chainrule.model import Model

SPELLING = DATA / "spelling"
NORVIG = {"spell-testset1": 75.0, "spell-testset2": 68.0}  # published accuracy in %
ALWAYS_WRONG = 0.999  # error rate of a list of misspellings
HELD_OUT = 20  # every 20th paragraph is held out


def sentences(paragraphs: Sequence[str]) -> list[str]:
    """Split paragraphs into sentences of lower-case words of a-z."""
    pieces = (piece for paragraph in paragraphs for piece in re.split(r"[.!?;:]+", paragraph))
    words = (" ".join(re.findall(r"[a-z]+", piece.lower())) for piece in pieces)
    return [line for line in words if line]


def sentences_as_written(paragraphs: Sequence[str]) -> list[str]:
    """Split paragraphs into sentences, keeping case and punctuation."""
    joined = (" ".join(paragraph.split()) for paragraph in paragraphs)
    return [line for text in joined for line in re.split(r"(?<=[.!?])[\"')]* +", text) if line]


def paragraphs() -> list[str]:
    return re.split(r"\n\s*\n", gzip.decompress((SPELLING / "big.txt.gz").read_bytes()).decode())


def train_or_load(out: Path, name: str, lines: Sequence[str], order: int) -> Model:
    """Train a model on these lines, or load it if it exists."""
    if not (out / name).exists():
        text = _written(out / f"{name}.txt", lines)
        chainrule.train("ngram", text, tokenizer="whitespace", order=order).save(out / name)
    model: Model = chainrule.load(out / name)
    return model


def _written(path: Path, lines: Sequence[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def all_pairs() -> list[Misspelling]:
    pairs = read_misspellings([SPELLING / "birkbeck.dat", SPELLING / "aspell.dat"])
    return [Misspelling(pair.wrong.lower(), pair.right.lower()) for pair in pairs]


def isolated_word_rows(out: Path) -> Iterator[list[str]]:
    """Yield the accuracy on the two lists of isolated words."""
    model = train_or_load(out, "words", sentences(paragraphs()), 1)
    lists = {name: read_misspellings([SPELLING / f"{name}.txt"]) for name in NORVIG}
    rights = {pair.right.lower() for pairs in lists.values() for pair in pairs}
    pairs = [pair for pair in all_pairs() if pair.right not in rights]
    log(f"{len(pairs)} training pairs left")
    settings = Settings(error_rate=ALWAYS_WRONG, weight=0.7)
    for title, channel in (("no pairs", Channel()), ("learned channel", Channel.learn(pairs))):
        corrector = Corrector(model, channel, settings)
        for name, tests in lists.items():
            candidates = corrector.candidates_of([pair.wrong for pair in tests], 1)
            hits = [best.text == pair.right for (best,), pair in zip(candidates, tests, strict=True)]
            accuracy = 100 * sum(hits) / len(hits)
            yield [f"{name} ({len(hits)}), {title}", f"{accuracy:.1f} %", f"{NORVIG[name]:.0f} %"]


@dataclass(frozen=True, slots=True)
class Line:
    """A correct sentence and its corrupted version."""

    right: list[str]
    wrong: list[str]


def corrupt(lines: Sequence[str], pairs: Sequence[Misspelling], every: int, seed: int) -> list[Line]:
    """Replace about one word in `every` by one of its misspellings."""
    rng = random.Random(seed)
    slips: dict[str, list[str]] = {}
    for pair in pairs:
        if re.fullmatch("[a-z]+", pair.wrong):
            slips.setdefault(pair.right, []).append(pair.wrong)
    words = [word for line in lines for word in line.split()]
    replaceable = sum(word in slips for word in words) / len(words)
    rate = min(1.0, 1 / (every * replaceable))
    corrupted = []
    for right in (line.split() for line in lines):
        wrong = [rng.choice(slips[w]) if w in slips and rng.random() < rate else w for w in right]
        corrupted.append(Line(right, wrong))
    return corrupted


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of corrected errors (non-words and real words) and of correct words that were changed."""

    corrected: int
    wrong: int
    corrected_real: int
    wrong_real: int
    changed: int
    right: int
    words_per_second: float

    def cells(self) -> list[str]:
        """Format the rates as percentages."""
        parts = (
            (self.corrected + self.corrected_real, self.wrong + self.wrong_real),
            (self.corrected, self.wrong),
            (self.corrected_real, self.wrong_real),
            (self.changed, self.right),
        )
        return [*(f"{100 * a / max(b, 1):.2f} %" for a, b in parts), f"{self.words_per_second:,.0f}"]


def measure(corrector: Corrector, lines: Sequence[Line]) -> Tally:
    """Correct the lines and count the outcome for each word."""
    known = corrector.model.tokenizer.vocab
    start = time.perf_counter()
    corrections = list(corrector.corrections(" ".join(line.wrong) for line in lines))
    seconds = time.perf_counter() - start
    counts = dict.fromkeys(("corrected", "wrong", "corrected_real", "wrong_real", "changed", "right"), 0)
    for line, correction in zip(lines, corrections, strict=True):
        read = {change.start: change for change in correction.words}
        at = 0
        for right, wrong in zip(line.right, line.wrong, strict=True):
            change = read.get(at)
            is_right = change is not None and change.written == wrong and change.corrected == right
            at += len(wrong) + 1
            if right == wrong:
                counts["right"] += 1
                counts["changed"] += not is_right
            else:
                kind = "_real" if wrong in known else ""
                counts["wrong" + kind] += 1
                counts["corrected" + kind] += is_right
    words = sum(len(line.wrong) for line in lines)
    return Tally(**counts, words_per_second=words / seconds)


@dataclass(frozen=True, slots=True)
class RunningText:
    """Models, channel and corrupted lines of the running-text benchmark."""

    unigram: Model
    trigram: Model
    channel: Channel
    lines: list[Line]


def running_text(out: Path, part: str, every: int) -> RunningText:
    """Build the benchmark; corruption is seeded and trained models are cached."""
    whole = paragraphs()
    training = [paragraph for i, paragraph in enumerate(whole) if i % HELD_OUT]
    held = [paragraph for i, paragraph in enumerate(whole) if not i % HELD_OUT]
    half = held[len(held) // 2 :] if part == "test" else held[: len(held) // 2]
    pairs = all_pairs()
    is_noise = {pair.right: zlib.crc32(pair.right.encode()) % 2 == 0 for pair in pairs}
    noise = [pair for pair in pairs if is_noise[pair.right]]
    lines = corrupt(sentences(half), noise, every, seed=len(part))
    text = sentences(training)
    return RunningText(
        train_or_load(out, "unigram", text, 1),
        train_or_load(out, "trigram", text, 3),
        Channel.learn([pair for pair in pairs if not is_noise[pair.right]]),
        lines,
    )


def running_text_rows(out: Path, part: str, every: int) -> Iterator[list[str]]:
    """Yield the rates of corrected errors and changed correct words, without and with context."""
    benchmark = running_text(out, part, every)
    wrong = sum(a != b for line in benchmark.lines for a, b in zip(line.right, line.wrong, strict=True))
    log(f"{sum(len(line.right) for line in benchmark.lines)} words, {wrong} errors")
    settings = Settings(error_rate=1 / every)
    for title, channel in (("no pairs", Channel()), ("learned channel", benchmark.channel)):
        for name, model in (("unigram", benchmark.unigram), ("trigram", benchmark.trigram)):
            corrector = Corrector(model, channel, settings)
            yield [f"{name}, {title}", *measure(corrector, benchmark.lines).cells()]
    yield ["repeated, with cached candidates", *measure(corrector, benchmark.lines).cells()]
    known = replace(settings, real_word_distance=0)
    title = "trigram, learned channel, non-words only"
    yield [title, *measure(Corrector(benchmark.trigram, benchmark.channel, known), benchmark.lines).cells()]


def corrupt_as_written(lines: Sequence[str], pairs: Sequence[Misspelling], every: int, seed: int) -> list[Line]:
    """Replace about one word in `every` by a misspelling in the same case, keeping punctuation."""
    rng = random.Random(seed)
    slips: dict[str, list[str]] = {}
    for pair in pairs:
        if re.fullmatch("[a-z]+", pair.wrong):
            slips.setdefault(pair.right, []).append(pair.wrong)
    words = [re.sub(r"^\W+|\W+$", "", word) for line in lines for word in line.split()]
    rate = min(1.0, len(words) / (every * sum(word.lower() in slips for word in words)))
    corrupted_lines = []
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
        corrupted_lines.append(Line(right, wrong))
    return corrupted_lines


def as_written_rows(out: Path, part: str, every: int) -> Iterator[list[str]]:
    """Yield corrected errors and changed correct words in text with capitals and punctuation, by kind."""
    whole = paragraphs()
    held = [paragraph for i, paragraph in enumerate(whole) if not i % HELD_OUT]
    half = held[len(held) // 2 :] if part == "test" else held[: len(held) // 2]
    pairs = all_pairs()
    noise = [pair for pair in pairs if zlib.crc32(pair.right.encode()) % 2 == 0]
    learned = Channel.learn([pair for pair in pairs if zlib.crc32(pair.right.encode()) % 2])
    lines = corrupt_as_written(sentences_as_written(half), noise, every, seed=len(part))
    training = [paragraph for i, paragraph in enumerate(whole) if i % HELD_OUT]
    model = train_or_load(out, "as-written", sentences_as_written(training), 3)
    wrong = sum(a != b for line in lines for a, b in zip(line.right, line.wrong, strict=True))
    log(f"{sum(len(line.right) for line in lines)} words as written, {wrong} errors")
    for title, channel in (("no pairs", Channel()), ("learned channel", learned)):
        corrector = Corrector(model, channel, Settings(error_rate=1 / every))
        tally = measure(corrector, lines)
        kinds = count_changed(corrector, lines)
        corrected = tally.corrected + tally.corrected_real
        yield [f"trigram, {title}", f"{corrected} of {wrong}", *(str(kinds[kind]) for kind in CHANGE_KINDS)]


CHANGE_KINDS = ("all", "case only", "capitalized, unknown")


def count_changed(corrector: Corrector, lines: Sequence[Line]) -> dict[str, int]:
    """Count the correct words that are changed, by kind."""
    counts = dict.fromkeys(CHANGE_KINDS, 0)
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
            counts["case only"] += change is not None and change.corrected.lower() == right.lower()
            core = re.sub(r"^\W+|\W+$", "", right)
            is_known = {right, core, core.lower()} & corrector.model.tokenizer.vocab.keys()
            counts["capitalized, unknown"] += core[:1].isupper() and not is_known
    return counts


def log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/correct"))
    parser.add_argument("--part", choices=("dev", "test"), default="test", help="half of the held-out paragraphs")
    parser.add_argument("--every", type=int, default=20, help="about one word in EVERY is misspelled")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"{machine()}\n")
    print(table(["isolated words", "accuracy", "Norvig"], list(isolated_word_rows(arguments.out))))
    head = ["running text", "errors corrected", "non-words", "real words", "correct words changed", "words/s"]
    print(table(head, list(running_text_rows(arguments.out, arguments.part, arguments.every))))
    head = ["as written", "errors corrected", *(f"correct words changed, {kind}" for kind in CHANGE_KINDS)]
    print(table(head, list(as_written_rows(arguments.out, arguments.part, arguments.every))))


if __name__ == "__main__":
    main()
