"""Names from outside: they break out of nothing, and turn nothing around them."""

from chainrule.inspection.foreign import bold, isolated, plain_text


def test_names_cannot_break_out() -> None:
    assert isolated("<b>\x07") == "<bdi>&lt;b&gt;␇</bdi>"
    assert isolated('"&') == "<bdi>&quot;&amp;</bdi>"
    assert isolated("שלום") == "<bdi>שלום</bdi>"
    assert bold("<b>") == "<b><bdi>&lt;b&gt;</bdi></b>"


def test_what_is_no_text_can_be_written() -> None:
    assert plain_text("a\n\x85\udc80") == "a␊�?"
    assert isolated("\udc80\0") == "<bdi>?␀</bdi>"
