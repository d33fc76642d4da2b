"""Posteriors of n-gram classifiers, worked by hand and by a second derivation, and their model folders."""

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule.errors import ChainruleWarning, ConfigError, InputError, ModelFileError
from chainrule.storage import verified_dir
from chainrule.tasks.classify import BayesConfig, NgramClassifier
from chainrule.tasks.classify_report import count_labels
from chainrule.text.labelled import LabelledTexts
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.tokenizer import Tokenizer

TEXTS = ["good good", "bad", "Good bad"]
LABELS = ["pos", "neg", "pos"]
LOWERCASE = TokenizerConfig(lowercase=True)
ADD_ONE = BayesConfig(smoothing="laplace")


def train(
    texts: list[str], labels: list[str], config: BayesConfig = ADD_ONE, tokenizer: TokenizerConfig = LOWERCASE
) -> NgramClassifier:
    data = LabelledTexts(texts, labels)
    return NgramClassifier.train(data, count_labels(data), tokenizer, config)


def predict(classifier: NgramClassifier, texts: list[str], labels: list[str]) -> list[str]:
    classes = sorted(set(labels))
    return [classes[k] for k in classifier.log_posteriors(texts).argmax(axis=1)]


def test_naive_bayes_by_hand() -> None:
    # good, bad, </s> and <unk> can come next. pos: 3 good, 1 bad, 2 </s> of 6, so p = (c + 1)/10;
    # neg: 1 bad, 1 </s> of 2, so p = (c + 1)/6. p(pos) = 2/3.
    classifier = train(TEXTS, LABELS)
    assert_allclose(classifier.prior, [1 / 3, 2 / 3])
    third, sixth, tenth = Fraction(1, 3), Fraction(1, 6), Fraction(1, 10)
    joint = {  # p(c) · p(words | c) · p(</s> | c)
        "good": (third * sixth * third, 2 * third * 4 * tenth * 3 * tenth),
        "bad bad": (third * third * third * third, 2 * third * 2 * tenth * 2 * tenth * 3 * tenth),
        "dull": (third * sixth * third, 2 * third * tenth * 3 * tenth),
        "": (third * third, 2 * third * 3 * tenth),
    }
    expected = [[float(neg / (neg + pos)), float(pos / (neg + pos))] for neg, pos in joint.values()]
    assert_allclose(np.exp(classifier.log_posteriors(list(joint))), expected, rtol=1e-6)
    assert predict(classifier, list(joint), LABELS) == ["pos", "neg", "pos", "pos"]


def log_p_by_definition(training: list[str], text: str, size: int) -> float:
    """Interpolated Witten–Bell bigrams straight from the formula; every line starts from `<s>`."""
    unigrams: Counter[str] = Counter()
    bigrams: Counter[tuple[str, str]] = Counter()
    for line in training:
        words = [*line.split(), "</s>"]
        unigrams.update(words)
        bigrams.update(zip(["<s>", *words], words, strict=False))
    total = 0.0
    for line in text.split("\n"):
        words = [*line.split(), "</s>"]
        for h, w in zip(["<s>", *words], words, strict=False):
            p = (unigrams[w] + len(unigrams) / size) / (unigrams.total() + len(unigrams))
            followers = {after: times for (before, after), times in bigrams.items() if before == h}
            if followers:
                p = (bigrams[h, w] + len(followers) * p) / (sum(followers.values()) + len(followers))
            total += math.log(p)
    return total


def test_bigrams_by_definition() -> None:
    rng = np.random.default_rng(5)
    words = np.array(list("abcdefg"))
    shares = {"x": [4, 3, 2, 1, 0, 0, 1], "y": [1, 1, 2, 3, 4, 1, 0], "z": [1, 1, 1, 1, 1, 1, 1]}
    labels = [str(label) for label in rng.choice(list(shares), size=60, p=[0.5, 0.3, 0.2])]

    def line(label: str) -> str:
        share = np.array(shares[label]) / sum(shares[label])
        return " ".join(rng.choice(words, size=rng.integers(0, 9), p=share))

    texts = [line(label) for label in labels]
    new = [line("x"), line("y"), "", f"{line('x')}\n{line('y')}", "\n", line("z"), "unknown a words"]
    classifier = train(texts, labels, BayesConfig(order=2))
    size = len({word for text in texts for word in text.split()} | {"<unk>", "</s>"})
    joint = np.array(
        [
            [
                math.log(labels.count(c) / len(labels))
                + log_p_by_definition([t for t, label in zip(texts, labels, strict=True) if label == c], text, size)
                for c in "xyz"
            ]
            for text in (new_text.removesuffix("\n") for new_text in new)
        ]
    )
    expected = joint - np.log(np.exp(joint).sum(axis=1, keepdims=True))
    assert_allclose(classifier.log_posteriors(new), expected, atol=1e-5)
    assert_allclose(classifier.log_posteriors(new[::-1]), expected[::-1], atol=1e-5)
    assert predict(classifier, new, labels) == ["xyz"[k] for k in expected.argmax(axis=1)]


def test_evidence_of_tokens() -> None:
    classifier, text = train(TEXTS, LABELS), "GOOD dull\nbad"
    ids, spans, evidence = classifier.explain(text, 1, 0, "evidence")
    assert classifier.tokenizer.tokens(ids.tolist()) == ["good", "<unk>", "</s>", "bad", "</s>"]
    assert spans == [(0, 4), (5, 9), (9, 9), (10, 13), (13, 13)]
    # As above: neg 1/6 and pos 4/10 for good, 1/6 and 1/10 for unknown words, 1/3 and 3/10 for </s>.
    assert_allclose(np.exp(evidence[:3]), [2.4, 0.6, 0.9], rtol=1e-6)
    neg, pos = classifier.log_posteriors([text])[0]
    assert pos - neg == pytest.approx(math.log(2) + evidence.sum())


def test_texts_impossible_for_one_class_or_for_all() -> None:
    classifier = train(TEXTS, LABELS, BayesConfig(smoothing="mle"))
    assert_array_equal(classifier.log_posteriors(["good"]), [[-np.inf, 0]])
    with pytest.warns(ChainruleWarning, match="2 of 3 texts are impossible for every class") as caught:
        log_posteriors = classifier.log_posteriors(["dull", "good", "good dull"])
    assert len(caught) == 1
    assert_allclose(np.exp(log_posteriors), [[1 / 3, 2 / 3], [0.0, 1.0], [1 / 3, 2 / 3]])


def test_closed_vocabulary_leaves_unknown_words_to_the_prior() -> None:
    classifier = train(TEXTS, LABELS, tokenizer=TokenizerConfig(closed=True, lowercase=True))
    with pytest.warns(ChainruleWarning, match="1 of 1 texts"):
        assert predict(classifier, ["dull dull dull bad bad bad"], LABELS) == ["pos"]


def test_no_texts() -> None:
    assert train(TEXTS, LABELS).log_posteriors([]).shape == (0, 2)


def test_tokenizer_is_trained_on_all_classes_and_shared() -> None:
    classifier = train(TEXTS, LABELS, tokenizer=TokenizerConfig(min_count=2))
    # good 2, bad 2, and Good 1, which is left out; <unk>, <s> and </s> are added.
    assert classifier.tokenizer.vocab_size == 5
    assert {lm.vocabulary for lm in classifier.models} == {classifier.tokenizer.vocabulary}


@pytest.mark.parametrize("order", [1, 3])
def test_save_and_load(tmp_path: Path, order: int) -> None:
    config = BayesConfig(order=order)
    classifier = train(TEXTS, LABELS, config)

    def fill(target: Path) -> None:
        for name, content in classifier.files().items():
            verified_dir.write_file(target / name, content)

    assert {Path(name).parent.as_posix() for name in classifier.files()} == {"classes/0", "classes/1"}
    verified_dir.write(tmp_path / "m", fill, {})
    tokenizer = Tokenizer.from_json(classifier.tokenizer.to_json(), classifier.tokenizer.config)
    loaded = NgramClassifier.load(verified_dir.open_dir(tmp_path / "m"), config, {"neg": 1, "pos": 2}, tokenizer)
    assert loaded.prior == classifier.prior
    texts = ["good bad", "bad", "dull good", ""]
    assert_array_equal(loaded.log_posteriors(texts), classifier.log_posteriors(texts))
    with pytest.raises(ModelFileError, match="classes/2"):
        NgramClassifier.load(verified_dir.open_dir(tmp_path / "m"), config, {"a": 1, "b": 1, "c": 1}, tokenizer)


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a", "b"], ["x"], "2 texts but 1 labels"),
        ([], [], "no examples"),
        (["a", "b"], ["x", "x"], "only one label, 'x'"),
        (["a", "b"], ["x", ""], "text 2 has an empty label"),
        (["", " "], ["x", "y"], "contains no words"),
    ],
)
def test_invalid_training_texts(texts: list[str], labels: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(texts, labels)


def test_unnormalized_smoothing_is_rejected() -> None:
    with pytest.raises(ConfigError, match="stupid-backoff"):
        train(TEXTS, LABELS, BayesConfig(smoothing="stupid-backoff"))


def accuracy(classifier: NgramClassifier, texts: list[str], labels: list[str]) -> float:
    pairs = zip(predict(classifier, texts, labels), labels, strict=True)
    return float(np.mean([predicted == label for predicted, label in pairs]))


def read_labelled(path: Path, separator: str) -> tuple[list[str], list[str]]:
    rows = [line.split(separator, 1) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return [text for _, text in rows], [label for label, _ in rows]


@pytest.mark.data
def test_naive_bayes_on_sst2(data_folder: Path) -> None:
    training, test = (
        read_labelled(data_folder / "sst2" / f"stsa.binary.{part}", " ") for part in ("train", "test")
    )
    classifier = train(*training)
    # Socher et al. 2013, table 1: naive Bayes 81.8 %; of 1,821 texts one per cent is one standard error.
    assert accuracy(classifier, *test) == pytest.approx(0.818, abs=0.01)


@pytest.mark.data
def test_messages_on_sms_spam(data_folder: Path) -> None:
    texts, labels = read_labelled(data_folder / "sms_spam" / "SMSSpamCollection", "\t")
    texts = [text.split("\t")[0] for text in texts]
    is_test = [i % 5 == 0 for i in range(len(texts))]
    training, test = (
        [[x for x, t in zip(column, is_test, strict=True) if t == is_part] for column in (texts, labels)]
        for is_part in (False, True)
    )
    classifier = train(training[0], training[1], BayesConfig())
    # 86.6 % are ham.
    assert accuracy(classifier, *test) > 0.96
