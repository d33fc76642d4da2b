"""Tagger: probabilities against enumeration of tag sequences, batches, unknown words."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from chainrule.errors import ConfigError
from chainrule.evaluation.tagging import Transitions, allowed_transitions
from chainrule.lm import Vocabulary
from chainrule.neural.encoders import tagger
from chainrule.neural.encoders.tagger import TagBatch, TagCollator, TagConfig, TagNetwork, tag_loss
from chainrule.neural.layers.char_cnn import CharVocabulary

VOCABULARY = Vocabulary(8, 6, 7, 0)
SPELLINGS = CharVocabulary(("a", "b", "c"))
SENTENCES = [("ab", "c", "ab"), ("ba",), ("c", "cab", "b", "a")]
IDS = [np.array([1, 2, 1]), np.array([3]), np.array([2, 4, 5, 1])]
TAGS = [np.array([0, 1, 2]), np.array([0]), np.array([2, 0, 1, 2])]
CPU = torch.device("cpu")


def network(allowed_: Transitions | None = None, **settings: Any) -> TagNetwork:
    chosen: dict[str, Any] = {"hidden": 6, "embedding": 4, "characters": 3, "dropout": 0.0}
    torch.manual_seed(5)
    net = TagNetwork(TagConfig(**chosen | settings), VOCABULARY, SPELLINGS.size, 3, allowed_)
    for parameter in net.chain.parameters():  # zero at initialisation: all tag orders would tie
        torch.nn.init.normal_(parameter)
    net.eval()
    return net


def collate(**more: Any) -> TagCollator:
    arguments: dict[str, Any] = {"ids": IDS, "words": SENTENCES, "tags": TAGS, "spellings": SPELLINGS}
    return TagCollator(**arguments | {"vocabulary": VOCABULARY, "device": CPU} | more)


def scores(net: TagNetwork, batch: TagBatch) -> torch.Tensor:
    with torch.no_grad():
        tag_scores: torch.Tensor = net(batch.inputs, batch.mask, batch.spellings, batch.word_index)
    return tag_scores


def enumerate_tag_sequences(net: TagNetwork, row: int) -> dict[tuple[int, ...], float]:
    """p of every tag sequence of a sentence: exp(score) over the sum, as defined at the top of crf.py."""
    s = scores(net, collate()(np.array([row])))[0].double().numpy()
    A, start, end = np.zeros((3, 3)), np.zeros(3), np.zeros(3)
    if net.config.crf:
        A, start, end = (
            np.where(
                getattr(net.chain, f"forbidden_{name}").numpy(),
                -np.inf,
                getattr(net.chain, name).detach().numpy(),
            )
            for name in ("transitions", "start", "end")
        )
    weight = {
        y: float(
            np.exp(
                start[y[0]]
                + sum(s[t, k] for t, k in enumerate(y))
                + sum(A[i, j] for i, j in pairwise(y))
                + end[y[-1]]
            )
        )
        for y in product(range(3), repeat=len(s))
    }
    total = sum(weight.values())
    return {y: w / total for y, w in weight.items()}


SPANS = allowed_transitions(["O", "B-X", "I-X"], "iob2")
KINDS: dict[str, tuple[Transitions | None, dict[str, Any]]] = {
    "chain": (None, {}),
    "spans": (SPANS, {}),
    "independent": (None, {"crf": False}),
    "no characters": (None, {"characters": 0}),
    "gru": (None, {"family": "gru", "directions": "forward"}),
    "transformer": (None, {"family": "transformer", "heads": 2}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_best_tags_and_probabilities_equal_enumeration(kind: str) -> None:
    rules, settings = KINDS[kind]
    net = network(rules, **settings)
    batch = collate()(np.arange(3))
    best, sure, marginals = (f(net, batch) for f in (tagger.best_tags, tagger.confidences, tagger.marginals))
    for row, words in enumerate(SENTENCES):
        p = enumerate_tag_sequences(net, row)
        winner = max(p, key=lambda y: p[y])
        assert tuple(best[row]) == winner
        expected = [[sum(q for y, q in p.items() if y[t] == k) for k in range(3)] for t in range(len(words))]
        assert_allclose(marginals[row], expected, atol=1e-5)
        assert_allclose(sure[row], [expected[t][k] for t, k in enumerate(winner)], atol=1e-5)


@pytest.mark.parametrize("kind", ["chain", "independent"])
def test_tag_loss_equals_enumeration(kind: str) -> None:
    net = network(**KINDS[kind][1])
    loss, nats, state = tag_loss(net, collate()(np.arange(3)), ())
    total = -sum(np.log(enumerate_tag_sequences(net, row)[tuple(TAGS[row])]) for row in range(3))
    assert loss.item() == pytest.approx(total / 8, rel=1e-5)  # 3 + 1 + 4 words
    assert nats is loss
    assert state == ()


def test_tagged_spans_are_well_formed() -> None:
    """An I may neither begin a sentence nor follow an O, whatever the scores."""
    net = network(SPANS)
    with torch.no_grad():
        net.output.bias.copy_(torch.tensor([0.0, -9.0, 9.0]))
    for path in tagger.best_tags(net, collate()(np.arange(3))):
        assert path[0] != 2
        assert all((i, j) != (0, 2) for i, j in pairwise(path))


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_tag_scores_do_not_depend_on_the_batch(family: str) -> None:
    settings: dict[str, Any] = {"heads": 2} if family == "transformer" else {}
    net = network(family=family, **settings)
    together = scores(net, collate()(np.arange(3)))
    for row, words in enumerate(SENTENCES):
        alone = scores(net, collate()(np.array([row])))
        assert_allclose(together[row, : len(words)], alone[0], atol=1e-6)


def test_tag_batch_spells_each_word_once() -> None:
    batch = collate()(np.array([2, 0]))
    # c, cab, b, a and ab: five spellings; begin, end and at most three characters
    assert batch.spellings.tolist() == [
        [2, 6, 3, 0, 0],
        [2, 6, 4, 5, 3],
        [2, 5, 3, 0, 0],
        [2, 4, 3, 0, 0],
        [2, 4, 5, 3, 0],
    ]
    assert batch.word_index.tolist() == [[0, 1, 2, 3], [4, 0, 4, 0]]  # the last is padding
    assert batch.inputs.tolist() == [[6, 2, 4, 5, 1, 7], [6, 1, 2, 1, 7, 7]]  # `<s>` is 6, `</s>` 7
    assert batch.targets.tolist() == [[2, 0, 1, 2], [0, 1, 2, 0]]
    assert batch.mask.tolist() == [[True] * 4, [True, True, True, False]]
    assert batch.starts
    assert collate(tags=None)(np.array([0])).targets.tolist() == [[0, 0, 0]]
    assert collate(spellings=None)(np.array([0])).spellings.shape == (1, 1)


def test_rare_words_are_read_as_unknown_in_training() -> None:
    is_rare = np.zeros(8, dtype=bool)
    is_rare[[3, 4]] = True
    rows = np.arange(3)
    plain = collate()(rows)
    swapped = collate(ids=[np.array([1, 2, 1]), np.array([0]), np.array([2, 0, 5, 1])])(rows)
    learnt = collate(is_rare=is_rare)(rows)
    always, never = network(rare_unknown=1.0), network(rare_unknown=0.0)
    assert_allclose(tag_loss(always, learnt, ())[0].item(), tag_loss(never, swapped, ())[0].item(), rtol=1e-6)
    assert_allclose(tag_loss(never, learnt, ())[0].item(), tag_loss(never, plain, ())[0].item(), rtol=1e-6)
    assert tag_loss(always, learnt, ())[0].item() != pytest.approx(tag_loss(never, plain, ())[0].item(), rel=1e-6)
    assert_allclose(tag_loss(always, plain, ())[0].item(), tag_loss(never, plain, ())[0].item(), rtol=1e-6)


def test_rare_words_are_unknown_with_the_given_probability() -> None:
    """Two rare words, each unknown half of the time: four losses, each in about a quarter of the draws."""
    is_rare = np.zeros(8, dtype=bool)
    is_rare[[3, 4]] = True
    net, batch = network(rare_unknown=0.5, crf=False), collate(is_rare=is_rare)(np.arange(3))
    with torch.no_grad():
        losses = [round(tag_loss(net, batch, ())[0].item(), 6) for _ in range(200)]
    counts = [losses.count(value) for value in set(losses)]
    assert len(counts) == 4
    assert min(counts) > 25  # of 200; 50 ± 6


def test_tagger_largest_matmul_is_the_encoder_s() -> None:
    net = network(hidden=8)
    assert (
        net.largest_matmul(5, 3) == net.reader.largest_matmul(5, 3) == 4 * 4 * 4 * 5
    )  # four gates, 4 cells per direction, 5 rows


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_tagger_reads_words_between_boundary_symbols(family: str) -> None:
    """Each sentence alone as `<s> words </s>` through the encoder, with zero features at the boundaries."""
    settings: dict[str, Any] = {"heads": 2} if family == "transformer" else {}
    net = network(family=family, **settings)
    tag_scores = scores(net, collate()(np.arange(3)))
    assert tag_scores.shape == (3, 4, 3)  # words only
    assert net.spelling is not None
    for row, words in enumerate(SENTENCES):
        ids = torch.tensor([[6, *IDS[row].tolist(), 7]])
        with torch.no_grad():
            spelled = net.spelling(torch.from_numpy(SPELLINGS.ids(list(words))))  # (n, F)
            features = torch.zeros(1, len(words) + 2, 3)
            features[0, 1:-1] = spelled
            hidden = net.reader(ids, torch.ones_like(ids, dtype=torch.bool), features).hidden
            assert_allclose(tag_scores[row, : len(words)], net.output(hidden)[0, 1:-1], atol=1e-6)


def test_boundary_symbols_are_never_rare() -> None:
    is_rare = np.zeros(8, dtype=bool)
    is_rare[[3, 4]] = True
    batch = collate(is_rare=is_rare)(np.array([1, 2]))
    assert batch.is_rare is not None
    assert batch.is_rare.tolist() == [[False, True] + [False] * 4, [False, False, True] + [False] * 3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"characters": -1}, "model.characters is -1; choose 0 to"),
        ({"rare_unknown": 1.5}, r"model.rare_unknown is 1.5; choose a value in \[0, 1\]"),
        ({"output": "adaptive"}, "model.output is 'adaptive'"),
        ({"hidden": 5}, "two directions share it"),
        ({"longest": 2}, "model.longest is 2; choose 3 or more"),
    ],
)
def test_invalid_tagger_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TagConfig(**settings)
