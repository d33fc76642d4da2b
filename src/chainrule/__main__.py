"""Run the command line with `python -m chainrule`."""

from chainrule.cli.signals import main

main()
