"""`chainrule`: the table of commands, and what an error, a warning or a signal becomes."""

import os
import signal
import sys
import traceback
import warnings
from types import FrameType
from typing import Annotated

import typer

from chainrule import __version__
from chainrule.cli import (
    compare,
    convert,
    doctor,
    evaluate,
    generate,
    info,
    mix,
    next_token,
    score,
    tokenizer,
    train,
)
from chainrule.cli.console import say, show_warning
from chainrule.errors import ChainruleError, ChainruleWarning

app = typer.Typer(
    name="chainrule",
    help="Language models of your own text: train, compare, score, generate.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"chainrule {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Language models of your own text: train, compare, score, generate."""


app.command("compare")(compare.compare)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("score")(score.score)
app.command("generate")(generate.generate)
app.command("next")(next_token.next_token)
app.command("mix")(mix.mix)
app.command("convert")(convert.convert)
app.command("info")(info.info)
app.add_typer(tokenizer.app, name="tokenizer")
app.command("doctor")(doctor.doctor)


def run() -> None:
    """Run one command; errors are one or two lines and an exit status, never a traceback unless asked for."""
    warnings.showwarning = show_warning
    warnings.simplefilter("once", ChainruleWarning)
    signal.signal(signal.SIGTERM, _terminated)
    is_debug = "--debug" in sys.argv[1:]
    try:
        app()
    except ChainruleError as error:
        if is_debug:
            traceback.print_exc()
        say(f"error: {error}")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on: end quietly
    except KeyboardInterrupt:
        say("stopped")
        sys.exit(130)
    except MemoryError:
        if is_debug:
            raise
        say("error: out of memory; take a lower order, a smaller text or a smaller vocabulary")
        sys.exit(1)
    except OSError as error:
        if is_debug:
            raise
        say(f"error: {error.filename or 'input or output'}: {error.strerror or error}")
        sys.exit(1)


def _terminated(signum: int, frame: FrameType | None) -> None:
    say("stopped")
    sys.exit(143)
