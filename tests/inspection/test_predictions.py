"""Predictions on a text: recorded for any context rule, worked by hand, hostile tokens."""

import json
import math
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Self

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule.inspection import predictions as reading
from chainrule.inspection.predictions import (
    PredictionRecorder,
    Predictions,
    describe_predictions,
    describe_tokens,
    lines_html,
    load_script,
    next_token_distributions,
    panel_data,
    predictions_html,
    summary,
)
from chainrule.lm import Batch, Context, Floats, Ids, Vocabulary
from chainrule.plots.html import MAX_OPACITY, json_for_script
from sequential_model import SequentialModel

BOS, EOS, A, B = range(4)
NAMES = ["<s>", "</s>", "a", "b"]
VOCABULARY = Vocabulary(4, BOS, EOS, None)


@dataclass(frozen=True)
class History:
    """A hash of all ids read, in base 7."""

    read: Ids  # (K,)

    def select(self, rows: Ids) -> Self:
        return type(self)(self.read[rows])


@dataclass(frozen=True)
class Remembering(SequentialModel):
    """A model whose probabilities depend on everything read since the start, or since the line began."""

    context: Context = "stream"
    is_normalized: bool = True
    vocabulary: Vocabulary = VOCABULARY

    def start(self, rows: int) -> History:
        return History(np.zeros(rows, dtype=np.int64))

    def _after(self, state: History, ids: Ids) -> History:
        begun = np.where((ids == EOS) & (self.context == "line"), 0, state.read)
        read = np.where((ids == EOS) & (self.context == "line"), BOS, ids)
        return History((begun * 7 + read + 1) % 1_000_003)

    def step(self, state: History, ids: Ids) -> tuple[Floats, History]:
        after = self._after(state, np.asarray(ids))
        weights = 1.0 + (after.read[:, None] * np.array([0, 3, 5, 11])) % 13
        weights[:, BOS] = 0.0
        with np.errstate(divide="ignore"):
            return np.log(weights / weights.sum(axis=1, keepdims=True)), after

    def score(self, batch: Batch, state: History) -> tuple[Floats, History]:
        scores = np.zeros(batch.inputs.shape)
        for t in range(batch.inputs.shape[1]):
            log_p, after = self.step(state, batch.inputs[:, t])
            scores[:, t] = log_p[np.arange(len(log_p)), batch.targets[:, t]]
            state = History(np.where(batch.mask[:, t], after.read, state.read))
        return scores, state


def text_of(tokens: int, seed: int = 0) -> Ids:
    return np.random.default_rng(seed).choice([EOS, A, B], size=tokens, p=[0.1, 0.5, 0.4])


def record_predictions(lm: Remembering, ids: Ids) -> Predictions:
    record = PredictionRecorder(lm, ids)
    for places, log_p in next_token_distributions(lm, ids):
        record.add(places, log_p)
    return record.finish()


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 31, 32, 33, 47, 48, 500, 512, 513, 1000])
def test_every_position_is_predicted_once_with_its_full_history(tokens: int, context: Context) -> None:
    lm, ids = Remembering(context), text_of(tokens)
    positions: list[int] = []
    expected = np.empty((tokens, 4))
    state = lm.start(1)
    for t, before in enumerate([BOS, *ids[:-1]]):  # one token at a time
        row, state = lm.step(state, np.array([before]))
        expected[t] = row[0]
    for places, log_p in next_token_distributions(lm, ids):
        positions += places.tolist()
        assert_allclose(log_p, expected[places])
    assert sorted(positions) == list(range(tokens))


def test_block_length_is_limited_by_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CELLS_AT_ONCE", 3 * 4)
    ids = text_of(100)
    assert [len(places) for places, _ in next_token_distributions(Remembering(), ids)] == [3] * 33 + [1]
    monkeypatch.setattr(reading, "CELLS_AT_ONCE", 1)  # less than one distribution
    assert {len(places) for places, _ in next_token_distributions(Remembering(), ids)} == {1}


def test_distributions_report_progress_to_the_end() -> None:
    calls: list[tuple[str, int, int | None]] = []
    list(next_token_distributions(Remembering(), text_of(100), lambda *step: calls.append(step)))
    assert calls[-1] == ("reading", 100, 100)


def test_recorded_predictions_worked_by_hand() -> None:
    # Two distributions: (a 1/2, b 1/4, </s> 1/4) where b occurred, and certainty of </s> where </s> occurred.
    lm, ids = Remembering(), np.array([B, EOS])
    record = PredictionRecorder(lm, ids)
    with np.errstate(divide="ignore"):
        record.add(np.array([0, 1]), np.log([[0, 0.25, 0.5, 0.25], [0, 1.0, 0, 0]]))
    predictions_ = record.finish()
    assert predictions_.choices == 3
    assert_allclose(predictions_.bits, [2.0, 0.0])
    assert not np.signbit(predictions_.bits).any()
    assert predictions_.rank.tolist() == [2, 1]  # a tie does not lower the rank
    assert_allclose(predictions_.entropy_bits, [1.5, 0.0])  # 1/2 · 1 + 2 · 1/4 · 2
    assert_array_equal(predictions_.top_ids[0], [A, EOS, B])  # ties by id
    assert_allclose(predictions_.confidence, [0.5, 1.0])
    assert describe_tokens(predictions_, 1)[0] == "2.00 bits, rank 2 of 3; entropy 1.50 bits"
    assert describe_predictions(["b", "</s>"], predictions_) == (
        "its surprisal is 1.00 bits per token over 2 tokens (perplexity 2.0); "
        "the most surprising token is “b” (2.0 bits, rank 2 of 3)."
    )
    assert summary(predictions_)["bits_per_token"] == pytest.approx(1.0)
    assert summary(predictions_)["mean_entropy_bits"] == pytest.approx(0.75)


def predictions(bits: list[float], ids: list[int] | None = None, *, is_normalized: bool = True) -> Predictions:
    N = len(bits)
    truth = np.array(ids if ids is not None else [A] * N)
    top = np.tile([A, B], (N, 1))
    entropy = np.full(N, math.log(2)) if is_normalized else np.full(N, np.nan)
    log_prob = -np.array(bits) * math.log(2)
    half = np.full((N, 2), math.log(0.5))
    return Predictions(truth, log_prob, np.ones(N, int), entropy, top, half, 3, is_normalized)


def test_unnormalised_scores_have_no_entropy() -> None:
    predictions_ = record_predictions(Remembering(is_normalized=False), text_of(20))
    assert np.isnan(predictions_.entropy).all()
    assert "by score, not probability; rank" in describe_tokens(predictions_, 1)[0]
    assert "its scores are not probabilities" in describe_predictions(["x"] * 20, predictions_)
    assert summary(predictions_)["mean_entropy_bits"] is None
    data = panel_data(["x"] * 20, predictions_, NAMES)
    assert data["is_probability"] is False
    assert data["entropy"] == [None] * 20


def test_impossible_tokens_are_described_and_marked() -> None:
    predictions_ = predictions([1.0, math.inf, 3.0])
    assert describe_predictions(["x", "y\0", "z"], predictions_) == (
        "it gives 1 of 3 tokens probability 0, the first “y␀”; the others have 2.00 bits each."
    )
    assert summary(predictions_)["bits_per_token"] is None
    markup = predictions_html(["x", "y", "z"], predictions_, NAMES, EOS)
    assert markup.count("read-token none") == 1
    assert "impossible: infinitely many bits" in markup
    assert (
        describe_predictions(["y"], predictions([math.inf]))
        == "it gives 1 of 1 tokens probability 0, the first “y”."
    )


def test_colours_use_the_common_scale() -> None:
    markup = predictions_html(list("abcd"), predictions([0.0, 8.0, 16.0, 99.0]), NAMES, EOS)
    opacities = [float(value) for value in re.findall(r"rgba\(213,94,0,([\d.]+)\)", markup)]
    assert opacities == [0.0, MAX_OPACITY / 2, MAX_OPACITY, MAX_OPACITY]
    assert 'title="8.00 bits, rank 1 of 3; entropy 1.00 bits"' in markup


def test_characters_are_not_separated() -> None:
    markup = predictions_html(list("abcd"), predictions([0.0, 8.0, 16.0, 99.0]), NAMES, EOS, is_apart=False)
    assert "</span><wbr><span" in markup
    assert "</span> <span" not in markup


def test_lines_have_automatic_direction_and_the_last_may_be_incomplete() -> None:
    markup = lines_html(["1", "2", "3", "4"], [False, True, True, False])
    assert re.findall('<div class="read-line" dir="auto">(.*?)</div>', markup) == ["1 2", "3", "4"]


class Page(HTMLParser):
    """Elements and script texts, as a browser parses them."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[str] = []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script" and self.scripts:
            self.scripts[-1] += data


HOSTILE = ["</script><script>alert(1)</script>", "<!--", '"><img>', "\0", "\udc80", "שלום", "&lt;"]


def test_hostile_tokens_stay_text() -> None:
    predictions_ = predictions([1.0] * len(HOSTILE))
    markup = predictions_html(HOSTILE, predictions_, ["<s>", "</s>", "</script>", "<!--"], EOS)
    markup.encode("utf-8")
    page = Page(markup)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    data = json.loads(page.scripts[0])
    assert data["tokens"] == [*HOSTILE[:3], "␀", "?", *HOSTILE[5:]]
    assert data["names"] == ["</script>", "<!--"]


def test_panel_data_contains_the_top_predictions() -> None:
    lm, ids = Remembering(), text_of(50)
    predictions_ = record_predictions(lm, ids)
    data = panel_data([NAMES[i] for i in ids], predictions_, NAMES)
    width = data["width"]
    assert width == 3
    for t in range(50):
        names = [data["names"][i] for i in data["top"][t * width : (t + 1) * width]]
        assert names == [NAMES[i] for i in predictions_.top_ids[t]]
        assert names[data["came"][t]] == NAMES[ids[t]]
    assert_allclose(np.array(data["p"]).reshape(50, 3) / 1e6, np.exp(predictions_.top_log_probs), atol=1e-6)
    assert_allclose(np.array(data["bits"]) / 100, predictions_.bits, atol=0.006)
    outside = panel_data(["x"], predictions([1.0], [EOS]), NAMES)
    assert outside["came"] == [-1]


def test_only_four_hundred_tokens_are_shown() -> None:
    N = 1000
    rng = np.random.default_rng(0)
    top = rng.integers(0, 10_000, size=(N, 10))
    log_p = np.log(rng.dirichlet(np.ones(10), size=N))
    predictions_ = Predictions(top[:, 0], log_p[:, 0], np.ones(N, int), np.ones(N), top, log_p, 10_000)
    names = [f"extraordinary{i}" for i in range(10_000)]
    markup = predictions_html([names[i] for i in top[:, 0]], predictions_, names, EOS)
    assert markup.count('class="read-token"') == reading.MAX_SHOWN == 400
    assert len(markup.encode()) < 250_000


def test_panel_script_uses_no_outside_resources() -> None:
    assert not re.search(r"https?:|import|fetch|innerHTML|eval", load_script())
    assert "</" not in load_script()


def test_json_cannot_end_its_script_element() -> None:
    assert json_for_script({"a": "</script><!--"}) == '{"a":"\\u003c/script>\\u003c!--"}'
