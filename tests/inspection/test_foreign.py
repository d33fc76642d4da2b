"""Names from outside: they break out of nothing, and turn nothing around them."""

from chainrule.inspection.foreign import isolated


def test_names_cannot_break_out() -> None:
    assert isolated("<b>\x07") == "<bdi>&lt;b&gt;␇</bdi>"
    assert isolated('"&') == "<bdi>&quot;&amp;</bdi>"
    assert isolated("שלום") == "<bdi>שלום</bdi>"
