"""Initialisation of task models: word vectors, pretrained encoders, digests and resumption."""

import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from numpy.testing import assert_array_equal

from chainrule import api
from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning, ConfigError, UsageError
from chainrule.neural import weights
from chainrule.neural.encoders.classifier import ClassifyConfig
from chainrule.neural.encoders.encoder import EncoderConfig, TextEncoder
from chainrule.neural.encoders.tagger import TagConfig
from chainrule.tasks import classify, pretrain, tag
from chainrule.tasks.initialization import Initialization, PretrainedSources, initialize, known_word_share
from chainrule.tasks.run_setup import identify
from chainrule.text.corpus import Corpus
from chainrule.text.labelled import LabelledTexts
from tasks.test_classify import network
from tasks.toy_tags import TINY, grammar
from training.test_resume import send_signal_during_step

LINES = ["The cat saw", "the dog saw", "the cat"]
SHAPE: dict[str, Any] = {"hidden": 8, "embedding": 6}
CHANGED = "the pre-trained encoder or the word vectors changed since the checkpoint was written"
KINDS = pytest.mark.parametrize("kind", [TagConfig, ClassifyConfig])


def initialize_small(
    kind: type[EncoderConfig] = ClassifyConfig, family: str = "lstm", seed: int = 0, **chosen: Any
) -> Initialization[EncoderConfig]:
    settings = PretrainedSources(
        **{name: chosen.pop(name) for name in ("tokenizer", "pretrained", "vectors") if name in chosen}
    )
    return initialize(kind, family, chosen, LINES, settings, RunOptions(seed=seed), {"lowercase": False})


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def encoder(path: Path, seed: int = 0, family: str = "lstm", **chosen: Any) -> Path:
    text = Corpus.from_lines([" ".join(s.words) for s in grammar(20, seed=1)])
    running = RunOptions(device="cpu", seed=seed)
    pretrain.train(family, text, options=running, **SHAPE | {"epochs": 1, "clip": 0.0} | chosen).save(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encoder(tmp_path_factory.mktemp("pretrained") / "encoder")


def test_initialization_without_pretraining() -> None:
    initialized = initialize_small(hidden=12)
    assert (initialized.config.family, initialized.config.hidden) == ("lstm", 12)
    assert {"The", "the", "cat"} <= set(initialized.tokenizer.vocab)
    assert "The" not in initialize_small(lowercase=True).tokenizer.vocab  # what is chosen goes before what is usual
    assert (initialized.reader, initialized.vectors, initialized.metrics, initialized.digest) == (
        None,
        None,
        {},
        "",
    )
    reader = TextEncoder(initialized.config, initialized.tokenizer.vocab_size)
    before = reader.embedding.detach().clone()
    initialized.apply(reader)
    assert_array_equal(reader.embedding.detach(), before)


def test_vectors_by_name_and_at_variance_one(tmp_path: Path) -> None:
    """As many 2 as −2: mean 0 and deviation 2. Width 4: the reader's scale is √4 = 2, so rows are v / (2 · 2)."""
    file = write(
        tmp_path / "v.txt",
        *("<unk> 2 2 -2 -2", "<s> 2 -2 2 -2", "</s> -2 -2 2 2", "The 2 -2 -2 2", "the -2 2 2 -2"),
        *("cat 2 2 -2 -2", "saw -2 -2 2 2", "dog -2 2 -2 2", "zebra 9 9 9 9"),
    )
    initialized = initialize_small(vectors=file, hidden=8)
    assert initialized.config.embedding == 4
    assert initialized.metrics == {"vectors_coverage": 1.0}
    reader = TextEncoder(initialized.config, initialized.tokenizer.vocab_size)
    initialized.apply(reader)
    rows = {
        name: reader.embedding[initialized.tokenizer.vocab[name]].tolist() for name in ("The", "the", "cat", "dog")
    }
    assert rows == {
        "The": [0.5, -0.5, -0.5, 0.5],
        "the": [-0.5, 0.5, 0.5, -0.5],
        "cat": [0.5, 0.5, -0.5, -0.5],
        "dog": [-0.5, 0.5, -0.5, 0.5],
    }


def test_lower_case_vector_is_used_for_missing_words(tmp_path: Path) -> None:
    initialized = initialize_small(vectors=write(tmp_path / "v.txt", "the 1 3", "cat 5 7"))
    assert initialized.vectors is not None
    rows = initialized.vectors[[initialized.tokenizer.vocab[name] for name in ("The", "the", "cat")]]
    assert rows.tolist() == [[1, 3], [1, 3], [5, 7]]
    # The, the and cat of The, the, cat, saw, dog, <unk>, <s>, </s>
    assert initialized.metrics["vectors_coverage"] == pytest.approx(3 / 8)


@KINDS
def test_conflicting_vector_width_is_rejected(kind: type[EncoderConfig], tmp_path: Path) -> None:
    file = write(tmp_path / "v.txt", "the 1 2 3", "cat 0 1 0")
    with pytest.raises(ConfigError, match=r"model.embedding is 5 but .*v.txt has vectors of width 3; leave it out"):
        initialize_small(kind, vectors=file, embedding=5)
    assert initialize_small(kind, vectors=file, embedding="3").config.embedding == 3


@KINDS
def test_initialization_from_a_pretrained_encoder(kind: type[EncoderConfig], folder: Path) -> None:
    known = api.load(folder, kind="pretrain", device="cpu")
    initialized = initialize_small(kind, pretrained=folder, layers="2", dropout=0.25)
    shape = {name: getattr(initialized.config, name) for name in known.shape}
    assert shape == known.shape == SHAPE | {"family": "lstm", "layers": 2, "directions": "apart"}
    assert initialized.config.dropout == 0.25
    assert initialized.tokenizer.to_json() == known.tokenizer.to_json()
    reader = TextEncoder(initialized.config, initialized.tokenizer.vocab_size)
    initialized.apply(reader)
    assert weights.serialize(reader) == weights.serialize(known.reader)


@KINDS
@pytest.mark.parametrize(
    ("lines", "share"),
    [
        (["the cat saw", "a dog"], 1.0),
        (["the cat\nsaw zebra", "zebra the"], 4 / 6),  # zebra twice
        (["zebra emu", "the emu\tgnu"], 1 / 5),
    ],
)
def test_coverage_of_the_training_text(
    kind: type[EncoderConfig], folder: Path, lines: list[str], share: float
) -> None:
    heard: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        running = RunOptions(announce=heard.append)
        initialized = initialize(
            kind, "lstm", {}, lines, PretrainedSources(pretrained=folder), running, {"lowercase": False}
        )
    assert heard == [f"the encoder of {folder} covers {share:.1%} of the running words"]
    assert initialized.metrics == {"pretrained_coverage": pytest.approx(share)}
    assert [warning.category for warning in caught] == ([ChainruleWarning] if share < 0.5 else [])
    assert all(f"covers {share:.1%} of the running words" in str(warning.message) for warning in caught)


def test_byte_tokenizer_covers_every_word() -> None:
    tokenizer = initialize_small(tokenizer="byte").tokenizer
    assert known_word_share(tokenizer, ["any word", "whatever"]) == known_word_share(tokenizer, []) == 1


def test_vector_coverage_is_announced(tmp_path: Path) -> None:
    """The (by its lower case), the and cat of The, the, cat, saw, dog."""
    file, heard = write(tmp_path / "v.txt", "the 1 3", "cat 5 7", "zebra 1 1"), list[str]()
    initialize(
        ClassifyConfig,
        "lstm",
        {},
        LINES,
        PretrainedSources(vectors=file),
        RunOptions(announce=heard.append),
        {"lowercase": False},
    )
    assert heard == [f"{file} has vectors for 3 of the 5 words of the vocabulary"]


def test_equivalent_shapes_are_accepted(tmp_path: Path) -> None:
    """An embedding of 0 is as wide as the layers."""
    path = encoder(tmp_path / "e", hidden=8, embedding=8)
    assert initialize_small(pretrained=path, embedding=0).config.embedding_width == 8


@KINDS
@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"hidden": 10}, r"model.hidden is 10 but .*encoder has 8; use 8, or omit the setting"),
        ({"embedding": 0}, r"model.embedding is 8 but .*encoder has 6"),
        ({"directions": "joined"}, r"model.directions is 'joined' but .*encoder has 'apart'"),
        ({"family": "gru"}, r"the family is 'gru' but 'lstm' in .*encoder; use that family"),
        ({"family": "transformer"}, r"the family is 'transformer' but 'lstm' in .*encoder; use that family"),
        ({"tokenizer": "char"}, r"encoder already has a tokenizer and word vectors; leave out tokenizer$"),
        (
            {"vectors": "v.txt", "min_count": 2},
            r"encoder already has a tokenizer and word vectors; leave out vectors, min_count",
        ),
        ({"hiden": 8}, r"no setting 'hiden' for family 'lstm'; did you mean 'hidden'"),
    ],
)
def test_settings_fixed_by_a_pretrained_encoder(
    kind: type[EncoderConfig], chosen: dict[str, Any], message: str, folder: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        initialize_small(kind, pretrained=folder, **chosen)


def test_all_shape_settings_of_a_transformer_are_compared(tmp_path: Path) -> None:
    path = encoder(tmp_path / "e", family="transformer", hidden=8, heads=2, positions="learned", longest=20)
    initialized = initialize_small(TagConfig, "transformer", pretrained=path, feedforward=0)  # 0: 4 · 8, as there
    assert (initialized.config.heads, initialized.config.positions, initialized.config.longest) == (
        2,
        "learned",
        20,
    )
    for wrong, message in (
        ({"longest": 30}, "model.longest is 30 but .* has 20"),
        ({"positions": "rotary"}, "model.positions is 'rotary' but .* has 'learned'"),
    ):
        with pytest.raises(ConfigError, match=message):
            initialize_small(TagConfig, "transformer", pretrained=path, **wrong)


def test_digest_of_vectors(tmp_path: Path) -> None:
    first = initialize_small(vectors=write(tmp_path / "a.txt", "the 1 2", "cat 3 4")).digest
    assert len(first) == 64
    assert initialize_small(vectors=write(tmp_path / "b.txt", "the 1 2", "cat 3 4", "zebra 5 6")).digest == first
    others = {
        initialize_small(vectors=write(tmp_path / "c.txt", "the 1 2", "cat 3 4.0001")).digest,
        initialize_small(vectors=write(tmp_path / "d.txt", "the 1 2", "dog 3 4")).digest,
        initialize_small(vectors=tmp_path / "a.txt", seed=1).digest,  # rows that the file does not have
    }
    assert len(others - {first}) == 3


def test_digest_of_an_encoder(folder: Path) -> None:
    initialized, again = initialize_small(pretrained=folder), initialize_small(TagConfig, pretrained=folder)
    assert len(initialized.digest) == 64
    assert initialized.digest == again.digest
    assert again.reader is not None
    for parameter in again.reader.parameters():
        before = again.digest
        with torch.no_grad():
            parameter.flatten()[-1] += 0.5
        assert again.digest != before


def test_the_digest_is_part_of_a_run() -> None:
    initialized = initialize_small()
    plain = identify(RunOptions(), "tag", initialized.config, [LINES], [initialized.tokenizer])
    assert "begun" not in plain.identity
    job = identify(RunOptions(), "tag", initialized.config, [LINES], [initialized.tokenizer], "0a1b")
    assert job.identity == {**plain.identity, "begun": "0a1b"}


def test_resumption_with_other_vectors_is_rejected(tmp_path: Path) -> None:
    first = write(tmp_path / "a.txt", "the 1 2", "saw 3 4")
    chosen: dict[str, Any] = TINY | {"embedding": 2, "characters": 0, "epochs": 2}

    def run(vectors: Path | None, **running: Any) -> tag.Tagger:
        return tag.train(
            "lstm", grammar(20, seed=1), vectors=vectors, options=RunOptions(device="cpu", **running), **chosen
        )

    complete, place = run(first), tmp_path / "m"
    with send_signal_during_step(signal.SIGTERM, 2), pytest.raises(SystemExit):
        run(first, out=place)
    for other in (write(tmp_path / "b.txt", "the 1 2", "saw 3 5"), None):
        with pytest.raises(UsageError, match=CHANGED):
            run(other, out=place, resume=True)
    moved = first.rename(tmp_path / "moved.txt")  # the same vectors by another name
    again = run(moved, out=place, resume=True)
    assert weights.serialize(again.network) == weights.serialize(complete.network)


def test_resumption_with_another_encoder_is_rejected(folder: Path, tmp_path: Path) -> None:
    texts = [" ".join(s.words) for s in grammar(20, seed=1)]
    data = LabelledTexts(tuple(texts), tuple("ab"[i % 2] for i in range(20)), "texts")
    chosen: dict[str, Any] = {"epochs": 2, "batch_size": 8, "clip": 0.0}

    def run(pretrained: Path | None, **running: Any) -> classify.Classifier:
        running = {"options": RunOptions(device="cpu", **running)}
        return classify.train("lstm", data, pretrained=pretrained, **chosen | running)

    place = tmp_path / "m"
    complete = run(folder)
    with send_signal_during_step(signal.SIGTERM, 2), pytest.raises(SystemExit):
        run(folder, out=place)
    for other in (encoder(tmp_path / "weights", seed=1), encoder(tmp_path / "shape", hidden=10), None):
        with pytest.raises(UsageError, match=CHANGED):
            run(other, out=place, resume=True)
    again = run(folder, out=place, resume=True)
    assert_array_equal(again.probabilities(texts), complete.probabilities(texts))


def test_frozen_vectors_do_not_change(folder: Path) -> None:
    texts = [" ".join(s.words) for s in grammar(20, seed=1)]
    data = LabelledTexts(tuple(texts), tuple("ab"[i % 2] for i in range(20)), "texts")
    chosen: dict[str, Any] = {"epochs": 2, "batch_size": 8, "weight_decay": 1.0, "frozen_vectors": True}
    model = classify.train("lstm", data, pretrained=folder, options=RunOptions(device="cpu"), **chosen)
    before, after = (
        dict(r.named_parameters())
        for r in (api.load(folder, kind="pretrain", device="cpu").reader, network(model).reader)
    )
    assert [name for name in before if torch.equal(before[name], after[name])] == [
        "embedding"
    ]  # all else has learnt


def test_frozen_vectors_need_vectors() -> None:
    with pytest.raises(ConfigError, match="frozen_vectors is true, but there are no pretrained vectors to freeze"):
        initialize_small(frozen_vectors=True)
