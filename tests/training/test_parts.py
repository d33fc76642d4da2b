"""A batch that is computed in parts, one after another, gives the result of the whole batch."""

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from chainrule import api
from chainrule.applications.encode import encode_corpus
from chainrule.config import build_config
from chainrule.data import encoded
from chainrule.data.encoded import MappedIds
from chainrule.errors import ChainruleWarning
from chainrule.neural import feedforward, gru, lstm, rnn, transformer
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.training import batches
from chainrule.training.batches import BatchPart, LineBatches, MappedStream, StreamBatches, Window
from chainrule.training.step import EagerStepper, TrainingStep, next_token
from training.small_networks import BOS, CPU, EOS, VOCABULARY, lines

DROPPED = {"dropout": 0.3, "embedding_dropout": 0.2}
FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "lstm": (lstm, {"weight_dropout": 0.3, "activation_penalty": 2.0, "temporal_penalty": 1.0, "layers": 2}),
    "gru": (gru, {"locked": False, "attention": "dot", "learned_start": True}),
    "rnn": (rnn, {"locked": False, "attention": "general", "attention_use": "concat"}),
    "sampled": (lstm, {"output": "sampled", "samples": 4}),
    "feedforward": (feedforward, {}),
    "transformer": (transformer, {"heads": 2, "layers": 2, "window": 6, "attention_dropout": 0.3}),
}


def train(name: str, context: str, accumulate: int, **settings: Any) -> dict[str, torch.Tensor]:
    """The weights, statistics and state after an epoch in fp64."""
    module, model = FAMILIES[name]
    chosen = {"hidden": 8, "batch_size": 5, "bptt": 4, "learning_rate": 0.5, "optimizer": "sgd"}
    config = build_config(module.Config, chosen | DROPPED | model | settings | {"accumulate": accumulate}, "model")
    before, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)  # a Transformer of this size takes ten times as long on two
    try:
        torch.manual_seed(3)
        network = module.build(config, VOCABULARY, np.ones(VOCABULARY.size)).double().train()
        step = TrainingStep(network, next_token, config.training, CPU)
        source: Any = StreamBatches(lines(30).ids, config.training, 1, CPU)
        if context == "line":
            source = LineBatches(lines(13).ids, BOS, EOS, config.training, 1, CPU)
        stepper = EagerStepper(step, source)
        for _ in stepper.epoch(0, 0):
            pass
        assert stepper.state is not None
        carried = {f"carried.{i}": tensor for i, tensor in enumerate(stepper.state)}
        return {"weights": step.flat.weights.clone(), "statistics": step.statistics, **carried}
    finally:
        torch.set_default_dtype(before)
        torch.set_num_threads(threads)


@pytest.mark.parametrize("context", ["stream", "line"])
@pytest.mark.parametrize("name", FAMILIES)
def test_accumulated_gradients_equal_those_of_the_whole_batch(name: str, context: str) -> None:
    """Also with more parts than the rows of the last batch, with unequal parts and with parts of finished lines."""
    whole = train(name, context, 1)
    for number in (2, 5):
        parts = train(name, context, number)
        assert parts.keys() == whole.keys()
        for key, tensor in whole.items():
            torch.testing.assert_close(parts[key], tensor, rtol=1e-10, atol=1e-10, msg=lambda m, k=key: f"{k}: {m}")


def test_split_covers_the_rows_and_their_tokens() -> None:
    ids = torch.arange(12).view(3, 4)
    mask = torch.tensor([[True] * 4, [True, False, False, False], [False] * 4])
    window = Window(ids, ids, mask, row_tokens=np.array([4, 1, 0]))
    pieces = window.split(3)
    assert [rows for rows, _ in pieces] == [slice(0, 1), slice(1, 2), slice(2, 3)]
    parts = [piece.part for _, piece in pieces]
    assert [part.token_share for part in parts if part is not None] == [0.8, 0.2, 0.0]
    assert [part.row_share for part in parts if part is not None] == [1 / 3] * 3
    placeholder = pieces[2][1].mask
    assert placeholder is not None
    assert placeholder.tolist() == [[True, False, False, False]]  # its loss is defined and has weight 0
    assert mask[2].tolist() == [False] * 4
    inner = dataclasses.replace(window, part=BatchPart(np.array([1, 4, 7]), 9, 0.5, 1 / 3)).split(2)
    assert [part.part.rows.tolist() for _, part in inner if part.part is not None] == [[1, 4], [7]]
    assert [part.part.token_share for _, part in inner if part.part is not None] == [0.5, 0.0]


def windows_of(source: Any, epoch: int, first: int = 0) -> list[Window]:
    return list(source.windows(epoch, first))


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("shuffle", [True, False])
def test_mapped_stream_reads_the_windows_of_the_stream(tmp_path: Any, shards: int, shuffle: bool) -> None:
    """All epochs, resumed windows, and the columns of two ranks; from uint16 files and over their borders."""
    ids = np.random.default_rng(0).integers(0, 60_000, 1003).astype(np.uint16)
    arrays = []
    for i, part in enumerate(np.array_split(ids, shards)):
        part.tofile(tmp_path / str(i))
        arrays.append(np.memmap(tmp_path / str(i), np.uint16, "r"))
    config = dataclasses.replace(lstm.Config().training, batch_size=6, bptt=7, shuffle=shuffle)
    whole = StreamBatches(ids.astype(np.int32), config, 3, CPU)
    mapped = MappedStream(MappedIds(arrays), config, 3, CPU)
    for epoch in (0, 1, 5):
        expected, actual = windows_of(whole, epoch), windows_of(mapped, epoch)
        assert len(actual) == len(expected) == mapped.steps(epoch) == whole.steps(epoch)
        ranks = [windows_of(MappedStream(MappedIds(arrays), config, 3, CPU, rank, 2), epoch) for rank in (0, 1)]
        for a, e, first, second in zip(actual, expected, *ranks, strict=True):
            assert a.starts == e.starts == first.starts == second.starts
            for name in ("inputs", "targets"):
                assert torch.equal(getattr(a, name), getattr(e, name))
                assert torch.equal(torch.cat([getattr(first, name), getattr(second, name)]), getattr(e, name))
        resumed = windows_of(mapped, epoch, 4)
        assert len(resumed) == len(expected) - 4
        assert all(torch.equal(a.inputs, e.inputs) for a, e in zip(resumed, expected[4:], strict=True))
        assert not resumed[0].starts


@pytest.mark.parametrize("limit", [1 << 24, 40, 7])
def test_line_ends_are_those_of_the_text(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """In memory, or in a temporary file if there are more than the limit."""
    monkeypatch.setattr(batches, "LINES_AT_ONCE", limit)
    monkeypatch.setattr(encoded, "_PIECE", 16)
    ids = lines(60).ids
    ends = batches.line_ends(MappedIds([ids[:50], ids[50:]]), EOS)
    assert ends.read(0, len(ends)).tolist() == (np.flatnonzero(ids == EOS) + 1).tolist()
    assert isinstance(ends.arrays[0], np.memmap) == (limit < 60)


def line_of(row: torch.Tensor) -> tuple[int, ...]:
    return tuple(row.tolist())


@pytest.mark.parametrize("shuffle", [True, False])
def test_very_many_lines_are_shuffled_by_shards(monkeypatch: pytest.MonkeyPatch, shuffle: bool) -> None:
    """Each line once in an epoch; in another order in the next; a resumed epoch continues; ranks share the rows."""
    ids = np.concatenate([[2 + i // 7, 2 + i % 7, EOS] for i in range(49)]).astype(np.int32)
    config = dataclasses.replace(lstm.Config().training, batch_size=4, bptt=2, shuffle=shuffle)
    whole = LineBatches(ids, BOS, EOS, config, 5, CPU)
    expected = sorted(line_of(row) for w in windows_of(whole, 0) if w.starts for row in w.targets)
    for name, value in (("LINES_AT_ONCE", 20), ("SHARD", 5), ("SHARDS_AT_ONCE", 2)):
        monkeypatch.setattr(batches, name, value)
    orders = []
    for epoch in (0, 1):
        source = LineBatches(ids, BOS, EOS, config, 5, CPU)
        windows = windows_of(source, epoch)
        assert len(windows) == source.steps(epoch)
        rows = [line_of(row) for window in windows if window.starts for row in window.targets]
        assert sorted(rows) == expected
        orders.append(rows)
        resumed = windows_of(source, epoch, 5)
        assert all(torch.equal(a.targets, b.targets) for a, b in zip(resumed, windows[5:], strict=True))
        ranks = [windows_of(LineBatches(ids, BOS, EOS, config, 5, CPU, rank, 3), epoch) for rank in range(3)]
        for window, *parts in zip(windows, *ranks, strict=True):
            for rank, part in enumerate(parts):
                assert part.part is not None
                if part.part.row_share:
                    assert torch.equal(part.targets, window.targets[rank::3])
                else:
                    assert rank >= len(window.targets)
            assert sum(p.part.token_share for p in parts if p.part) == pytest.approx(1)
    assert (orders[0] != orders[1]) == shuffle
    assert (orders[0] == sorted(orders[0])) == (not shuffle)


@pytest.mark.parametrize("context", ["line", "stream"])
def test_a_large_text_is_mapped_and_gives_the_same_network(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, context: Any
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c d\nb c\nc d e a\n\ne\n" * 9)
    settings: dict[str, Any] = {"hidden": 8, "epochs": 2, "batch_size": 4, "bptt": 5, "context": context}
    models = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        for limit in (api.LARGEST_IN_MEMORY, 10):
            monkeypatch.setattr(api, "LARGEST_IN_MEMORY", limit)
            models.append(api.train("lstm", text, device="cpu", **settings).lm.network.state_dict())
    assert all(torch.equal(tensor, models[1][name]) for name, tensor in models[0].items())


@pytest.mark.parametrize("context", ["line", "stream"])
def test_network_trains_from_the_files_of_shards(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, context: Any
) -> None:
    """The shards are mapped, not copied, and give the network of the text."""
    text = tmp_path / "text.txt"
    text.write_text("a b c d\nb c\nc d e a\n\ne\n" * 9)
    encode_corpus(Corpus.of(text), tmp_path / "shards", tokenizer=TokenizerConfig(), tokens_per_shard=20)
    settings: dict[str, Any] = {"hidden": 8, "epochs": 2, "batch_size": 4, "bptt": 5, "context": context}
    mapped: list[int] = []
    real = MappedIds.__init__

    def counted(ids: MappedIds, arrays: Any) -> None:
        mapped.append(len(arrays))
        real(ids, arrays)

    monkeypatch.setattr(MappedIds, "__init__", counted)
    models = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        for source in (text, tmp_path / "shards"):
            models.append(api.train("lstm", source, device="cpu", **settings).lm.network.state_dict())
    assert max(mapped) > 3
    assert all(torch.equal(tensor, models[1][name]) for name, tensor in models[0].items())
