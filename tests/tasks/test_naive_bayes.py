"""Posteriors worked by hand and by a second derivation; a folder gives the same classifier back."""

import json
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import config as settings
from chainrule.errors import ChainruleWarning, ConfigError, InputError, ModelFileError, UsageError
from chainrule.ngram.config import Config as NgramConfig
from chainrule.storage import verified_dir
from chainrule.tasks.classify_ngram import BayesClassifier, Config
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.tokenizers.tokenizer import Tokenizer

TEXTS = ["good good", "bad", "Good bad"]
LABELS = ["pos", "neg", "pos"]
ADD_ONE = NgramConfig(order=1, smoothing="laplace")


def naive(**chosen: Any) -> BayesClassifier:
    return BayesClassifier.train(TEXTS, LABELS, ngram=ADD_ONE, **chosen)


def test_naive_bayes_by_hand() -> None:
    # good, bad, </s> and <unk> can come next. pos: 3 good, 1 bad, 2 </s> of 6, so p = (c + 1)/10;
    # neg: 1 bad, 1 </s> of 2, so p = (c + 1)/6. p(pos) = 2/3.
    made = naive()
    assert made.labels == ("neg", "pos")
    assert_allclose(made.prior, [1 / 3, 2 / 3])
    third, sixth, tenth = Fraction(1, 3), Fraction(1, 6), Fraction(1, 10)
    joint = {  # p(c) · p(words | c) · p(</s> | c)
        "good": (third * sixth * third, 2 * third * 4 * tenth * 3 * tenth),
        "bad bad": (third * third * third * third, 2 * third * 2 * tenth * 2 * tenth * 3 * tenth),
        "dull": (third * sixth * third, 2 * third * tenth * 3 * tenth),
        "": (third * third, 2 * third * 3 * tenth),
    }
    expected = [[float(neg / (neg + pos)), float(pos / (neg + pos))] for neg, pos in joint.values()]
    assert_allclose(np.exp(made.log_posteriors(list(joint))), expected, rtol=1e-6)
    assert made.predict(list(joint)) == ["pos", "neg", "pos", "pos"]


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
    made = BayesClassifier.train(texts, labels, ngram=NgramConfig(order=2, smoothing="witten-bell"))
    size = len({word for text in texts for word in text.split()} | {"<unk>", "</s>"})
    joint = np.array(
        [
            [
                math.log(labels.count(c) / len(labels))
                + log_p_by_definition([t for t, given in zip(texts, labels, strict=True) if given == c], text, size)
                for c in "xyz"
            ]
            for text in (new_text.removesuffix("\n") for new_text in new)
        ]
    )
    expected = joint - np.log(np.exp(joint).sum(axis=1, keepdims=True))
    assert_allclose(made.log_posteriors(new), expected, atol=1e-5)
    assert_allclose(made.log_posteriors(new[::-1]), expected[::-1], atol=1e-5)
    assert made.predict(new) == ["xyz"[k] for k in expected.argmax(axis=1)]


def test_what_a_token_says() -> None:
    made = naive()
    evidence = made.token_log_likelihoods("GOOD dull\nbad")
    assert [token for token, _ in evidence] == ["good", "<unk>", "</s>", "bad", "</s>"]
    # As above: neg 1/6 and pos 4/10 for good, 1/6 and 1/10 for what is unknown, 1/3 and 3/10 for </s>.
    log_p = np.stack([of_classes for _, of_classes in evidence])  # (T, K)
    assert_allclose(np.exp(log_p[:3]), [[1 / 6, 0.4], [1 / 6, 0.1], [1 / 3, 0.3]], rtol=1e-6)
    total = np.log(made.prior) + log_p.sum(axis=0)
    found = made.log_posteriors(["GOOD dull\nbad"])[0]
    assert found[0] - found[1] == pytest.approx(total[0] - total[1])


def test_a_text_impossible_for_one_class_or_for_all() -> None:
    made = BayesClassifier.train(TEXTS, LABELS, ngram=NgramConfig(order=1, smoothing="mle"))
    assert_array_equal(made.log_posteriors(["good"]), [[-np.inf, 0]])
    with pytest.warns(ChainruleWarning, match="2 of 3 texts are impossible for every class") as caught:
        found = made.log_posteriors(["dull", "good", "good dull"])
    assert len(caught) == 1
    assert_allclose(np.exp(found), [[1 / 3, 2 / 3], [0.0, 1.0], [1 / 3, 2 / 3]])


def test_a_closed_vocabulary_leaves_unknown_words_to_the_prior() -> None:
    made = naive(tokenizer=TokenizerConfig(closed=True, lowercase=True))
    with pytest.warns(ChainruleWarning, match="1 of 1 texts"):
        assert made.predict(["dull dull dull bad bad bad"]) == ["pos"]


def test_no_texts() -> None:
    assert naive().log_posteriors([]).shape == (0, 2)
    assert naive().predict([]) == []


def test_the_tokenizer_sees_all_classes_and_is_shared() -> None:
    made = naive(tokenizer=TokenizerConfig(min_count=2))
    # good 2, bad 2, Good 1: left out. <unk>, <s> and </s> beside them.
    assert made.tokenizer.vocab_size == 5
    assert {lm.vocabulary for lm in made.models} == {made.tokenizer.vocabulary}


@pytest.mark.parametrize("order", [1, 3])
def test_a_folder_gives_it_back(tmp_path: Path, order: int) -> None:
    made = BayesClassifier.train(TEXTS, LABELS, ngram=NgramConfig(order=order, smoothing="witten-bell"))

    def fill(target: Path) -> None:
        for name, content in made.files().items():
            verified_dir.write_file(target / name, content)

    assert {Path(name).parent.as_posix() for name in made.files()} == {"classes/0", "classes/1"}
    verified_dir.write(tmp_path / "m", fill, {})
    saved = json.loads(json.dumps(settings.to_json(made.config)))
    tokenizer = Tokenizer.from_json(made.tokenizer.to_json(), made.tokenizer.config)
    loaded = BayesClassifier.load(
        verified_dir.read(tmp_path / "m"), settings.build_config(Config, saved, "classifier"), tokenizer
    )
    assert loaded.config == made.config
    texts = ["good bad", "bad", "dull good", ""]
    assert_array_equal(loaded.log_posteriors(texts), made.log_posteriors(texts))
    more = Config(labels=("a", "b", "c"), prior=(0.5, 0.25, 0.25), ngram=made.config.ngram)
    with pytest.raises(ModelFileError, match="classes/2"):
        BayesClassifier.load(verified_dir.read(tmp_path / "m"), more, tokenizer)


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a", "b"], ["x"], "2 texts but 1 labels"),
        ([], [], "none at all"),
        (["a", "b"], ["x", "x"], "all of them 'x'"),
        (["a", "b"], ["x", ""], "text 2 has an empty label"),
        (["", " "], ["x", "y"], "holds no words"),
    ],
)
def test_texts_that_teach_nothing(texts: list[str], labels: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        BayesClassifier.train(texts, labels)


def test_one_text_where_several_belong() -> None:
    with pytest.raises(UsageError, match="such as"):
        BayesClassifier.train("ab", ["x", "y"])
    with pytest.raises(UsageError, match="such as"):
        naive().predict("good")


def test_scores_that_are_no_probabilities() -> None:
    with pytest.raises(ConfigError, match="stupid-backoff"):
        BayesClassifier.train(TEXTS, LABELS, ngram=NgramConfig(smoothing="stupid-backoff"))


@pytest.mark.parametrize(
    ("labels", "prior"),
    [
        (("a", "b"), (1.0,)),
        (("a", "b"), (0.5, 0.6)),
        (("a", "b"), (0.0, 1.0)),
        (("a", "b"), (math.nan, 0.5)),
        (("a",), (1.0,)),
        (("a", "a"), (0.5, 0.5)),
    ],
)
def test_configs_that_are_no_classifier(labels: tuple[str, ...], prior: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="a classifier needs"):
        Config(labels=labels, prior=prior, ngram={})


def accuracy(made: BayesClassifier, texts: list[str], labels: list[str]) -> float:
    return float(np.mean([found == label for found, label in zip(made.predict(texts), labels, strict=True)]))


def read_labelled(path: Path, separator: str) -> tuple[list[str], list[str]]:
    rows = [line.split(separator, 1) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return [text for _, text in rows], [label for label, _ in rows]


@pytest.mark.data
def test_naive_bayes_on_sst2(data_folder: Path) -> None:
    train, test = (read_labelled(data_folder / "sst2" / f"stsa.binary.{part}", " ") for part in ("train", "test"))
    made = BayesClassifier.train(*train, ngram=ADD_ONE)
    # Socher et al. 2013, table 1: naive Bayes 81.8 %; of 1,821 texts one per cent is one standard error.
    assert accuracy(made, *test) == pytest.approx(0.818, abs=0.01)


@pytest.mark.data
def test_messages_on_sms_spam(data_folder: Path) -> None:
    texts, labels = read_labelled(data_folder / "sms_spam" / "SMSSpamCollection", "\t")
    texts = [text.split("\t")[0] for text in texts]
    is_test = [i % 5 == 0 for i in range(len(texts))]
    train, test = (
        [[x for x, t in zip(of_all, is_test, strict=True) if t == is_part] for of_all in (texts, labels)]
        for is_part in (False, True)
    )
    made = BayesClassifier.train(*train)
    # 86.6 % are ham.
    assert accuracy(made, *test) > 0.96
