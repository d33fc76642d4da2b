"""Pretrained encoders: exact entropies, masked words, saving and resumption."""

import math
import signal
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import chainrule
from chainrule import api, recipes
from chainrule.config import build_config, flatten
from chainrule.data.encoded import EncodedText
from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning, ConfigError, InputError, ModelFileError, UsageError
from chainrule.lm import Floats, Vocabulary
from chainrule.neural.encoders.pretraining import PretrainConfig, build
from chainrule.tasks import pretrain
from chainrule.tasks.pretrain import Pretrained, Segments
from chainrule.text.corpus import Corpus
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.encode import encode
from training.small_networks import entries
from training.test_resume import send_signal_during_step

TINY: dict[str, Any] = {"hidden": 8, "layers": 1, "batch_size": 4, "epochs": 2, "log_every": 2}
LEARN: dict[str, Any] = {"layers": 1, "dropout": 0.0, "batch_size": 20, "learning_rate": 1e-2, "warmup": 5}
FAMILIES: dict[str, dict[str, Any]] = {"rnn": {}, "lstm": {}, "gru": {}, "transformer": {"heads": 2}}
BOS, EOS = 0, 1
VOCABULARY = Vocabulary(40, BOS, EOS, 2)


@contextmanager
def no_advice() -> Iterator[None]:
    """So short a run may well be advised to go on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        yield


def corpus(*lines: str, times: int = 1) -> Corpus:
    return Corpus.from_lines(list(lines) * times)


def trained(family: str, text: Corpus, **chosen: Any) -> Pretrained:
    with no_advice():
        return pretrain.train(family, text, **chosen)


SENTENCES = corpus("the cat sees a dog", "a dog sees the cat", "the bird sings", "", "one bird", times=4)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Pretrained:
    return trained(request.param, SENTENCES, valid=SENTENCES, **TINY, **FAMILIES[request.param])


def encoded(*lines: list[int]) -> EncodedText:
    ids = np.array([token for line in lines for token in [*line, EOS]], dtype=np.int32)
    return EncodedText(ids, EOS, 2, 0, 0, 0)


def test_segments() -> None:
    """The first line has 6 steps from token to token, more than a piece of 4 tokens has: twice three."""
    pieces = Segments.of(encoded([], [3, 4, 5, 6, 7], [], [], [8]), VOCABULARY, longest=4)
    ids, mask = pieces.rows(np.arange(3))
    assert [row[keep].tolist() for row, keep in zip(ids, mask, strict=True)] == [
        [BOS, 3, 4, 5],
        [5, 6, 7, EOS],
        [BOS, 8, EOS],
    ]
    assert pieces.ids.dtype == np.int32
    assert [len(ids) for ids, _ in pieces.by_length()] == [3]


@pytest.mark.parametrize("longest", [2, 3, 7, 128])
def test_each_direction_predicts_each_word_once(longest: int) -> None:
    rng = np.random.default_rng(longest)
    lines = [rng.integers(2, 40, n).tolist() for n in (0, 1, 2, 5, 6, 7, 30, 0, 131, 13)]
    pieces = Segments.of(encoded(*lines), VOCABULARY, longest)
    assert pieces.lengths.max() <= longest
    assert pieces.lengths.min() >= 2
    network = build(PretrainConfig(hidden=4), VOCABULARY)
    result = [Counter[int](), Counter[int]()]
    for ids, mask in pieces.by_length():
        batch = network.collate(ids, mask)
        for place, target in zip(batch.target_positions.tolist(), batch.targets.tolist(), strict=True):
            result[place >= batch.inputs.numel()][target] += 1
    words = Counter(word for line in lines for word in line)
    assert result[1] == words
    assert result[0] == words | Counter({EOS: 8})  # lines that are not empty


def test_a_line_of_a_million_words() -> None:
    pieces = Segments.of(encoded(list(range(2, 40)) * 26_316), VOCABULARY, longest=128)
    assert len(pieces.starts) == math.ceil(1_000_009 / 127)
    assert pieces.lengths.min() >= 127
    assert pieces.ids.nbytes == 4 * (1_000_008 + 2)


@pytest.mark.parametrize("family", ["lstm", "gru", "rnn"])
def test_each_direction_learns_its_own_entropy(family: str) -> None:
    """Four lines equally often, p a, q a, r b, s b: by the chain rule each direction needs log 4 nats a line.

    Forward: 1 of 4, then no choice for the word and `</s>`: log 4 / 3 a token, (1/4 + 1 + 1) / 3 right.
    Backward: 1 of 2, then 1 of 2: log 4 / 2 a token, 1/2 right. The last word tells about the first, and only
    a direction that has read it knows.
    """
    text = corpus("p a", "q a", "r b", "s b", times=50)
    result = trained(family, text, hidden=24, epochs=12, **LEARN).evaluate(text)
    assert result["forward"].nats == pytest.approx(math.log(4) / 3, rel=0.02)
    assert result["backward"].nats == pytest.approx(math.log(4) / 2, rel=0.02)
    assert result["forward"].accuracy == pytest.approx(0.75, abs=1e-9)
    assert result["backward"].accuracy == pytest.approx(0.5, abs=1e-9)


def test_masked_words_are_predicted() -> None:
    """One word of three is chosen, and both others tell which it was."""
    text = corpus("a x a", "b x b", times=100)
    result = trained("transformer", text, hidden=16, heads=2, epochs=12, **LEARN).evaluate(text)
    assert result["masked"].tokens == 200
    assert result["masked"].accuracy >= 0.99
    assert result["masked"].nats < 0.1


def topics(seed: int, lines: int, names: range) -> tuple[list[str], Floats]:
    """Lines of four words, all of one of two topics, and which."""
    rng = np.random.default_rng(seed)
    which = rng.integers(2, size=lines)
    texts = [" ".join(f"{'pq'[k]}{i}" for i in rng.choice(names, 4)) for k in which.tolist()]
    return texts, 2.0 * which - 1


def features(model: Pretrained, lines: list[str]) -> Floats:
    """(N, D): the mean vector of each line's words."""
    ids = torch.from_numpy(np.stack([model.tokenizer.encode(line) for line in lines]).astype(np.int64))
    with torch.no_grad():
        result: Floats = model.reader(ids, torch.ones_like(ids, dtype=torch.bool)).hidden.mean(dim=1).numpy()
    return result


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_probe_of_the_pretrained_encoder(family: str) -> None:
    """Few lines with labels, of few words; the others are known from plain text alone, or not at all."""
    text = corpus(*topics(1, 400, range(12))[0])
    settings = LEARN | {"hidden": 16, "epochs": 8, **FAMILIES[family]}
    (known, labels), (unseen, truth) = topics(2, 12, range(4)), topics(3, 100, range(4, 12))

    def accuracy(model: Pretrained) -> float:
        X = features(model, known)
        w = X.T @ np.linalg.solve(X @ X.T + 0.1 * np.eye(len(X)), labels)  # ridge regression
        return float((np.sign(features(model, unseen) @ w) == truth).mean())

    train_small = trained(family, text, **settings)
    assert accuracy(train_small) >= 0.95
    chances = []
    for seed in range(10):
        torch.manual_seed(seed)
        untrained = build(train_small.config, train_small.tokenizer.vocabulary).eval()
        chances.append(accuracy(replace(train_small, network=untrained)))
    assert np.mean(chances) < 0.75


def test_save_and_load(tmp_path: Path, model: Pretrained) -> None:
    model.save(tmp_path / "encoder")
    for loaded in (
        api.load(tmp_path / "encoder", kind="pretrain", device="cpu"),
        chainrule.load(tmp_path / "encoder", device="cpu"),
    ):
        assert isinstance(loaded, Pretrained)
        assert loaded.evaluate(SENTENCES) == model.evaluate(SENTENCES)
        assert loaded.shape == model.shape
        assert loaded.metrics == model.metrics
        assert loaded.log == model.log
        assert (loaded.parameters, repr(loaded)) == (model.parameters, repr(model))
        for mine, theirs in zip(loaded.reader.parameters(), model.reader.parameters(), strict=True):
            assert torch.equal(mine, theirs)


def test_validation_metrics_are_saved(model: Pretrained) -> None:
    for name, figures in model.evaluate(SENTENCES).items():
        assert model.metrics[f"valid_{name}_nats"] == pytest.approx(figures.nats)
        assert model.metrics[f"valid_{name}_perplexity"] == pytest.approx(math.exp(figures.nats))
    assert model.metrics["train_tokens"] == 4 * (5 + 5 + 3 + 2 + 4)  # words, and `</s>` of four lines
    assert any(entry.get("event") == "validation" for entry in entries(model.log))


def test_damaged_and_foreign_folders_are_rejected(tmp_path: Path, model: Pretrained) -> None:
    replace(model, config=replace(model.config, hidden=1 << 14)).save(tmp_path / "too-large")
    with pytest.raises(ModelFileError, match="does not fit its config"):
        api.load(tmp_path / "too-large", kind="pretrain", device="cpu")
    model.save(tmp_path / "encoder")
    file = tmp_path / "encoder" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"model\.safetensors"):
        api.load(tmp_path / "encoder", kind="pretrain", device="cpu")


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_resumed_run_equals_uninterrupted_run(tmp_path: Path, family: str) -> None:
    """16 lines with words in batches of 4: 4 steps an epoch; dropout and hidden words from one generator."""
    settings = TINY | {"dropout": 0.3, "valid": SENTENCES, "learning_rate": 0.05, **FAMILIES[family]}
    complete = trained(family, SENTENCES, **settings)
    assert [e["step"] for e in entries(complete.log) if e.get("event") == "validation"] == [4, 8]
    for step in (1, 3, 4, 5, 8):
        out = tmp_path / str(step)
        with send_signal_during_step(signal.SIGTERM, step), pytest.raises(SystemExit):
            trained(family, SENTENCES, options=RunOptions(out=out), **settings)
        with pytest.raises(UsageError, match="unfinished run"):
            trained(family, SENTENCES, options=RunOptions(out=out), **settings)
        again = trained(family, SENTENCES, options=RunOptions(out=out, resume=True), **settings)
        for mine, theirs in zip(again.network.parameters(), complete.network.parameters(), strict=True):
            assert torch.equal(mine, theirs), f"stopped at step {step}"
        assert entries(again.log) == entries(complete.log)


def test_resumption_with_other_text_is_rejected(tmp_path: Path) -> None:
    with send_signal_during_step(signal.SIGTERM, 3), pytest.raises(SystemExit):
        trained("lstm", SENTENCES, options=RunOptions(out=tmp_path), **TINY)
    other = corpus(*SENTENCES, "a cat")
    with pytest.raises(chainrule.ChainruleError, match="text"):
        trained("lstm", other, options=RunOptions(out=tmp_path, resume=True), **TINY)


def test_runs_depend_on_the_seed() -> None:
    first, again, other = (trained("gru", SENTENCES, options=RunOptions(seed=seed), **TINY) for seed in (0, 0, 1))
    assert torch.equal(first.reader.embedding, again.reader.embedding)
    assert not torch.equal(first.reader.embedding, other.reader.embedding)


@pytest.mark.parametrize("tokenizer", ["char", "bpe"])
def test_subword_tokenizers(tokenizer: str) -> None:
    size = {"vocab_size": 270} if tokenizer == "bpe" else {}
    model = trained("lstm", SENTENCES, tokenizer=tokenizer, longest=8, **TINY, **size)
    assert model.evaluate(corpus("a zebra"))["forward"].tokens == len(model.tokenizer.encode("a zebra")) + 1


def test_tokenizer_from_a_folder(tmp_path: Path, model: Pretrained) -> None:
    model.save(tmp_path / "encoder")
    other = trained("rnn", corpus("a fish sings", times=4), tokenizer=tmp_path / "encoder", **TINY)
    assert other.tokenizer.to_json() == model.tokenizer.to_json()


def test_texts_without_words_are_rejected() -> None:
    with pytest.raises(InputError, match="no words"):
        trained("lstm", corpus("", " "), tokenizer="bpe", vocab_size=300, **TINY)
    with pytest.raises(InputError, match="lines in memory contains no words"):
        trained("lstm", SENTENCES, valid=corpus("", ""), **TINY)


def test_unknown_settings_and_families() -> None:
    with pytest.raises(ConfigError, match="no setting 'maks' for family 'transformer'; did you mean 'mask'"):
        trained("transformer", SENTENCES, maks=0.2)
    with pytest.raises(ConfigError, match="family is 'ngram'"):
        trained("ngram", SENTENCES)


@pytest.mark.parametrize(("name", "family"), [("wikitext2-bilm", "lstm"), ("wikitext2-masked", "transformer")])
def test_recipes(name: str, family: str) -> None:
    chosen = recipes.read(name, family, "pretrain").choices
    config = build_config(PretrainConfig, {"family": family, **chosen.model}, "model")
    assert {setting: flatten(config)[setting] for setting in chosen.model} == chosen.model
    build_config(TokenizerConfig, chosen.tokenizer, "tokenizer")
    with pytest.raises(ConfigError, match="chainrule pretrain"):
        recipes.read(name, family)


@pytest.mark.data
def test_segments_of_real_text(data_folder: Path) -> None:
    """WikiText-2 has 213,886 words for validation; many paragraphs are longer than a piece, and lines blank."""
    text = Corpus.of(data_folder / "wikitext2" / "wiki.valid.tokens")
    tokenizer = tokenizer_training.train(text, TokenizerConfig(vocab_size=1000))
    pieces = Segments.of(encode(text, tokenizer), tokenizer.vocabulary, longest=128)
    lines = sum(bool(line.strip(" ")) for line in text)
    assert (pieces.lengths - 1).sum() == 213_886 + lines  # what the forward direction predicts
    assert lines < len(pieces.starts)
