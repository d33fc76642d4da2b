"""The report page: well formed, self-contained, escaped, and sensible for any mixture of rows."""

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from chainrule.comparison.page import plot_learning_curves, render_page, summarize
from chainrule.comparison.results import Curve, Difference, Results, Row, Sentence, Surprisal
from chainrule.plots import figures
from comparison.example_results import HOSTILE, curve, neural_row, ngram_row, results

VOID = {"meta", "br", "hr", "img", "link", "input", "wbr"}
NAMESPACES = {"http://www.w3.org/2000/svg"}


class Nesting(HTMLParser):
    """Fails on misnested elements; collects tags, ids and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.heard: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.heard.append(data)

    @property
    def text(self) -> str:
        return "".join(self.heard)


MIXED = (
    ngram_row(1, "katz"),
    ngram_row(2, "katz"),
    neural_row("lstm", 1.66),
    neural_row("transformer", 1.71),
)
PAGES = {
    "full": results(),
    "mixed families": results(rows=MIXED),
    "no facets": results(rows=MIXED[2:]),
    "one row": results(rows=MIXED[:1]),
    "one infinite row": results(rows=(ngram_row(2, "mle"),)),
    "no rows": results(rows=()),
    "no curves": results(curves=()),
    "no sentences": results(sentences=()),
}


@pytest.fixture(params=PAGES)
def example(request: pytest.FixtureRequest) -> Results:
    return PAGES[str(request.param)]


def test_report_is_well_formed_with_unique_ids(example: Results) -> None:
    page = Nesting(render_page(example))
    assert len(page.ids) == len(set(page.ids))
    assert page.tags.count("script") == 1


def test_report_loads_nothing_from_outside(example: Results) -> None:
    page = render_page(example)
    assert set(re.findall(r"https?://[^\s\"'<>)]+", page)) <= NAMESPACES
    assert "url(" not in page
    assert not {"link", "img", "iframe", "object"} & set(Nesting(page).tags)
    assert not re.search(r"\ssrc=", page)


def test_report_is_small_and_deterministic() -> None:
    assert len(render_page(results()).encode()) < 3_000_000
    assert render_page(results()) == render_page(results())


def test_untrusted_text_is_escaped_in_the_report() -> None:
    reading = Surprisal(name=HOSTILE, tokens=(HOSTILE,), bits=(3.0,))
    rows = tuple(
        replace(ngram_row(order, "katz"), name=f"{order}{HOSTILE}", family=HOSTILE, sample=HOSTILE, note=HOSTILE)
        for order in (1, 2)
    )
    rows += tuple(
        replace(row, facets={"order": place, "smoothing": HOSTILE}, is_ranked=place > 1)
        for place, row in enumerate(rows, start=1)
    )
    hostile = replace(
        results(rows=rows, text=HOSTILE, sentences=(Sentence(text=HOSTILE, by_model=(reading,)),)),
        curves=(Curve(name=HOSTILE, tokens=(10, 20), bytes=(50, 100), bits_per_byte=(3.0, 2.0)),),
        command=HOSTILE,
        tokenizer=HOSTILE,
        text_sha256=HOSTILE,
        versions={HOSTILE: HOSTILE},
    )
    page = Nesting(render_page(hostile))
    assert page.tags.count("script") == 1
    assert page.text.count(HOSTILE) > 10


def test_control_characters_do_not_break_the_report() -> None:
    page = render_page(results(rows=(replace(MIXED[0], sample="nul \0 lone \ud800 bell \a"),)))
    assert page.encode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", page)


def test_text_of_any_direction_is_isolated() -> None:
    page = render_page(results(text="שלום"))
    assert '<h1 dir="auto">שלום</h1>' in page
    assert "<bdi>ngram-5-mle</bdi>" in page


def test_table_is_best_first_with_unranked_rows_last() -> None:
    names = re.findall(r"<bdi>([^<]*)</bdi>", render_page(results()).split("<tbody>")[1].split("</table>")[0])
    assert len(names) == 50
    assert names[0] == "ngram-5-modified-kneser-ney"
    assert {name.split("-", 2)[2] for name in names[40:]} == {"mle", "stupid-backoff"}


def test_zero_bits_do_not_divide_by_zero() -> None:
    rows = tuple(replace(ngram_row(2, smoothing), bits_per_byte=0.0) for smoothing in ("katz", "absolute"))
    curves = (Curve(name=rows[0].name, tokens=(10, 20), bytes=(50, 100), bits_per_byte=(0.0, 0.0)),)
    text = Nesting(render_page(replace(results(rows=rows), curves=curves))).text
    assert "0.000 bits per byte, level with the next" in text
    assert "absolute needs 0.00% fewer bits than katz" in text
    assert "The last doubling saved ngram-2-katz 0.000 bits per byte." in text


def test_unranked_rows_give_a_reason() -> None:
    text = Nesting(render_page(results())).text
    assert "a score, not a probability" in text
    assert "infinite: first impossible token 'mice' on line 3" in text
    assert "Not drawn, because infinite or not a probability: mle and stupid-backoff." in text


def test_figures_are_omitted_if_uninformative() -> None:
    drawn = {name: Nesting(render_page(example)).tags.count("svg") for name, example in PAGES.items()}
    assert drawn == {
        "full": 6,  # two by order, bars, size, time, learning curves
        "mixed families": 5,  # one smoothing: no bars
        "no facets": 3,  # size, time, learning curves
        "one row": 1,
        "one infinite row": 1,
        "no rows": 1,
        "no curves": 5,
        "no sentences": 6,
    }


def test_partly_infinite_smoothing_names_its_orders() -> None:
    rows = (*MIXED, replace(ngram_row(3, "mle"), facets={"order": 3, "smoothing": "katz"}))
    assert "not a probability: katz (order 3)." in Nesting(render_page(results(rows=rows))).text


def test_report_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = Nesting(render_page(results()))
    assert "pip install 'chainrule[plots]'" in page.text
    assert "svg" not in page.tags


def words(example: Results) -> str:
    return re.sub(r"<[^>]*>", "", summarize(example.rows))


def test_summary_names_the_lead_over_next_and_unigram() -> None:
    # 1 - 1.66 / 1.71 = 2.9 %; order 1 of katz has 2.241 + 0.006 bits: 1 - 1.66 / 2.247 = 26 %
    assert words(PAGES["mixed families"]) == (
        "lstm predicts this text best: 1.660 bits per byte, 2.9% fewer than the next (transformer) "
        "and 26% fewer than ngram-1-katz, the best model without context."
    )


def test_summary_of_few_rows() -> None:
    assert words(PAGES["no facets"]).endswith("2.9% fewer than the next, transformer.")
    assert words(PAGES["one row"]) == "ngram-1-katz is the only model ranked: 2.247 bits per byte."
    assert words(PAGES["one infinite row"]).startswith("None of these models can be ranked")
    twins = results(rows=(MIXED[2], replace(MIXED[2], name="twin")))
    assert words(twins).endswith("level with the next, twin.")


def test_status_groups_and_differences_are_shown() -> None:
    rows = [ngram_row(1, name) for name in ("modified-kneser-ney", "kneser-ney", "laplace")]
    network = replace(
        neural_row("lstm", 1.5),
        status="stopped at 3.1 of 12 epochs, validation still falling",
        is_still_falling=True,
        epochs=3.1,
        steps=1234,
        sd=0.0123,
        advice=("the loss <rises>",),
        difference=Difference(other="gru", percent=0.4, margin=0.3, p_value=0.2),
    )
    page = render_page(results(rows=(*rows, network), curves=(), sentences=()))
    assert "stopped at 3.1 of 12 epochs, validation still falling" in page
    assert "the loss &lt;rises&gt;" in page
    assert '1.500<span title="still improving when its time ran out">*</span>' in page
    assert "± 0.012" in page
    assert "vs next: 0.4 % ± 0.3, p = 0.2: a tie</span>" in page
    assert "0.4 % ± 0.3 better than gru, p = 0.2: a tie" in page
    assert "* Still improving when its time ran out: more time would lower it." in page
    assert "stands first, in a statistical tie with the next" in page
    assert "and 1 more within 0.04%" in page  # 2.241 and 2.242; 2.253 is more than 0.5 % above
    assert "best of lstm" in page
    assert page.count("<tr>") == 1 + 3


def test_row_round_trips_through_json() -> None:
    for row in results().rows:
        assert Row.from_json(json.loads(json.dumps(row.to_json()))) == row


def test_extrapolated_curve_is_described() -> None:
    longer = replace(curve(5, "modified-kneser-ney"), doubled_bits=1.523)
    page = render_page(results(curves=(longer,), sentences=()))
    assert (
        "With twice the text, <b>ngram-5-modified-kneser-ney</b> would reach about 1.523: an extrapolation" in page
    )
    assert longer.to_json()["extrapolation"] == {"tokens": 880_000, "bytes": 4_928_000, "bits_per_byte": 1.523}


def test_learning_curves_are_plotted_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []

    def record(series: Any, **options: Any) -> str:
        drawn.extend((series, options))
        return ""

    monkeypatch.setattr(figures, "plot_learning_curves", record)
    curve_ = Curve(name="a", tokens=(10, 20), bytes=(50, 100), bits_per_byte=(3.0, 2.0), doubled_bits=1.5)
    plot_learning_curves([curve_])
    series, options = drawn
    assert series == {"a": [(50, 3.0), (100, 2.0)]}
    assert options["extrapolated"] == {"a": (200.0, 1.5)}


def test_one_line_is_singular() -> None:
    example = results()
    text = Nesting(render_page(replace(example, split=replace(example.split, valid_lines=1, test_lines=1)))).text
    assert "1 line" in text
    assert "1 lines" not in text
