"""Compare model families on one text: the implementation of `chainrule compare`."""
