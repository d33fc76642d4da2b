"""`python -m chainrule`."""

from chainrule.cli.signals import main

main()
