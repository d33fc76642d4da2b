"""The comparison of model families on one text: what `chainrule compare` runs."""

from chainrule.comparison.run import compare
from chainrule.comparison.settings import Settings
from chainrule.comparison.store import kept_names

__all__ = ["Settings", "compare", "kept_names"]
