"""Training in partitions: the bytes of the engine for any partitions, splits, ranges and order of arrival."""

import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chainrule import system
from chainrule.errors import ChainruleError, ChainruleWarning
from chainrule.lm import Context, Ids, Vocabulary
from chainrule.ngram import engine
from chainrule.ngram.config import Config
from ngram.test_memory import cut_offs, texts

pytestmark = pytest.mark.native


def make_plan(ids: Ids, vocabulary: Vocabulary, context: Context, order: int, **sizes: int) -> Any:
    plan = system.load_extension().PartitionPlan.balance(
        sample=ids.astype(np.int32),
        order=order,
        vocabulary_size=vocabulary.size,
        bos=vocabulary.bos,
        eos=vocabulary.eos,
        is_stream=context == "stream",
        **sizes,
    )
    return system.load_extension().PartitionPlan(plan.to_bytes())


def encode_windows(plan: Any, pieces: list[Ids], order: int, context: Context) -> dict[int, list[bytes]]:
    """Return the records of each partition; each piece of the text is encoded on its own."""
    core = system.load_extension()
    records: dict[int, list[bytes]] = defaultdict(list)
    before = np.zeros(0, np.int32)
    for piece in pieces:
        encoder = core.WindowEncoder(plan)
        if context == "stream":
            encoder.start(before[len(before) - min(order - 1, len(before)) :])
        encoder.add(piece)
        for partition, record in encoder.take():
            records[partition].append(record)
        before = np.concatenate([before, piece])
    return records


def write_model(
    plan: Any, records: dict[int, list[bytes]], vocabulary: Vocabulary, cuts: tuple[int, ...], out: Path, rng: Any
) -> Any:
    """Count, estimate and assemble in lists in memory; records arrive in random order. Return the written model."""
    core, order = system.load_extension(), len(cuts)
    parts = int(rng.integers(1, 4))
    sums = defaultdict(list)
    for partition in range(plan.partitions):
        rng.shuffle(records[partition])
        for part, record in core.partition_sums(plan, records[partition], parts):
            sums[part].append(record)
    merged = [core.merge_sums(order, group) for group in sums.values()]
    shared, _ = core.global_estimates(
        plan, merged, unk=vocabulary.unk, is_closed=vocabulary.closed, cut_offs=list(cuts)
    )
    runs = defaultdict(list)
    for partition in range(plan.partitions):
        for key, record in core.partition_estimates(plan, shared, partition, records[partition]):
            runs[key].append(record)
    tables = []
    for key in range(plan.ranges):
        rng.shuffle(runs[key])
        tables.append(core.assemble_range(plan, shared, key, runs[key]))
    core.write_ranges(
        tables, plan, unk=vocabulary.unk, is_closed=vocabulary.closed, holds_suffixes=not any(cuts), out=str(out)
    )
    return engine.open_file(out)


def cut_text(ids: Ids, eos: int, context: Context, pieces: int, rng: Any) -> list[Ids]:
    """Cut a text into consecutive pieces: at ends of lines, or anywhere in a stream."""
    places = np.arange(len(ids) + 1) if context == "stream" else np.append(0, np.flatnonzero(ids == eos) + 1)
    return np.split(ids.astype(np.int32), np.sort(rng.choice(places, pieces)))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=texts(),
    cuts=cut_offs().filter(lambda cuts: len(cuts) > 1),
    partitions=st.integers(1, 9),
    limit=st.sampled_from([0, 1, 3, 20]),
    ranges=st.integers(1, 5),
    pieces=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_model_is_that_of_the_engine(
    text: tuple[Ids, Vocabulary, Context],
    cuts: tuple[int, ...],
    partitions: int,
    limit: int,
    ranges: int,
    pieces: int,
    seed: int,
    tmp_path: Path,
) -> None:
    ids, vocabulary, context = text
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        expected = engine.train(ids, Config(order=len(cuts), prune=cuts), vocabulary, context)
    plan = make_plan(ids, vocabulary, context, len(cuts), partitions=partitions, limit=limit, ranges=ranges)
    records = encode_windows(plan, cut_text(ids, vocabulary.eos, context, pieces, rng), len(cuts), context)
    out = tmp_path / "model.ngram"
    model = write_model(plan, records, vocabulary, cuts, out, rng)
    assert engine.content_id(model) == engine.content_id(expected)
    out.unlink()


def test_a_partition_with_too_many_windows() -> None:
    """The number of different windows of a partition is limited to 2^32 − 2; here to fewer."""
    ids = np.array([3, 4, 5, 3, 5, 4, 2] * 3, np.int32)
    vocabulary = Vocabulary(6, 1, 2, 0)
    plan = make_plan(ids, vocabulary, "line", 3, partitions=1)
    records = encode_windows(plan, [ids], 3, "line")
    core = system.load_extension()
    assert core.partition_sums(plan, records[0], limit=7)
    with pytest.raises(ChainruleError, match="more than 6 different windows; choose a smaller --partition"):
        core.partition_sums(plan, records[0], limit=6)


def test_records_of_another_plan_are_refused() -> None:
    ids = np.array([3, 4, 5, 3, 5, 4, 2], np.int32)
    plan = make_plan(ids, Vocabulary(6, 1, 2, 0), "line", 3, partitions=1)
    core = system.load_extension()
    with pytest.raises(ChainruleError, match="damaged or of another version"):
        core.partition_sums(plan, [b"\xff\xff"])
    with pytest.raises(ChainruleError, match="damaged or of another version"):
        core.PartitionPlan(plan.to_bytes()[:-1])
