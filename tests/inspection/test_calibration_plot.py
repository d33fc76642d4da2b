"""Calibration plots: SVG, descriptions for screen readers, edge cases."""

from xml.etree import ElementTree

import pytest

from chainrule.inspection.calibration import Bin, describe_points, plot_all_tokens, plot_top_predictions

pytest.importorskip("matplotlib")

BINS = (Bin(40, 0.8, 0.75, 0.05), Bin(900, 0.02, 0.03, 0.004), Bin(90_000, 2e-5, 0.0, 1e-5))
MODELS = {"kn <5> & co": BINS, "_lstm": BINS[:1]}


def texts(drawn: str) -> list[str]:
    elements = ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    return [(element.text or "").strip() for element in elements]


@pytest.mark.parametrize("draw", [plot_all_tokens, plot_top_predictions])
def test_names_and_axes_are_text(draw: object) -> None:
    drawn = draw(MODELS, title="Calibration")  # type: ignore[operator]
    labels = texts(drawn)
    assert {"kn <5> & co", "_lstm", "perfect calibration"} <= set(labels)
    assert "$" not in "".join(labels)
    assert "<title>Calibration</title>" in drawn
    assert "predicted 0.8, observed 0.75" in drawn
    assert "currentColor" in drawn
    assert len(drawn) < 40_000


def test_log_axis_is_labelled_in_percent() -> None:
    # The smallest is half of 2e-5, so 1e-5 = 0.001 % is the last of six decades.
    assert {"100 %", "10 %", "1 %", "0.1 %", "0.01 %", "0.001 %"} <= set(texts(plot_all_tokens(MODELS, title="t")))


@pytest.mark.parametrize("draw", [plot_all_tokens, plot_top_predictions])
@pytest.mark.parametrize(
    "bins", [(), (Bin(1, 1.0, 1.0, 0.0),), (Bin(3, 0.0, 0.0, 0.0),), (Bin(9, 1e-12, 0.0, 1e-12),), BINS[2:]]
)
def test_edge_case_bins_can_be_drawn(draw: object, bins: tuple[Bin, ...]) -> None:
    drawn = draw({"odd": bins}, title="odd")  # type: ignore[operator]
    assert "nan" not in drawn.lower()
    assert "odd" in texts(drawn)


def test_description_lists_the_points() -> None:
    assert (
        describe_points({"a": BINS[:2], "b": ()})
        == "a: predicted 0.8, observed 0.75, predicted 0.02, observed 0.03; b: no points"
    )
