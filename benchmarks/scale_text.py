"""Write a large text with a large vocabulary: recombined sentences of a trained model, and rare words.

    python -m benchmarks.scale_text --words 100M --out runs/scale.txt [--seed 1] [--rare 4M] [--model runs/ngram]

Sentences are sampled from an n-gram model (by default one of order 3 of the novels in the benchmark data) and cut
into segments of 2 to 9 words. A line consists of random segments; before a segment, a rare word is inserted with a
probability that makes RARE_SHARE of all words rare. The rank r of a rare word has a probability proportional to
1 / (r + SHIFT), so that the vocabulary grows with the text as by Heaps' law: about 1 M words in a text of 100 M and
3 M in one of 1,000 M. The same seed gives the same text, in blocks that do not depend on its length.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

RARE_SHARE: Final = 0.03
SHIFT: Final = 1000
SENTENCES: Final = 8_000
"""Sentences sampled from the model."""
SEGMENT: Final = (2, 9)
SEGMENTS_PER_BLOCK: Final = 1 << 16
SEGMENTS_PER_LINE: Final = 4
ONSETS: Final = (
    "b",
    *"cdfghjklmnprstvwz",
    "br",
    "ch",
    "dr",
    "fl",
    "gr",
    "kl",
    "pl",
    "qu",
    "sh",
    "sk",
    "st",
    "th",
    "tr",
)
RHYMES: Final = (
    *"aeioy",
    "ain",
    "an",
    "ar",
    "ed",
    "el",
    "en",
    "er",
    "il",
    "in",
    "ing",
    "old",
    "on",
    "ound",
    "ul",
    "un",
)
SYLLABLES: Final = [onset + rhyme for onset in ONSETS for rhyme in RHYMES]


def rare_word(rank: int) -> str:
    """Return the rare word of a rank, which has at least three syllables; the words of all ranks differ.

    >>> rare_word(0), rare_word(1_000_000)
    ('bababa', 'skanony')
    """
    # Multiplication by a number coprime to the number of words scatters the ranks.
    size = len(SYLLABLES)
    number = rank * 7_919_003 % size**3 if rank < size**3 else rank
    parts = []
    for _ in range(3):
        number, digit = divmod(number, size)
        parts.append(SYLLABLES[digit])
    while rank >= size**3 and number:
        number, digit = divmod(number, size)
        parts.append(SYLLABLES[digit])
    return "".join(parts)


def sample_segments(model: Path | None, seed: int) -> list[bytes]:
    """Sample sentences from a model and cut them into segments."""
    import chainrule

    lm = chainrule.load(model) if model is not None else _train_on_novels()
    rng = random.Random(seed)
    segments = []
    for first in range(0, SENTENCES, 1000):
        for generation in lm.generate_several("", 1000, strategy="sample", max_tokens=40, seed=seed + first):
            words = generation.text.split()
            while words:
                size = rng.randint(*SEGMENT)
                segments.append(" ".join(words[:size]).encode())
                words = words[size:]
    return segments


def _train_on_novels() -> Any:
    import lzma

    from benchmarks.corpora import DATA

    import chainrule
    from chainrule.text.corpus import Corpus

    with lzma.open(DATA / "novels_en" / "novels89.txt.xz", "rt", encoding="utf-8") as file:
        lines = [line.strip() for line, _ in zip(file, range(200_000), strict=False)]
    corpus = Corpus.from_lines([line for line in lines if line])
    return chainrule.train("ngram", corpus, order=3, tokenizer="whitespace", vocab_size=8_000)


def blocks(segments: list[bytes], seed: int, rare: int) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of lines without end, and the number of words of each."""
    lengths = np.array([segment.count(b" ") + 1 for segment in segments])
    chance = RARE_SHARE / (1 - RARE_SHARE) * float(lengths.mean())
    ratio = np.log((rare + SHIFT) / SHIFT)
    names: dict[int, bytes] = {}
    rng = np.random.default_rng(seed)
    while True:
        chosen = rng.integers(len(segments), size=SEGMENTS_PER_BLOCK)
        is_rare = rng.random(SEGMENTS_PER_BLOCK) < chance
        ranks = (SHIFT * np.exp(ratio * rng.random(int(is_rare.sum()))) - SHIFT).astype(np.int64)
        parts = [segments[i] for i in chosen.tolist()]
        for position, rank in zip(np.flatnonzero(is_rare).tolist(), ranks.tolist(), strict=True):
            if (name := names.get(rank)) is None:
                name = rare_word(rank).encode()
                if rank < 100_000:  # the frequent ones
                    names[rank] = name
            parts[position] = name + b" " + parts[position]
        lines = [
            b" ".join(parts[i : i + SEGMENTS_PER_LINE]) for i in range(0, SEGMENTS_PER_BLOCK, SEGMENTS_PER_LINE)
        ]
        yield b"\n".join(lines) + b"\n", int(lengths[chosen].sum()) + len(ranks)


def number(text: str) -> int:
    """Parse a number with an optional k, M or G (powers of ten).

    >>> number("100M"), number("2G"), number("5")
    (100000000, 2000000000, 5)
    """
    unit = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}.get(text[-1:], 1)
    return int(float(text.rstrip("kMG")) * unit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=number, default=number("100M"))
    parser.add_argument("--rare", type=number, default=number("4M"), help="number of rare words")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path, help="folder of a model to sample sentences from")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    start = time.perf_counter()
    segments = sample_segments(arguments.model, arguments.seed)
    sampled = time.perf_counter()
    words = 0
    with arguments.out.open("wb") as out:
        for block, size in blocks(segments, arguments.seed, arguments.rare):
            out.write(block)
            words += size
            if words >= arguments.words:
                break
    seconds = time.perf_counter() - sampled
    print(
        f"{words:,} words, {arguments.out.stat().st_size:,} bytes; sampling {sampled - start:.0f} s, "
        f"writing {seconds:.0f} s ({words / seconds / 1e6:.1f} M words/s)",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
