"""chainrule: language models of your own text, every family behind one contract, compared on one scale."""

__version__ = "0.1.0"
