"""Text classifiers: word order is learnt, numbers by hand, model folders and resumption."""

import json
import math
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import chainrule
from chainrule import api
from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning, ConfigError, InputError, ModelFileError, UsageError
from chainrule.neural import weights
from chainrule.tasks import classify
from chainrule.tasks.classify import Classifier
from chainrule.tasks.classify_report import apply_temperature, encode_labels
from chainrule.text.labelled import LabelledTexts
from training.small_networks import entries
from training.test_resume import send_signal_during_step

POOLINGS = ("last", "mean", "max", "attention")
NETWORKS = [("lstm", pooling) for pooling in POOLINGS] + [("gru", "max"), ("rnn", "max"), ("transformer", "mean")]
SMALL: dict[str, Any] = {"hidden": 32, "embedding": 16, "dropout": 0.0, "unknown": 0.0, "batch_size": 16}
QUICK: dict[str, Any] = SMALL | {"epochs": 8, "learning_rate": 1e-2, "clip": 0.0}


def which_comes_first(number: int, seed: int) -> LabelledTexts:
    """One a and one b among four other words; the label says which stands first, the words themselves nothing."""
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(number):
        words = rng.choice(list("cdefg"), size=6).tolist()
        label = str(rng.choice(["ab", "ba"]))
        for place, word in zip(sorted(rng.choice(6, 2, replace=False).tolist()), label, strict=True):
            words[place] = word
        texts.append(" ".join(words))
        labels.append(label)
    return LabelledTexts(tuple(texts), tuple(labels), "order")


TRAIN, TEST = which_comes_first(400, 0), which_comes_first(300, 1)


def train_small(family: str = "lstm", data: LabelledTexts = TRAIN, **chosen: Any) -> Classifier:
    running = chosen.pop("options", RunOptions(device="cpu"))
    return classify.train(family, data, options=running, **(QUICK | chosen))


@pytest.fixture(scope="module")
def order() -> Classifier:
    return train_small(valid=TEST)


@pytest.mark.parametrize(("family", "pooling"), NETWORKS)
def test_order_is_learnt(family: str, pooling: str) -> None:
    report = train_small(family, pooling=pooling).evaluate(TEST)
    assert report.classes.accuracy >= 0.99


def test_unigrams_cannot_learn_word_order() -> None:
    """Unigrams cannot tell; bigrams see the two only where they touch, in 5 of the 15 pairs of places."""
    unigrams = classify.train("ngram", TRAIN).evaluate(TEST)
    assert 0.35 < unigrams.classes.accuracy < 0.65
    bigrams = classify.train("ngram", TRAIN, order=2).evaluate(TEST)
    assert 0.6 < bigrams.classes.accuracy < 0.95


def rare(number: int, seed: int) -> LabelledTexts:
    """5 % are rare; x stands in 80 % of those and in 10 % of the others."""
    rng = np.random.default_rng(seed)
    is_rare = np.arange(number) % 20 == 0
    has_x = rng.random(number) < np.where(is_rare, 0.8, 0.1)
    filler = rng.choice(list("cdefg"), size=(number, 3))
    texts = tuple(" ".join([*row, *"x" * bool(x)]) for row, x in zip(filler.tolist(), has_x, strict=True))
    return LabelledTexts(texts, tuple("rare" if r else "usual" for r in is_rare), "rare")


def test_balanced_weights_raise_the_recall_of_the_rare_label() -> None:
    # p(rare | x) = 0.05 · 0.8 / (0.05 · 0.8 + 0.95 · 0.1) = 0.30: x is called usual, and the recall of rare is 0.
    # With both labels as heavy it is 0.8 / (0.8 + 0.1) = 0.89, and the recall is 0.8.
    train, test = rare(800, 0), rare(1000, 1)
    recalls = {}
    for how in ("none", "balanced"):
        report = train_small(data=train, class_weights=how, hidden=8, embedding=8, epochs=4).evaluate(test)
        assert report.classes.labels == ("rare", "usual")
        recalls[how] = report.classes.recall[0]
    assert recalls["none"] < 0.1
    assert recalls["balanced"] > 0.6


def test_naive_bayes_by_hand() -> None:
    # good, bad, </s> and <unk> can come next. pos: 3 good, 1 bad, 2 </s> of 6, so p = (c + 1)/10; neg: 1 bad,
    # 1 </s> of 2, so p = (c + 1)/6. "good": neg 1/3 · 1/6 · 2/6 = 1/54, pos 2/3 · 4/10 · 3/10 = 4/50.
    data = LabelledTexts(("good good", "bad", "Good bad"), ("pos", "neg", "pos"), "toy")
    classifier = classify.train("ngram", data, smoothing="laplace")
    pos = (4 / 50) / (4 / 50 + 1 / 54)
    assert classifier.labels == ("neg", "pos")
    assert_allclose(classifier.probabilities(["good"]), [[1 - pos, pos]], rtol=1e-6)
    assert classifier.predict(["good", "bad bad bad"]) == ["pos", "neg"]
    report = classifier.evaluate(LabelledTexts(("good", "bad bad bad", "good"), ("pos", "pos", "neg"), "three"))
    assert report.classes.confusion.tolist() == [[0, 1], [1, 1]]
    assert report.classes.accuracy == pytest.approx(1 / 3)
    assert report.majority == "pos"
    assert report.majority_accuracy == pytest.approx(2 / 3)
    document = json.loads(json.dumps(report.as_json()))
    assert document["confusion"] == {"neg": {"neg": 0, "pos": 1}, "pos": {"neg": 1, "pos": 1}}
    assert document["labels"]["pos"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "texts": 2}
    assert sum(row["texts"] for row in document["reliability"]) == document["texts"] == 3
    # What the tokens say: log 4/10 − log 1/6 for good, log 3/10 − log 2/6 for </s>; with the prior all of it.
    tokens = dict(classifier.explain("good"))
    assert tokens == {"good": pytest.approx(math.log(2.4)), "</s>": pytest.approx(math.log(0.9))}
    assert sum(tokens.values()) + math.log(2) == pytest.approx(math.log(pos / (1 - pos)))


def test_fitted_temperature_minimises_the_log_loss(order: Classifier) -> None:
    """No other gives the validation texts a better mean log-probability."""
    data = rare(300, 2)
    classifier = train_small(data=data, valid=rare(300, 3), epochs=3)
    held_out = rare(300, 3)
    log_p = classifier.posterior.log_posteriors(held_out.texts)
    gold = encode_labels(held_out, classifier.counts)

    def nats(T: float) -> float:
        return float(-apply_temperature(log_p, T)[np.arange(len(gold)), gold].mean())

    best = nats(classifier.temperature)
    assert all(best <= nats(T) + 1e-9 for T in np.geomspace(0.5, 20, 60))
    assert classifier.metrics["temperature"] == classifier.temperature != 1.0
    assert_allclose(
        classifier.probabilities(held_out.texts), np.exp(apply_temperature(log_p, classifier.temperature))
    )
    assert {"valid_calibration_error_before", "valid_calibration_error"} <= classifier.metrics.keys()
    assert order.metrics["valid_accuracy"] >= 0.99


@pytest.mark.parametrize("family", ["lstm", "transformer", "ngram"])
def test_save_and_load(tmp_path: Path, family: str) -> None:
    chosen: dict[str, Any] = {"order": 2} if family == "ngram" else SMALL | {"epochs": 1, "clip": 0.0}
    classifier = classify.train(family, TRAIN, valid=TEST, options=RunOptions(device="cpu"), **chosen)
    classifier.save(tmp_path / "m")
    for again in (
        api.load(tmp_path / "m", kind="classify", device="cpu"),
        chainrule.load(tmp_path / "m", device="cpu"),
    ):
        assert isinstance(again, Classifier)
        assert again.labels == ("ab", "ba")
        assert again.config == classifier.config
        assert (again.counts, again.temperature, again.metrics) == (
            classifier.counts,
            classifier.temperature,
            classifier.metrics,
        )
        assert again.log == classifier.log
        assert_array_equal(again.probabilities(TEST.texts), classifier.probabilities(TEST.texts))
        assert again.explain("a b zebra") == classifier.explain("a b zebra")
    assert "order" in repr(classifier)
    assert "ab, ba" in repr(classifier)


def test_damaged_and_foreign_folders(tmp_path: Path) -> None:
    classifier = classify.train("ngram", TRAIN)
    classifier.save(tmp_path / "m")
    (tmp_path / "m" / "config.json").write_text("{}")
    with pytest.raises(ModelFileError, match=r"config\.json"):
        api.load(tmp_path / "m", kind="classify")
    for place, odd in enumerate(({"ab": 1}, {"ba": 1, "ab": 1}, {"ab": 0, "ba": 1}, ["ab", "ba"])):
        object.__setattr__(classifier, "counts", odd)
        classifier.save(tmp_path / str(place))
        with pytest.raises(ModelFileError, match="labels must be two or more"):
            api.load(tmp_path / str(place), kind="classify", device="cpu")
    object.__setattr__(classifier, "counts", {"ab": 1, "ba": 1, "c": 1})  # one more than there are n-grams
    classifier.save(tmp_path / "more")
    with pytest.raises(ModelFileError, match="classes/2"):
        api.load(tmp_path / "more", kind="classify")


@pytest.mark.parametrize("step", [1, 25, 26, 60])
def test_resumed_run_equals_uninterrupted_run(tmp_path: Path, step: int) -> None:
    settings: dict[str, Any] = SMALL | {"dropout": 0.3, "unknown": 0.2, "embedding_dropout": 0.1, "epochs": 3}
    settings |= {"pooling": "attention", "clip": 0.0, "log_every": 5}  # 25 steps an epoch

    def run(place: Path | None, resume: bool = False) -> Classifier:
        running = RunOptions(device="cpu", out=place, resume=resume, seed=4)
        return classify.train("lstm", TRAIN, valid=TEST, options=running, **settings)

    with send_signal_during_step(signal.SIGTERM, step), pytest.raises(SystemExit):
        run(tmp_path / "m")
    with pytest.raises(UsageError, match="unfinished run"):
        run(tmp_path / "m")
    again, complete = run(tmp_path / "m", resume=True), run(None)
    assert weights.serialize(network(again)) == weights.serialize(network(complete))
    assert entries(again.log) == entries(complete.log)
    assert again.temperature == complete.temperature


def network(classifier: Classifier) -> Any:
    return classifier.posterior.network  # type: ignore[union-attr]


def test_explanations_of_networks(order: Classifier) -> None:
    text = "c a d b e"
    result = order.explain(text)
    assert [token for token, _ in result] == ["c", "a", "d", "b", "e", "</s>"]
    by_size = sorted(result, key=lambda one: -abs(one[1]))
    assert {token for token, _ in by_size[:2]} & {"a", "b"}  # what the label hangs on
    attentive = train_small(pooling="attention", epochs=4)
    looked = attentive.explain(text)
    assert sum(weight for _, weight in looked) == pytest.approx(1)
    assert attentive.explain(text, by="attention") == looked
    assert attentive.explain(text, by="gradient") != looked
    with pytest.raises(ConfigError, match="has no attention"):
        order.explain(text, by="attention")
    with pytest.raises(ConfigError, match="explained by gradient or attention, not by 'evidence'"):
        order.explain(text, by="evidence")
    with pytest.raises(ConfigError, match="n-gram classifier has no attention"):
        classify.train("ngram", TRAIN).explain(text, by="attention")


def test_empty_texts_line_breaks_and_case(order: Classifier) -> None:
    assert order.probabilities([""]).shape == (1, 2)
    assert [token for token, _ in order.explain("")] == ["</s>"]
    assert_array_equal(order.probabilities(["A c\r\nb"]), order.probabilities(["a c b"]))
    assert order.predict([]) == []
    with pytest.raises(UsageError, match="such as"):
        order.predict("a b")


def test_long_texts_are_truncated_with_a_warning() -> None:
    with pytest.warns(ChainruleWarning, match="order: 400 of 400 texts are longer than 6 tokens and read up to"):
        classifier = train_small(longest=6, epochs=1)  # four words and two signs
    with pytest.warns(ChainruleWarning, match="1 of 2 texts are longer than 6 tokens") as caught:
        result = classifier.probabilities(["c d e f a b", "a b"])
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_array_equal(classifier.probabilities(["c d e f", "a b"]), result)


def test_unknown_and_single_labels_are_rejected() -> None:
    odd = LabelledTexts(("a b", "b a"), ("ab", "xy"), "dev.tsv")
    with pytest.raises(
        InputError, match=r"dev\.tsv, example 2 has the label 'xy', which the training texts do not"
    ):
        train_small(valid=odd)
    with pytest.raises(InputError, match="only one label, 'ab'"):
        train_small(data=LabelledTexts(("a b", "a"), ("ab", "ab"), "t"))


def test_invalid_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no classifier of family 'cnn'; choose one of ngram, rnn"):
        classify.train("cnn", TRAIN)
    with pytest.raises(ConfigError, match="pretrained is for networks"):
        classify.train("ngram", TRAIN, pretrained=tmp_path)
    with pytest.raises(ConfigError, match="has no setting 'hiden' for family 'lstm'; did you mean 'hidden'"):
        classify.train("lstm", TRAIN, hiden=3)
    with pytest.raises(ConfigError, match="has no setting 'hidden' for family 'ngram'"):
        classify.train("ngram", TRAIN, hidden=3)
    classify.train("ngram", TRAIN).save(tmp_path / "m")
    with pytest.raises(ConfigError, match="trains its own tokenizer"):
        classify.train("ngram", TRAIN, tokenizer=tmp_path / "m")


def test_any_tokenizer() -> None:
    for kind in ("char", "byte"):
        classifier = train_small(tokenizer=kind, epochs=1)
        assert classifier.tokenizer.config.kind == kind
        assert classifier.tokenizer.config.lowercase
    classifier = train_small(lowercase=False, min_count=2, epochs=1)
    assert not classifier.tokenizer.config.lowercase
    assert classifier.tokenizer.config.min_count == 2


def test_ngram_classifier_needs_no_torch() -> None:
    script = """
import sys
sys.modules["torch"] = None
from chainrule import families
from chainrule.text.labelled import LabelledTexts
classify, data = families.get_task("classify"), LabelledTexts(("good", "bad"), ("pos", "neg"), "toy")
print(classify.train("ngram", data).predict(["good"]))
try:
    classify.train("lstm", data)
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == "['pos']"
    assert second.startswith("MissingExtra a neural classifier needs torch: pip install")


@pytest.mark.data
def test_naive_bayes_on_film_reviews(data_folder: Path) -> None:
    folder = data_folder / "sst2"
    classifier = classify.train("ngram", folder / "stsa.binary.train", valid=folder / "stsa.binary.dev")
    report = classifier.evaluate(folder / "stsa.binary.test")
    assert report.classes.accuracy > 0.81
    assert report.majority_accuracy == pytest.approx(909 / 1821)
    assert classifier.metrics["valid_calibration_error"] < classifier.metrics["valid_calibration_error_before"]
