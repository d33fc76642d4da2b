"""Score, identify and filter the lines of a corpus on an engine.

Each worker process loads the models once, from folders that it can read. The lines of a partition are scored
independently of other partitions, so only models with `line` context are accepted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from chainrule import api
from chainrule.applications.filter import LineCost
from chainrule.distributed.engine import Engine
from chainrule.distributed.records import Record, Records
from chainrule.errors import InputError, UsageError
from chainrule.lm import Floats, Ids, Mask
from chainrule.model import Model
from chainrule.storage import verified_dir
from chainrule.text.corpus import Corpus

SHIFTS: Final = (42, 21, 0)
"""Bits of the sort keys that remain unknown after each pass over the distances."""


@cache
def load_in_worker(folder: Path, device: str) -> Model:
    """Load a language model once in this process."""
    return api.load(folder, kind="language model", device=device)


def check_context(models: Sequence[Model]) -> None:
    """Raise for models whose score of a line depends on the lines before it."""
    if any(model.lm.context == "stream" for model in models):
        raise UsageError(
            "a model with stream context reads a text as one sequence, which cannot be divided among workers; "
            "leave out --workers and --on, or use a model with line context"
        )


def identify_folder(folder: Path) -> str:
    """Return the digest of a model folder, by which `--resume` recognizes the model."""
    return verified_dir.content_sha256(folder)


@dataclass(frozen=True)
class MapLines:
    """Map a function over the blocks of lines of a partition."""

    function: Callable[[list[str]], bytes]

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the output for each block; the key is the number of lines before it in its partition."""
        for lines_before, block in records:
            yield lines_before, self.function(split_block(block))


def split_block(block: bytes) -> list[str]:
    """Return the lines of a block of whole lines."""
    return block.decode().removesuffix("\n").split("\n")


def map_lines(engine: Engine, corpus: Corpus, name: str, function: Callable[[list[str]], bytes]) -> Iterator[bytes]:
    """Yield the output of a picklable function for all blocks of lines, in the order of the text."""
    output = engine.run(name, engine.read_text(corpus), MapLines(function))
    return (payload for _, payload in engine.iterate(output))


@dataclass(frozen=True, slots=True)
class CostSource:
    """The cost function of a filter, loaded in each worker process."""

    reference: Path
    against: Path | None
    by: str | None
    device: str

    def load(self) -> LineCost:
        """Return the cost function."""
        background = None if self.against is None else load_in_worker(self.against, self.device)
        return LineCost.of(load_in_worker(self.reference, self.device), background, self.by)


@dataclass(frozen=True, slots=True)
class Cut:
    """The first `number` lines in the order of their distance; ties go to earlier lines."""

    number: int
    key: int  # sort key of the last of these lines
    ties: tuple[int, ...]  # by partition: how many lines with exactly this key are among them

    @property
    def distance(self) -> float:
        """Largest distance of these lines."""
        return key_to_distance(self.key)


@dataclass(frozen=True, slots=True)
class RankedLines:
    """Distances of the lines of a corpus, stored by partition, and the cuts that divide them."""

    distances: Records
    first_lines: tuple[int, ...]  # number of lines before each partition
    total: int
    cuts: tuple[Cut, ...]


def rank_lines(
    engine: Engine, corpus: Corpus, source: CostSource, numbers: Callable[[int], Sequence[int]]
) -> RankedLines:
    """Measure the distance of every line and find the cuts after the given numbers of lines.

    `numbers` maps the number of lines of the corpus to those of the cuts, each at most as large. The distances stay
    with the engine: each of three passes counts them by further bits of their sort keys, so that the cuts are
    exact.
    """
    distances = engine.run("distances", engine.read_text(corpus), _MeasureDistances(source))
    parts = _count_prefixes(engine, distances, 0, [0])
    lines = [sum(counts.values()) for counts in parts]
    first_lines = np.cumsum([0, *lines]).tolist()
    total = first_lines.pop()
    chosen = [min(number, total) for number in numbers(total)] if total else []
    prefixes, ranks = [0] * len(chosen), [number - 1 for number in chosen]
    for level in range(len(SHIFTS)):
        if level:
            parts = _count_prefixes(engine, distances, level, prefixes) if chosen else []
        sums = _add_counts(parts)
        for i, rank in enumerate(ranks):
            prefixes[i], ranks[i] = _descend(sums, level, prefixes[i], rank)
    cuts = [
        Cut(number, key, _share_ties(rank + 1, [counts.get(key, 0) for counts in parts]))
        for number, key, rank in zip(chosen, prefixes, ranks, strict=True)
    ]
    return RankedLines(distances, tuple(first_lines), total, tuple(cuts))


Render = Callable[[LineCost, int, list[str], Floats, Ids], Iterator[Record]]
"""Cost function, number of lines before these, the lines, their distances, and the number of cuts before each line
-> records (output file, bytes)."""


def write_ranked(
    engine: Engine, corpus: Corpus, ranked: RankedLines, source: CostSource, render: Render
) -> Iterator[Record]:
    """Yield the output of `render` for all blocks of lines, in the order of the text."""
    select = _SelectLines(source, render, ranked.first_lines, ranked.cuts)
    output = engine.run("selection", [ranked.distances, _NegativeKeys(engine.read_text(corpus))], select)
    return engine.iterate(output)


def distances_to_keys(distances: Floats) -> Ids:
    """Map distances to uint64 sort keys in the same order."""
    bits = np.ascontiguousarray(distances + 0.0, np.float64).view(np.uint64)  # + 0.0: one zero
    sign = np.uint64(1 << 63)
    return np.asarray(np.where(bits & sign, ~bits, bits | sign))


def key_to_distance(key: int) -> float:
    """Return the distance with this sort key."""
    bits = key ^ (1 << 63) if key >> 63 else ~key & ((1 << 64) - 1)
    return float(np.array(bits, np.uint64).view(np.float64))


@dataclass(frozen=True)
class _MeasureDistances:
    source: CostSource

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the distances of each block of lines as float64."""
        cost = self.source.load()
        for lines_before, block in records:
            yield lines_before, cost.distances(split_block(block)).astype("<f8").tobytes()


@dataclass(frozen=True)
class _CountPrefixes:
    level: int
    prefixes: tuple[int, ...]  # of the level before: of the keys that are counted

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the prefixes of the keys of this level, and the count of each."""
        shift = SHIFTS[self.level]
        values, counts = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        for _, payload in records:
            keys = distances_to_keys(np.frombuffer(payload, "<f8"))
            if self.level:
                known = keys >> np.uint64(SHIFTS[self.level - 1])
                keys = keys[np.isin(known, np.array(self.prefixes, np.uint64))]
            value, count = np.unique(keys >> np.uint64(shift), return_counts=True)
            values.append(value)
            counts.append(count)
        merged, index = np.unique(np.concatenate(values), return_inverse=True)
        sums = np.zeros(len(merged), np.int64)
        np.add.at(sums, index, np.concatenate(counts))
        yield partition, merged.tobytes() + sums.tobytes()


def _count_prefixes(
    engine: Engine, distances: Records, level: int, prefixes: Sequence[int]
) -> list[dict[int, int]]:
    """Count the keys with one of the prefixes by the prefixes of a level, for each partition."""
    output = engine.run(f"cut-{level + 1}", distances, _CountPrefixes(level, tuple(dict.fromkeys(prefixes))))
    parts: list[dict[int, int]] = []
    for _, payload in engine.iterate(output):
        half = len(payload) // 2
        values, counts = np.frombuffer(payload[:half], np.uint64), np.frombuffer(payload[half:], np.int64)
        parts.append(dict(zip(values.tolist(), counts.tolist(), strict=True)))
    return parts


def _add_counts(parts: Sequence[dict[int, int]]) -> dict[int, int]:
    sums: dict[int, int] = {}
    for counts in parts:
        for value, count in counts.items():
            sums[value] = sums.get(value, 0) + count
    return dict(sorted(sums.items()))


def _descend(sums: dict[int, int], level: int, prefix: int, rank: int) -> tuple[int, int]:
    """Return the prefix, of this level, of the key at `rank` among those with `prefix`, and its rank there."""
    bits = SHIFTS[level - 1] - SHIFTS[level] if level else 64 - SHIFTS[0]
    for value, count in sums.items():
        if value >> bits == prefix:
            if rank < count:
                return value, rank
            rank -= count
    raise AssertionError("the rank is beyond the keys")


def _share_ties(number: int, ties: Sequence[int]) -> tuple[int, ...]:
    """Give `number` ties to the partitions, the first ones first."""
    shares = []
    for count in ties:
        shares.append(min(count, number))
        number -= shares[-1]
    return tuple(shares)


@dataclass(frozen=True, slots=True)
class _NegativeKeys:
    """Records of a text with the keys −1 − key, so that they differ from other records of a joined stage."""

    records: Records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, partition: int, /) -> "_NegativePartition":
        return _NegativePartition(self.records, partition)


@dataclass(frozen=True, slots=True)
class _NegativePartition:
    records: Records
    partition: int

    def __iter__(self) -> Iterator[Record]:
        return ((-1 - key, payload) for key, payload in self.records[self.partition])


@dataclass(frozen=True)
class _SelectLines:
    source: CostSource
    render: Render
    first_lines: tuple[int, ...]
    cuts: tuple[Cut, ...]

    def __call__(self, partition: int, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the rendered lines of each block; the records are all distances, then the text."""
        cost = self.source.load()
        blocks: list[bytes] = []
        ties = [0] * len(self.cuts)
        number = 0
        for key, payload in records:
            if key >= 0:
                blocks.append(payload)
                continue
            lines = split_block(payload)
            distances = np.frombuffer(blocks[number], "<f8") if number < len(blocks) else np.zeros(0)
            if len(distances) != len(lines):
                raise InputError("the text changed while it was being read; start again")
            number += 1
            passed = np.zeros(len(distances), np.int64)
            for i, cut in enumerate(self.cuts):
                passed += ~self._is_before(cut, distances_to_keys(distances), ties, i, partition)
            first = self.first_lines[partition] + (-1 - key)
            yield from self.render(cost, first, lines, distances, passed)

    @staticmethod
    def _is_before(cut: Cut, keys: Ids, ties: list[int], i: int, partition: int) -> Mask:
        """Mask of the lines before a cut; `ties` counts the ties of this partition so far."""
        is_before = np.asarray(keys < np.uint64(cut.key))
        tied = np.flatnonzero(keys == np.uint64(cut.key))
        is_before[tied[: max(0, cut.ties[partition] - ties[i])]] = True
        ties[i] += len(tied)
        return is_before
