"""`chainrule`: the table of commands, and what an error, a warning or a signal becomes."""

import io
import signal
import sys
import traceback
import warnings
from types import FrameType
from typing import Annotated

import typer
from typer.exceptions import TyperException

from chainrule import __version__
from chainrule.cli import (
    classify,
    compare,
    convert,
    correct,
    doctor,
    evaluate,
    filter_lines,
    generate,
    identify,
    info,
    inspect,
    mix,
    next_token,
    pretrain,
    recipes,
    rerank,
    score,
    serve,
    tag,
    tokenizer,
    train,
    translate,
    vectors,
)
from chainrule.cli.console import say, show_warning
from chainrule.errors import ChainruleError, ChainruleWarning

INTERRUPTED = 130

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
app.command("inspect")(inspect.inspect)
app.command("rerank")(rerank.rerank)
app.command("correct")(correct.correct)
app.command("filter")(filter_lines.filter_lines)
app.command("identify")(identify.identify)
app.add_typer(translate.app, name="translate")
app.add_typer(tag.app, name="tag")
app.add_typer(classify.app, name="classify")
app.command("pretrain")(pretrain.pretrain)
app.add_typer(vectors.app, name="vectors")
app.command("serve")(serve.serve)
app.command("recipes")(recipes.recipes)
app.add_typer(tokenizer.app, name="tokenizer")
app.command("doctor")(doctor.doctor)


def run() -> None:
    """Run one command; errors are one or two lines and an exit status, never a traceback unless asked for."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # whatever the locale says: files are UTF-8, too
    warnings.showwarning = show_warning
    warnings.simplefilter("once", ChainruleWarning)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # else cli/signals.py has it
        signal.signal(signal.SIGTERM, _terminated)
    is_debug = "--debug" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]  # it may stand anywhere
    try:
        status = app(arguments, prog_name="chainrule", standalone_mode=False)
        if status == INTERRUPTED:
            say("stopped")
        sys.exit(status if isinstance(status, int) else 0)
    except (TyperException, ChainruleError, OSError, MemoryError) as error:
        if is_debug:
            traceback.print_exc()
        message, code = _explain(error)
        say(message)
        sys.exit(code)


def _explain(error: Exception) -> tuple[str, int]:
    """What to say of an error, and the exit status."""
    if isinstance(error, ChainruleError):
        return f"error: {error}", error.exit_code
    if isinstance(error, MemoryError):
        return "error: out of memory; take a lower order, a smaller text or a smaller vocabulary", 1
    if isinstance(error, OSError):
        return f"error: {error.filename or 'input or output'}: {error.strerror or error}", 1
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        return context.get_help(), 2
    words = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
    command = context.command_path if context is not None else "chainrule"
    return f"error: {words[:1].lower() + words[1:]}; see {command} --help", 2


def _terminated(signum: int, frame: FrameType | None) -> None:
    say("stopped")
    sys.exit(143)
