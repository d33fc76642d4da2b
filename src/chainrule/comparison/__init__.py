"""Compare model families on one text: the implementation of `chainrule compare`."""

from chainrule.comparison.run import compare
from chainrule.comparison.settings import Settings
from chainrule.comparison.store import kept_names

__all__ = ["Settings", "compare", "kept_names"]
