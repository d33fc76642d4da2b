"""Occurrences of a word after normalisation, and separation of its senses by a trained network."""

import random
import warnings
from typing import Any

import pytest
from numpy.testing import assert_allclose

import chainrule
from chainrule.data.training_data import RunOptions
from chainrule.errors import ChainruleWarning, InputError, UsageError
from chainrule.inspection.senses import best_layer, measure_separation
from chainrule.neural.probes.contextual import contextual, occurrences
from chainrule.tasks import pretrain
from chainrule.text.corpus import Corpus
from chainrule.tokenizers import train as tokenizer_training
from chainrule.tokenizers.config import TokenizerConfig
from neural.small_networks import VOCABULARY, reader

SENTENCES = ["the bank was old", "a river bank of the bank", "muddy bank"]


def test_first_occurrence_of_the_word_in_every_sentence() -> None:
    model = reader("two-way-lstm")
    occurrences_ = occurrences(model, "bank", SENTENCES)
    assert occurrences_.positions == (1, 2, 1)
    assert occurrences_.sentences == tuple(tuple(sentence.split()) for sentence in SENTENCES)
    for k, rows in occurrences_.vectors.items():
        whole = contextual(model, SENTENCES)
        assert_allclose(rows, [item.vectors[k][place] for item, place in zip(whole, (1, 2, 1), strict=True)])


def test_words_are_compared_after_normalisation() -> None:
    lower = tokenizer_training.train(
        Corpus.from_lines([" ".join(VOCABULARY)]), TokenizerConfig(kind="word", lowercase=True)
    )
    assert occurrences(reader("lstm", lower), "BANK", ["the Bank was", "bank"]).positions == (1, 0)
    at_blanks = tokenizer_training.train(
        Corpus.from_lines([" ".join(VOCABULARY)]), TokenizerConfig(kind="whitespace")
    )
    with pytest.raises(InputError, match=r"x\.tsv, line 2 does not contain 'bank' as a separate word; put blanks"):
        occurrences(reader("lstm", at_blanks), "bank", ["the bank", "the Bank was", "bank"], "x.tsv")
    with pytest.raises(InputError, match="line 1 does not contain"):
        occurrences(reader("lstm", at_blanks), "bank", ["the bank."])
    assert occurrences(reader("lstm"), "bank", ["the bank."]).positions == (1,)  # the full stop is split off


def test_occurrences_rejects_invalid_words() -> None:
    for word in ("the bank", "", "bank "):
        with pytest.raises(UsageError, match="is not one word"):
            occurrences(reader("lstm"), word, SENTENCES)
    with pytest.raises(InputError, match="there are no sentences; give some that contain 'bank'"):
        occurrences(reader("lstm"), "bank", [])


def test_unknown_word_causes_a_warning() -> None:
    with pytest.warns(ChainruleWarning, match="the model does not know 'shore' and reads <unk> there"):
        occurrences(reader("lstm"), "shore", ["the shore was", "a shore"])


def language(lines: int, seed: int) -> list[tuple[str, str]]:
    """`p n x b` and `q n x d` with any of six n: the sense of x is given two words before and one after it."""
    rng = random.Random(seed)
    kinds = (("first", "p {} x b"), ("second", "q {} x d"))
    return [(sense, form.format(rng.choice("klmnrs"))) for sense, form in (rng.choice(kinds) for _ in range(lines))]


def trained_on_language(kind: str) -> Any:
    text = Corpus.from_lines([line for _, line in language(240, seed=1)])
    settings: dict[str, Any] = {"hidden": 16, "dropout": 0.0, "batch_size": 20, "learning_rate": 1e-2, "warmup": 5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)
        if kind in ("two-way", "masked"):
            family = "lstm" if kind == "two-way" else "transformer"
            settings |= {"epochs": 12, "layers": 1, "options": RunOptions(device="cpu")}
            return pretrain.train(
                family, text, **settings | ({} if kind == "two-way" else {"heads": 2, "mask": 0.3})
            )
        own = {"heads": 2, "layers": 2, "epochs": 12} if kind == "transformer" else {"epochs": 30}
        return chainrule.train(kind, text, device="cpu", **settings | own)


@pytest.mark.parametrize("kind", ["lstm", "transformer", "two-way", "masked"])
def test_contextual_vectors_separate_senses_that_static_ones_cannot(kind: str) -> None:
    """All twelve different sentences get the right sense; by the static vector only half of them."""
    different = sorted(set(language(400, seed=2)))
    assert len(different) == 12
    senses = [sense for sense, _ in different]
    separations = measure_separation(
        occurrences(trained_on_language(kind), "x", [line for _, line in different]).vectors, senses
    )
    static, chosen = separations[0], best_layer(separations)
    assert (static.accuracy, static.gap, static.different) == (0.5, 0.0, 1)
    assert chosen.accuracy == 1.0
    assert chosen.gap > 0.1
