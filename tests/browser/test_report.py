"""The table of a comparison report in a real browser: every column is visible at common widths."""

from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser

from chainrule.comparison.page import render_page
from chainrule.comparison.results import Difference, Row
from comparison.example_results import EXCESS, FLOOR, neural_row, ngram_row, results

TIE: Final = Difference(other="mixture-whitespace-ngram-lstm", percent=0.41, margin=0.3, p_value=0.2)
RIGHT_EDGES: Final = """() => {
  const region = document.querySelector(".wide");
  const cells = [...region.querySelectorAll("th, td")];
  return {
    page: document.documentElement.scrollWidth,
    hidden: region.scrollWidth - region.clientWidth,
    edge: Math.max(...cells.map((cell) => cell.getBoundingClientRect().right)),
    narrowest: Math.min(...cells.filter((cell) => cell.matches("td.sample")).map((cell) => cell.clientWidth)),
    overflowing: cells.filter((cell) => !cell.matches(".sample") && cell.scrollWidth > cell.clientWidth).length,
  };
}"""


def wide_rows() -> tuple[Row, ...]:
    """Rows of two tokenizers with long names, large numbers, a status, advice and several seeds."""
    ngrams = [
        replace(row, name=row.name.replace("ngram", f"ngram-{tokenizer}"), tokenizer=tokenizer, difference=TIE)
        for tokenizer in ("char", "whitespace")
        for row in (ngram_row(order, smoothing) for order in FLOOR for smoothing in EXCESS)
    ]
    network = replace(
        neural_row("transformer", 1.71),
        name="transformer-whitespace-8-512-after",
        tokenizer="whitespace",
        status="stopped at 3.1 of 12 epochs, validation still falling by 2 % per epoch",
        is_still_falling=True,
        epochs=3.14,
        steps=12_345,
        sd=0.0123,
        advice=("the loss, 7.91 nats, is above that of word frequencies alone, 6.52: lower learning_rate",),
        difference=TIE,
    )
    mixture = replace(
        neural_row("mixture", 1.65),
        name="mixture-whitespace-ngram-transformer-lstm-gru",
        tokenizer="whitespace",
        perplexity=1_234_567.8,
        perplexity_per_word=12_345_678.9,
        size_bytes=1_234_500_000,
        train_seconds=4000.0,
    )
    return (*ngrams, network, mixture)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_table_fits_1280_pixels(browser: Browser, tmp_path: Path, scheme: Literal["light", "dark"]) -> None:
    (tmp_path / "report.html").write_text(render_page(results(rows=wide_rows())), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    page.goto((tmp_path / "report.html").as_uri())
    headings = page.locator("thead th").all_inner_texts()
    assert headings[1:3] == ["Model", "Tokenizer"]
    assert headings[-1] == "Sample"
    measured = page.evaluate(RIGHT_EDGES)
    assert measured["page"] == 1280
    assert measured["hidden"] == 0
    assert measured["edge"] <= 1280
    assert measured["narrowest"] >= 100
    assert measured["overflowing"] == 0
    page.close()
