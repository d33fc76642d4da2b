"""`python -m chainrule`."""

from chainrule.cli.main import run

run()
