"""The table printed by `chainrule compare`: numbers stay complete at every width, text is shortened."""

import re
from dataclasses import replace

import pytest

from chainrule.cli.compare import print_results
from chainrule.comparison.results import Row
from comparison.example_results import neural_row, ngram_row, results

LONG = "mixture-transformer+ngram-5-modified-kneser-ney"
FIGURES = {
    LONG: ["1.500", "337.8", "4.8", "MB", "312.00"],
    "transformer": ["1.600*", "0.012", "498.0", "4.8", "MB", "312.00", "12.3"],
    "ngram-5-modified-kneser-ney": ["1.698", "728.5", "660.7", "kB", "2.00"],
}
"""The numbers of each row from left to right: bits/byte, sd, perplexity, size, seconds, epochs."""


@pytest.fixture
def rows() -> tuple[Row, ...]:
    network = replace(
        neural_row("transformer", 1.6), epochs=12.34, sd=0.012, is_still_falling=True, tokenizer="word"
    )
    ngram = replace(ngram_row(5, "modified-kneser-ney"), size_bytes=660_700, tokenizer="whitespace")
    return (replace(neural_row(LONG, 1.5), tokenizer="word"), network, ngram)


def printed(rows: tuple[Row, ...], width: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of the table, headings first."""
    print_results(results(rows=rows), width=width)
    lines = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("model"))
    return [line.rstrip() for line in lines[start : start + 1 + len(rows)]]


@pytest.mark.parametrize("width", [40, 72, 80, 86, 100, 120, 200])
def test_table_numbers_are_never_cut(rows: tuple[Row, ...], width: int, capsys: pytest.CaptureFixture[str]) -> None:
    headings, *lines = printed(rows, width, capsys)
    expected = ["model", "tokenizer", "bits/byte", "sd", "perplexity", "size", "sec", "epochs"]
    assert headings.split()[:8] == expected
    for line, figures in zip(lines, FIGURES.values(), strict=True):
        assert " ".join(figures) in " ".join(line.split())


@pytest.mark.parametrize("width", [80, 86, 100, 120, 200])
def test_table_lines_fit_the_width(rows: tuple[Row, ...], width: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert max(map(len, printed(rows, width, capsys))) <= width


def test_table_shortens_the_sample_before_the_name(
    rows: tuple[Row, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    # model 49 (with " †"), tokenizer 10, bits/byte 9, sd 5, perplexity 10, size 8, sec 6, epochs 6, 8 spaces: 111
    for width, sample in [(200, "and the function is called"), (128, "and the function…"), (121, "and the f…")]:
        headings, line, *_ = printed(rows, width, capsys)
        assert line.startswith(LONG)
        assert line.endswith(f" {sample}")
        assert headings.endswith(" sample")
    for width in (120, 110):
        headings, line, *_ = printed(rows, width, capsys)
        assert line.startswith(LONG)
        assert headings.endswith(" epochs")
    # 11 columns less than the table without the sample needs; the mark after the name stays
    assert printed(rows, 99, capsys)[1].startswith(f"{LONG[:35]}… † word ")


def test_table_shortens_names_in_few_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows = tuple(ngram_row(1, smoothing) for smoothing in ("modified-kneser-ney", "kneser-ney"))
    _, line, *_ = printed(rows, 20, capsys)
    assert line.split("  ")[0] == "ngra… and 1 more"  # 16 columns


def test_table_counts_wide_characters_by_columns(capsys: pytest.CaptureFixture[str]) -> None:
    row = replace(neural_row("lstm", 1.5), sample="北京" * 40)
    _, line = printed((row,), 80, capsys)
    wide = len(re.findall("[北京]", line))
    assert len(line) + wide <= 80
    assert line.endswith("…")
