"""HTML tables: cells stay text, and each table has a label."""

from chainrule.plots.html import READ, RULED, Group, Markup, html_table


def test_cells_are_escaped_unless_markup() -> None:
    table = html_table(["<i>"], [["<b>\n"], [Markup("<b>x</b>")]], label='"<\0')
    assert '<th scope="col">&lt;i&gt;</th>' in table
    assert "<td>&lt;b&gt;␊</td>" in table
    assert "<td><b>x</b></td>" in table
    assert table.startswith('<table aria-label="&quot;&lt;␀">')


def test_table_styles() -> None:
    read = html_table(["a", "n"], [["x", "1"]], label="Counts", style=READ, numbers=(1,))
    assert read.startswith('<table class="read-table" aria-label="Counts">')
    assert '<td>x</td><td class="read-number">1</td>' in read
    ruled = html_table(["a", "n"], [["x", "1"]], label="Counts", style=RULED, numbers=(1,))
    assert ruled.startswith('<div style="overflow-x:auto"><table style=')
    assert ruled.endswith("</table></div>")
    assert ruled.count("text-align:right") == ruled.count("text-align:left") == 2


def test_table_row_headings_and_groups() -> None:
    headed = html_table(["", "n"], [["x", "1"]], label="", is_headed=True)
    assert '<tr><th scope="row">x</th><td>1</td></tr>' in headed
    grouped = html_table(["a", "b"], label="", groups=[Group("some", [["1", "2"]]), Group("<no>", [])])
    assert (
        '<tbody><tr><th colspan="2" scope="rowgroup">some</th></tr><tr><td>1</td><td>2</td></tr></tbody>' in grouped
    )
    assert '&lt;no&gt;</th></tr><tr><td colspan="2">none</td></tr></tbody>' in grouped
    assert "none" not in html_table(["a"], [], label="")
