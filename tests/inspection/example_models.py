"""Example inspections: small and complete, hostile text only, and empty."""

import numpy as np

from chainrule.inspection.predictions import Predictions, predictions_html
from chainrule.inspection.report import Figure, Finding, Inspection, Section, Subject
from chainrule.plots import figures

HOSTILE = '<script>alert("1")</script><img src=x onerror=alert(2)>&lt;b> \u202eשלום'


def line(title: str) -> str:
    """A falling curve."""

    def paint(axes: figures.Axes) -> None:
        axes.plot(np.arange(40), np.exp(-np.arange(40) / 8), color=figures.PALETTE[0])
        axes.plot(np.arange(40), np.exp(-np.arange(40) / 8), "o", color=figures.PALETTE[1])  # markers have ids
        axes.set_xlabel("lag k (tokens)")

    return figures.render(paint, title, "The curve falls.", figures.Margins())


def heat(title: str) -> str:
    """A map whose cells are an image inside the drawing."""

    def paint(axes: figures.Axes) -> None:
        axes.imshow(np.random.default_rng(0).random((20, 20)))

    return figures.render(paint, title, "Weights of one head.", figures.Margins(), 500, 900)


def table() -> str:
    """A table wider than a phone."""
    head = "".join(f"<th>quantity {i}</th>" for i in range(8))
    row = "".join(f"<td>{10**9 + i}</td>" for i in range(8))
    return f"<table><thead><tr>{head}</tr></thead><tbody><tr>{row}</tr><tr>{row}</tr></tbody></table>"


def reading() -> str:
    """A text of three tokens that opens a panel; two tokens are possible, each with probability 1/2."""
    half = np.full(3, np.log(0.5))
    ids, both = np.array([0, 1, 1]), np.array([[0, 1]] * 3)
    predictions = Predictions(ids, half, np.ones(3, int), -half, both, np.stack([half, half], axis=1), 2)
    return predictions_html(["cats", "</s>", "</s>"], predictions, ["cats", "</s>"], 1)


def figure(name: str, drawing: str, is_wide: bool = False) -> Figure:
    return Figure(name=name, drawing=drawing, caption=f"What <b>{name}</b> shows.", is_wide=is_wide)


def subject(name: str) -> Subject:
    return Subject(
        name=name,
        family="lstm",
        sizes={"layers": 2, "width": 650},
        parameters=19_780_400,
        tokenizer="word, 10,000 ids",
        context="stream",
        trained_on="train.txt",
        looked_at="1,000 tokens",
    )


def full() -> Inspection:
    """Two models, three sections, every kind of figure; two figures with the same title."""
    flow = Section(
        name="gradient_flow",
        title="Gradient flow",
        findings=(
            Finding("lstm", "the signal halves every 4.2 tokens."),
            Finding("rnn", "the signal halves every 1.1 tokens."),
        ),
        figures=(figure("a", line("Flow")), figure("b", line("Flow"))),
        data={"lstm": {"half_life": 4.2, "reach": float("inf"), "mean": np.array([1.0, np.nan])}},
    )
    attention = Section(
        name="attention", title="Attention", figures=(figure("map", heat("Map"), True), figure("cost", table()))
    )
    probability = Section(
        name="probability",
        title="Probability",
        findings=(Finding(None, "rnn and lstm differ by 0.3 bits a token."),),
        figures=(figure("reading", reading(), True),),
    )
    return Inspection(
        subjects=(subject("lstm"), subject("rnn")),
        text="test.txt",
        sections=(flow, attention, probability),
        left_out={"gates": "not applicable to these models"},
        command="chainrule inspect runs/lstm runs/rnn test.txt --out page.html",
        versions={"chainrule": "0.1.0", "python": "3.11"},
        seconds=75.0,
        peak_memory=1_200_000_000,
    )


def hostile() -> Inspection:
    """Every text is untrusted."""
    section = Section(
        name="gates",
        title=HOSTILE,
        findings=(Finding(HOSTILE, "it is open."), Finding(None, HOSTILE)),
        figures=(figure("a", line(HOSTILE)),),
    )
    return Inspection(
        subjects=(subject(HOSTILE), subject(HOSTILE + "2")),
        text=HOSTILE,
        sections=(section,),
        left_out={"attention": HOSTILE},
        command=HOSTILE,
        versions={HOSTILE: HOSTILE},
    )


def empty() -> Inspection:
    """Nothing was found."""
    return Inspection(subjects=(subject("m"),), text="test.txt", sections=())
