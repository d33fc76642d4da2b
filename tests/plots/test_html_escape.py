"""Untrusted names cannot break out of HTML or change the text direction."""

from chainrule.plots.html import bold, escape, to_printable


def test_escape_isolates_untrusted_names() -> None:
    assert escape("<b>\x07") == "<bdi>&lt;b&gt;␇</bdi>"
    assert escape('"&') == "<bdi>&quot;&amp;</bdi>"
    assert escape("שלום") == "<bdi>שלום</bdi>"
    assert bold("<b>") == "<b><bdi>&lt;b&gt;</bdi></b>"


def test_escape_replaces_unprintable_characters() -> None:
    assert to_printable("a\n\x85\udc80") == "a␊�?"
    assert escape("\udc80\0") == "<bdi>?␀</bdi>"
