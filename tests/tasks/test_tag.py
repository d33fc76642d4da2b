"""Taggers on small languages with known tags: training, saving, resumption and rejected input."""

import hashlib
import json
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import chainrule
from chainrule import api
from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning, ConfigError, InputError, ModelFileError
from chainrule.neural import weights
from chainrule.tasks import pretrain, tag
from chainrule.tasks.pretrain import Segments
from chainrule.text.conll import TaggedSentence
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.encode import encode
from tasks.toy_tags import TINY, grammar, names, write
from training.small_networks import entries
from training.test_resume import send_signal_during_step

CPU = RunOptions(device="cpu")
SENTENCE = ("the", "old", "saw", "saw", "a", "duck")


def learn(data: Any, running: RunOptions = CPU, family: str = "lstm", **chosen: Any) -> tag.Tagger:
    settings = {name: value for name, value in (TINY | chosen).items() if value is not None}
    return tag.train(family, data, options=running, **{"characters": 0, "epochs": 5} | settings)


@pytest.fixture(scope="module")
def model() -> tag.Tagger:
    return learn(grammar(100, seed=1), valid=grammar(30, seed=2))


def best_table(train: list[TaggedSentence], test: list[TaggedSentence]) -> float:
    """The accuracy of each word's most frequent tag."""
    seen: dict[str, Counter[str]] = {}
    pairs = [list(zip(s.words, s.tags, strict=True)) for part in (train, test) for s in part]
    for word, right in (pair for sentence in pairs[: len(train)] for pair in sentence):
        seen.setdefault(word, Counter())[right] += 1
    result = [
        seen[word].most_common(1)[0][0] == right for sentence in pairs[len(train) :] for word, right in sentence
    ]
    return float(np.mean(result))


def test_tags_that_depend_on_their_neighbours(model: tag.Tagger) -> None:
    unseen = grammar(200, seed=3)
    assert best_table(grammar(100, seed=1), unseen) < 0.93
    result = model.evaluate(unseen)
    assert result.accuracy >= 0.99
    assert result.spans is None
    assert result.unknown_words == 0
    assert model.tag(SENTENCE) == ["DET", "ADJ", "NOUN", "VERB", "DET", "NOUN"]
    assert model.metrics["valid_accuracy"] >= 0.99
    assert model.metrics["train_sentences"] == 100
    errors = [e["error"] for e in entries(model.log) if e.get("event") == "validation"]
    assert min(errors) == pytest.approx(1 - model.metrics["valid_accuracy"])  # the best is kept


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("gru", {"crf": False, "epochs": 8}),
        ("rnn", {"scheme": "keep"}),
        ("transformer", {"heads": 2, "learning_rate": 0.01, "dropout": 0.0}),
        ("lstm", {"characters": 4, "scheme": "iob2", "lowercase": False}),
    ],
)
def test_spans_of_one_and_two_words(family: str, settings: dict[str, Any]) -> None:
    tagger = learn(names(120, seed=1), family=family, **settings)
    result = tagger.evaluate(names(100, seed=2))
    assert result.spans is not None
    assert result.spans.f1 == 1
    assert result.accuracy == 1
    words = ["Anna", "York", "likes", "the", "new", "road", "to", "New", "York"]
    assert tagger.tag(words) == ["I-PER", "I-PER", "O", "O", "O", "O", "O", "I-LOC", "I-LOC"]


def test_confidences_and_marginals(model: tag.Tagger) -> None:
    ways = model.marginals(SENTENCE)
    assert [next(iter(way)) for way in ways] == model.tag(SENTENCE)  # so sure that both agree
    assert_allclose([sum(way.values()) for way in ways], 1, atol=1e-6)  # four tags: all are among the five
    assert all(list(way.values()) == sorted(way.values(), reverse=True) for way in ways)
    (sure,) = model.confidences([SENTENCE])
    assert_allclose(sure, [max(way.values()) for way in ways], atol=1e-6)
    assert [len(way) for way in model.marginals(SENTENCE, most=2)] == [2] * 6
    assert model.marginals([]) == []


def test_sentences_keep_their_order(model: tag.Tagger) -> None:
    sentences = [s.words for s in grammar(150, seed=4)]
    sentences[70:70] = [(), SENTENCE]
    together = model.tag_all(sentences)
    assert together[70] == []
    assert [len(tags) for tags in together] == [len(words) for words in sentences]
    assert all(together[i] == model.tag(sentences[i]) for i in (0, 70, 71, 120, 151))
    assert [len(row) for row in model.confidences(sentences)] == [len(words) for words in sentences]
    assert model.tag_all([]) == []


@pytest.mark.parametrize("ask", ["tag_all", "confidences"])
def test_progress_counts_sentences(model: tag.Tagger, ask: str) -> None:
    """150 sentences, 64 at a time and those of like length together, whatever their order; one has no words."""
    sentences = sorted((s.words for s in grammar(150, seed=4)), key=len, reverse=True)
    message: list[tuple[str, int, int | None]] = []
    getattr(model, ask)([(), *sentences], lambda *now: message.append(now))
    assert [done for _, done, _ in message] == [0, 64, 128, 150]
    assert {total for _, _, total in message} == {150}


def test_save_and_load(model: tag.Tagger, tmp_path: Path) -> None:
    spelled = learn(names(40, seed=1), characters=5, epochs=2)
    for tagger, sentences in ((model, grammar(20, seed=5)), (spelled, names(20, seed=5))):
        tagger.save(tmp_path / "model", force=True)
        for again in (
            api.load(tmp_path / "model", kind="tag", device="cpu"),
            chainrule.load(tmp_path / "model", device="cpu"),
        ):
            assert again.tags == tagger.tags
            assert again.spellings == tagger.spellings
            assert again.config == tagger.config
            assert again.metrics == tagger.metrics
            assert again.log == tagger.log
            assert weights.serialize(again.network) == weights.serialize(tagger.network)
            words = [s.words for s in sentences]
            assert again.tag_all(words) == tagger.tag_all(words)
            assert again.confidences(words) == tagger.confidences(words)
    assert "lstm tagger of sentences in memory" in repr(spelled)


def test_changed_folder_is_rejected(model: tag.Tagger, tmp_path: Path) -> None:
    """By the manifest, by the manifest's own digest, and where all was sealed anew by the weights."""
    place = tmp_path / "model"
    model.save(place)
    config = json.loads((place / "config.json").read_bytes())
    config["tags"]["names"].append("X")
    changed = json.dumps(config).encode()
    (place / "config.json").write_bytes(changed)
    with pytest.raises(ModelFileError, match=r"config\.json"):
        api.load(place, kind="tag")
    manifest = json.loads((place / "manifest.json").read_bytes())
    entry = {"sha256": hashlib.sha256(changed).hexdigest(), "size": len(changed)}
    assert manifest["files"]["config.json"].keys() == entry.keys()
    manifest["files"]["config.json"] = entry
    (place / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFileError, match=r"manifest\.json is damaged or was edited"):
        api.load(place, kind="tag")
    replace(model, tags=replace(model.tags, names=(*model.tags.names, "X"))).save(tmp_path / "sealed")
    with pytest.raises(ModelFileError, match="does not fit its config"):
        api.load(tmp_path / "sealed", kind="tag")


def test_resumed_run_equals_uninterrupted_run(tmp_path: Path) -> None:
    data, valid = names(40, seed=1), names(10, seed=2)
    chosen: dict[str, Any] = {"valid": valid, "characters": 4, "epochs": 3, "rare_unknown": 0.5, "min_count": 1}
    data = [*data, TaggedSentence(("Zoe", "sees", "Oslo"), ("I-PER", "O", "I-LOC"))]  # words met once
    complete = learn(data, **chosen)
    for step in (1, 4, 6, 7, 15):  # 41 sentences, 8 at a time: 6 steps an epoch
        place = tmp_path / str(step)
        with send_signal_during_step(signal.SIGTERM, step), pytest.raises(SystemExit):
            learn(data, RunOptions(device="cpu", out=place), **chosen)
        again = learn(data, RunOptions(device="cpu", out=place, resume=True), **chosen)
        assert weights.serialize(again.network) == weights.serialize(complete.network)
        assert entries(again.log) == entries(complete.log)
    other = learn(data, **chosen | {"rare_unknown": 0.0})
    assert weights.serialize(other.network) != weights.serialize(complete.network)


def test_files_and_their_columns(tmp_path: Path) -> None:
    rows = "the DT DET\nold JJ ADJ\nsaw NN NOUN\n\nwe PRP PRON\nsaw VBD VERB\n"
    path = tmp_path / "train.conll"
    path.write_text(rows)
    assert set(learn(path, epochs=1).tags.names) == {"DET", "ADJ", "NOUN", "PRON", "VERB"}
    second = learn(path, valid=path, column=2, epochs=1)
    assert set(second.tags.names) == {"DT", "JJ", "NN", "PRP", "VBD"}
    assert second.evaluate(path, column="2").words == 5
    assert set(second.evaluate(path).confusion.labels) >= {"DT", "JJ"}  # of the column it was taught
    assert second.origin.text == str(path)
    with pytest.warns(
        ChainruleWarning, match=r"train.conll: not in the training data: ADJ, DET, NOUN, PRON, VERB; "
    ):
        assert second.evaluate(path, column=3).accuracy == 0
    path.write_text(rows.replace("saw VBD VERB", "saw VBD"))
    with pytest.raises(InputError, match=r"train.conll, line 6 has 2 columns but the first line has 3"):
        learn(path)


def test_each_word_is_one_token(tmp_path: Path) -> None:
    """Words are looked up in lower case, a blank inside one as `_`; `<s>` is a word like any other unknown one."""
    data = [TaggedSentence(("10 000", "Cats", "<s>"), ("NUM", "NOUN", "SYM"))]
    tagger = learn(data, epochs=1, characters=3)
    assert set(tagger.tokenizer.vocab) == {"<unk>", "10_000", "cats"}
    assert tagger.spellings is not None
    assert {" ", "C", "<"} <= set(tagger.spellings.characters)
    assert len(tagger.tag(["CATS", "10\t000", "x y"])) == 3
    cased = learn(data, epochs=1, lowercase=False)
    assert "Cats" in cased.tokenizer.vocab
    with pytest.raises(InputError, match="sentence 2 has 2 words, some of them empty"):
        tagger.tag_all([["a"], ["a", ""]])
    with pytest.raises(InputError, match="sentence 1 is one text, 'a cat'; give a list of words"):
        tagger.tag("a cat")
    with pytest.raises(ConfigError, match="tokenizer is 'bpe', but tags belong to words"):
        learn(data, tokenizer="bpe")


def test_long_sentences_of_a_transformer() -> None:
    data = [*grammar(20, seed=1), TaggedSentence(("the",) * 30, ("DET",) * 30)]
    message = r"1 sentences have more than 20 words and are left out; set longest to 32 \(words, <s> and </s>\)"
    with pytest.warns(ChainruleWarning, match=message):
        tagger = learn(data, family="transformer", heads=2, epochs=1, longest=22, positions="learned", clip=0)
    assert tagger.metrics["train_sentences"] == 20
    assert len(tagger.tag(["the"] * 20)) == 20  # and two signs: as many as there are positions
    with pytest.warns(
        ChainruleWarning, match="1 of 2 sentences have more than 20 words and are read in pieces; .*23"
    ):
        assert [len(tags) for tags in tagger.tag_all([["the"], ["the"] * 21])] == [1, 21]
    kept = "no sentence is left to learn from; set longest to 32"
    with pytest.raises(InputError, match=kept), pytest.warns(ChainruleWarning):
        learn(data[-1:], family="transformer", heads=2, longest=20)


def test_unknown_tags_count_as_errors(model: tag.Tagger) -> None:
    with pytest.warns(ChainruleWarning, match="not in the training data: ADV") as message:
        result = model.evaluate([TaggedSentence(SENTENCE, ("DET", "ADV", "NOUN", "VERB", "DET", "NOUN"))])
    assert len(message) == 1
    assert result.accuracy == pytest.approx(5 / 6)


def test_initialization_from_word_vectors(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("the 1 0 -1\nsaw 0.5 0.5 2\nnowhere 9 9 9\n")
    data = grammar(10, seed=1)
    tagger = learn(data, embedding=None, vectors=path, epochs=1, learning_rate=1e-9)
    assert tagger.config.embedding == 3
    V = tagger.tokenizer.vocab_size
    assert tagger.metrics["vectors_coverage"] == pytest.approx(2 / V)
    rows = tagger.network.reader.embedding.detach().numpy()[[tagger.tokenizer.vocab[w] for w in ("the", "saw")]]
    assert_allclose(rows / rows[0, 0], [[1.0, 0.0, -1.0], [0.5, 0.5, 2.0]], atol=1e-4)
    again = learn(data, embedding=None, vectors=path, epochs=1, learning_rate=1e-9)
    assert weights.serialize(again.network) == weights.serialize(tagger.network)


def test_initialization_from_a_pretrained_encoder(tmp_path: Path) -> None:
    data = grammar(30, seed=1)
    text = tmp_path / "text.txt"
    text.write_text("".join(" ".join(s.words) + "\n" for s in data))
    shape: dict[str, Any] = {"hidden": 8, "embedding": 6}
    first = pretrain.train("lstm", text, options=CPU, epochs=1, **shape)
    first.save(tmp_path / "encoder")
    own = {k: v for k, v in TINY.items() if k not in shape}
    chosen: dict[str, Any] = own | {"pretrained": tmp_path / "encoder", "options": CPU, "epochs": 1}
    tagger = tag.train("lstm", data, **chosen | {"learning_rate": 1e-9})
    assert tagger.tokenizer.to_json() == first.tokenizer.to_json()
    assert (tagger.config.hidden, tagger.config.embedding) == (8, 6)
    given, kept = first.reader.embedding.detach().numpy(), tagger.network.reader.embedding.detach().numpy()
    assert_allclose(kept, given, atol=1e-5)
    read: list[Any] = []
    tagger.network.reader.register_forward_hook(lambda _, inputs, __: read.append(inputs[0].tolist()))
    tagger.tag(["the", "saw"])
    line, _ = Segments.of(
        encode(Corpus.from_lines(["the saw"]), first.tokenizer), first.tokenizer.vocabulary, 9
    ).rows(np.arange(1))
    assert read == [line.tolist()]  # as pre-training read the same line
    pretrain.train("lstm", text, tokenizer="char", options=CPU, epochs=1, **shape).save(tmp_path / "letters")
    with pytest.raises(ConfigError, match="tokenizer is 'char', but tags belong to words"):
        tag.train("lstm", data, **chosen | {"pretrained": tmp_path / "letters"})


def test_settings_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no setting 'crff'.*did you mean 'crf'"):
        learn(grammar(2, seed=1), crff=True)
    with pytest.raises(ConfigError, match="follow no span scheme"):
        learn(write(tmp_path / "x.conll", grammar(2, seed=1)), scheme="iob2")


def test_zero_f1_gives_a_warning_with_advice() -> None:
    data = [TaggedSentence(("John", "sings"), ("B-PER", "O")), TaggedSentence(("he", "sings"), ("O", "O"))] * 4
    with pytest.warns(ChainruleWarning, match=r"F1 0\.0\) after 1 steps: .*--epochs \(now 1\).*--learning-rate"):
        tagger = learn(
            data, epochs=1, valid=data, learning_rate=1e-9, batch_size=32, init="uniform", init_range=1e-6
        )
    assert tagger.metrics["valid_f1"] == 0
    assert (tagger.metrics["train_epochs"], tagger.metrics["train_steps"]) == (1, 1)
