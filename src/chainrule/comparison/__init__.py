"""The comparison of model families on one text: what `chainrule compare` runs."""

from chainrule.comparison.run import compare
from chainrule.comparison.settings import Settings

__all__ = ["Settings", "compare"]
