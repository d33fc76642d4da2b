"""Training logs: arrays, missing keys, broken lines; statistics worked by hand."""

import json
import math
from typing import Any

import numpy as np
import pytest

from chainrule.errors import InputError
from chainrule.inspection.training import (
    LossChange,
    TrainingLog,
    change_in_last_tenth,
    change_since,
    mean_loss_before,
    parse,
)


def written(*entries: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def line(step: int, loss: float | None = 2.0, **more: Any) -> dict[str, Any]:
    """A line of a log from before per-parameter statistics."""
    usual = {"learning_rate": 0.1, "gradient_norm": 0.5, "largest_gradient_norm": 0.75, "clipped": 0.0}
    return {"step": step, "epoch": 0, "loss": loss, **usual, "seconds": 1.0} | more


def validation(step: int, epoch: int, **figure: float | None) -> dict[str, Any]:
    return {"event": "validation", "step": step, "epoch": epoch, **figure, "best": 1.0}


def parsed(*entries: dict[str, Any]) -> TrainingLog:
    log = parse(written(*entries))
    assert log is not None
    return log


def test_log_lines_become_arrays() -> None:
    log = parsed(
        line(50, 4.0, update_ratio={"R": 1e-3}, gradient_norms={"R": 0.5, "b": 0.1}, clipped_by={}),
        validation(50, 1, nats=3.5, perplexity=math.exp(3.5)),
        {"event": "advice", "step": 50, "words": "raise clip"},
        line(80, None, update_ratio={"R": 2e-3}, gradient_norms={"R": 0.25, "b": 0.2}, clipped_by={"R": 3}),
        validation(80, 2, nats=3.25, perplexity=math.exp(3.25)),
        {"event": "end", "step": 80, "epoch": 2, "best": 3.25},
    )
    assert log.step.tolist() == [50, 80]
    assert log.steps.tolist() == [50, 30]
    assert log.loss[0] == 4
    assert np.isnan(log.loss[1])  # null
    assert log.clipped_by["R"].tolist() == [0, 3]  # a line that does not name it counts as zero
    assert log.gradient_norms["b"].tolist() == [0.1, 0.2]
    assert log.update_ratio["R"].tolist() == [1e-3, 2e-3]
    assert log.validations is not None
    assert log.validations.step.tolist() == [50, 80]
    assert log.validations.value.tolist() == [3.5, 3.25]
    assert (log.validations.measure, log.validations.best) == ("nats", 1)


def test_old_log_has_no_parameter_statistics() -> None:
    log = parsed(line(50), line(100))
    assert (log.clipped_by, log.gradient_norms, log.update_ratio) == ({}, {}, {})
    assert (log.clipping_shares, log.median_update_ratio, log.validations) == ({}, {}, None)


def test_run_resumed_by_a_later_version_has_partial_statistics() -> None:
    log = parsed(line(50), line(100, clipped_by={"R": 2}, update_ratio={"R": 0.5}), line(110, update_ratio={}))
    assert log.clipped_by["R"].tolist()[1] == 2
    assert np.isnan(log.clipped_by["R"][[0, 2]]).all()  # not counted there
    assert log.clipping_shares == {"R": 1.0}
    assert log.median_update_ratio == {"R": 0.5}


@pytest.mark.parametrize("content", [b"", b"\n", written({"event": "end", "step": 0, "epoch": 0, "best": None})])
def test_log_without_steps_is_none(content: bytes) -> None:
    assert parse(content) is None


def test_truncated_last_line_is_ignored() -> None:
    log = parse(written(line(50)) + b'{"step": 100, "lo')
    assert log is not None
    assert log.step.tolist() == [50]


@pytest.mark.parametrize("bad", [b"{oops\n", b"[1, 2]\n", b"\xff\n"])
def test_broken_line_is_named(bad: bytes) -> None:
    with pytest.raises(InputError, match=r"here.jsonl, line 2 is no.* remove that line"):
        parse(written(line(50)) + bad + written(line(100)), "here.jsonl")


def test_error_rate_is_a_validation_measure() -> None:
    log = parsed(line(10), validation(5, 1, error=0.25), validation(10, 2, error=None))
    assert log.validations is not None
    assert (log.validations.measure, log.validations.value.tolist()) == ("error", [0.25])


def test_clipped_share_is_weighted_by_steps() -> None:
    log = parsed(line(100, clipped=0.5), line(400, clipped=0.1), line(410, clipped=None))
    assert log.clipped_share == pytest.approx(80 / 400)  # 50 of 100 and 30 of 300; ten steps are unknown


def test_clipping_shares_are_relative_to_all_clipped_steps() -> None:
    log = parsed(line(10, clipped_by={"b": 1, "R": 4}), line(20, clipped_by={"R": 2, "W": 1}))
    assert log.clipping_shares == {"R": 0.75, "W": 0.125, "b": 0.125}
    assert list(log.clipping_shares) == ["R", "W", "b"]  # largest first, then by name


def test_median_update_ratio_uses_high_learning_rates() -> None:
    """Rates 0.4, 0.2 and 0.1: the last is less than half of the highest."""
    log = parsed(
        *(
            line(step, learning_rate=rate, update_ratio={"R": ratio, "W": 10 * ratio})
            for step, rate, ratio in ((1, 0.4, 0.03), (2, 0.2, 0.01), (3, 0.1, 1e-9))
        )
    )
    assert log.median_update_ratio == pytest.approx({"R": 0.02, "W": 0.2})
    assert list(log.median_update_ratio) == ["R", "W"]


def test_change_in_last_tenth_worked_by_hand() -> None:
    """Lines every 10 steps of 300: three in each tenth."""
    losses = [9.0] * 24 + [5.0, 4.0, 4.5, 3.0, 3.5, 3.25]
    log = parsed(*(line(10 * (i + 1), loss) for i, loss in enumerate(losses)))
    # means 4.5 and 3.25; residuals ½, −½, 0 and −¼, ¼, 0, squares ⅝ in all. The product with −1, 0, 1 twice is −½
    # + ¼, so a slope removes (¼)² / 4 of them; 6 − 3 degrees of freedom, and each mean is of three lines
    fall = change_in_last_tenth(log)
    assert fall is not None
    assert (fall.before, fall.after) == (4.5, 3.25)
    assert fall.error == pytest.approx(math.sqrt((5 / 8 - 1 / 64) / 3 * (1 / 3 + 1 / 3)))
    assert fall.lines == 6


@pytest.mark.parametrize(("lines", "t"), [(6, 4.541), (7, 3.747), (21, 2.552), (103, 2.364)])
def test_significant_change_follows_student_t(lines: int, t: float) -> None:
    """Its 99th percentile for 3, 4, 18 and 100 degrees of freedom, from tables."""
    assert LossChange(3.0, 3.0, 0.5, lines).significant_change == pytest.approx(0.5 * t, rel=0.025)


def test_steady_fall_has_no_scatter() -> None:
    fall = change_in_last_tenth(parsed(*(line(10 * i, 9.0 - i / 10) for i in range(1, 31))))
    assert fall is not None
    assert fall.before - fall.after == pytest.approx(0.3)  # three lines of 0.1
    assert fall.error == pytest.approx(0.0, abs=1e-9)


def test_change_since_a_step_worked_by_hand() -> None:
    """Lines every 10 steps of 300, the loss is the line number: 13 to 15 are before step 150, 28 to 30 at the
    end.
    """
    log = parsed(*(line(10 * i, float(i)) for i in range(1, 31)))
    fall = change_since(log, 150)
    assert fall is not None
    assert (fall.before, fall.after) == (14.0, 29.0)
    assert change_since(log, 290) is None  # one line remains
    assert change_since(log, 10) is None


def test_lines_are_weighted_by_their_steps() -> None:
    early = (line(80), line(88, 4.0), line(89, 2.0), line(90, 2.0))
    fall = change_in_last_tenth(parsed(*early, line(98, 1.0), line(99, 1.0), line(100, 1.0)))
    assert fall is not None
    assert fall.before == pytest.approx((8 * 4 + 2 * 2) / 10)


def test_mean_loss_before_a_step_worked_by_hand() -> None:
    log = parsed(line(40, 9.0), line(50, 4.0), line(52, 1.0), line(100, None))
    assert mean_loss_before(log, 52) == pytest.approx((10 * 4 + 2 * 1) / 12)  # the tenth from 42 to 52
    assert mean_loss_before(log, 100) == math.inf


def test_short_log_has_no_change_in_last_tenth() -> None:
    assert change_in_last_tenth(parsed(line(10))) is None
    assert change_in_last_tenth(parsed(line(50), line(100))) is None
    # one or two lines per tenth: their scatter is unknown
    assert change_in_last_tenth(parsed(*(line(i, 3.0) for i in range(1, 11)))) is None
    assert change_in_last_tenth(parsed(*(line(i, 3.0) for i in range(1, 21)))) is None
    assert change_in_last_tenth(parsed(*(line(i, 3.0) for i in range(1, 31)))) is not None
