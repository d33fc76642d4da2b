"""Names from outside: they break out of nothing, and turn nothing around them."""

from chainrule.plots.html import bold, escape, to_printable


def test_names_cannot_break_out() -> None:
    assert escape("<b>\x07") == "<bdi>&lt;b&gt;␇</bdi>"
    assert escape('"&') == "<bdi>&quot;&amp;</bdi>"
    assert escape("שלום") == "<bdi>שלום</bdi>"
    assert bold("<b>") == "<b><bdi>&lt;b&gt;</bdi></b>"


def test_what_is_no_text_can_be_written() -> None:
    assert to_printable("a\n\x85\udc80") == "a␊�?"
    assert escape("\udc80\0") == "<bdi>?␀</bdi>"
