"""Which text Jelinek–Mercer's weights are learnt on."""

import numpy as np
import pytest

from chainrule.data.encoded import Encoded
from chainrule.data.training import TrainingData
from chainrule.errors import ChainruleWarning
from chainrule.lm import Ids, Vocabulary
from chainrule.ngram.config import Config
from chainrule.ngram.family import train

WORDS = Vocabulary(size=6, bos=4, eos=5, unk=0)
# A chain that training shows in full; nine lines in ten keep to it and every tenth does not.
TRAIN = np.array(([1, 2, 5] * 9 + [1, 3, 5]) * 4)
CONFIG = Config(order=2, smoothing="jelinek-mercer")


def encoded(ids: Ids) -> Encoded:
    return Encoded(ids=ids, eos=5, unk=0, words=1, characters=1, bytes=1)


def p_of_two_after_one(valid: Ids | None) -> float:
    data = TrainingData(train=encoded(TRAIN), valid=None if valid is None else encoded(valid), vocabulary=WORDS)
    lm = train(data, CONFIG)
    log_p, _ = lm.step(lm.start(1), np.array([1]))
    return float(np.exp(log_p[0, 2]))


def test_the_validation_text_sets_the_weights() -> None:
    # A validation text like the training text trusts the bigram, one that contradicts it does not.
    assert p_of_two_after_one(np.array([1, 2, 5] * 20)) > 0.85
    assert p_of_two_after_one(np.array([1, 1, 5] * 20)) < 0.5


def test_without_one_lines_are_held_out() -> None:
    # Every tenth line is "1 3", which the other nine never show: what is learnt on them mistrusts the bigram.
    with pytest.warns(ChainruleWarning, match="one line in 10"):
        held_out = p_of_two_after_one(None)
    assert held_out < 0.5
    with pytest.warns(ChainruleWarning, match="one line in 10"):
        assert p_of_two_after_one(np.zeros(0, dtype=np.int64)) == held_out
