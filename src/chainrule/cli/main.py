"""`chainrule`: the table of commands, and what an error, a warning or a signal becomes."""

import errno
import io
import os
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
from chainrule.memory import bytes_of
from chainrule.scratch import remove_orphans
from chainrule.text.compression import LIMIT_VARIABLE

INTERRUPTED = 130
SMALLER = "take a smaller model (--hidden, --layers, --order), a smaller vocabulary or less text"

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
    max_decompressed: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Most bytes that one compressed text file may hold, as in 2G.  "
            "[default: 4M, or 250 times its own size where that is more]",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Language models of your own text: train, compare, score, generate."""
    if max_decompressed is not None:
        bytes_of(max_decompressed, "--max-decompressed")
        os.environ[LIMIT_VARIABLE] = max_decompressed  # for the processes that this one starts, too


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
    _prepare_streams()
    warnings.showwarning = show_warning
    warnings.simplefilter("once", ChainruleWarning)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # else cli/signals.py has it
        signal.signal(signal.SIGTERM, _terminated)
    is_debug = "--debug" in sys.argv[1:]
    arguments = _root_options_first([argument for argument in sys.argv[1:] if argument != "--debug"])
    remove_orphans()
    sys.exit(_run_app(arguments, is_debug))


def _root_options_first(arguments: list[str]) -> list[str]:
    """The arguments with `--max-decompressed` moved to the front: like `--debug`, it may stand anywhere."""
    option = "--max-decompressed"
    for place, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument == option or argument.startswith(f"{option}="):
            size = 2 if argument == option else 1
            return [*arguments[place : place + size], *arguments[:place], *arguments[place + size :]]
    return arguments


def _run_app(arguments: list[str], is_debug: bool) -> int:
    """Run the command and flush its output; the exit status."""
    code = 0
    try:
        status = app(arguments, prog_name="chainrule", standalone_mode=False)
        code = status if isinstance(status, int) else 0
        if status == INTERRUPTED:
            say("stopped")
        sys.stdout.flush()  # a full disk is noticed here at the latest
    except Exception as error:
        if is_debug:
            traceback.print_exc()
        message, code = _explain(error)
        if message:
            say(message)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _discard_output()  # has been reported: the interpreter must not try again when it ends
    return code


def _explain(error: Exception) -> tuple[str, int]:
    """What to say of an error, nothing where nobody reads on, and the exit status."""
    if isinstance(error, ChainruleError):
        return f"error: {error}", error.exit_code
    if is_out_of_memory(error):
        return f"error: out of memory; {SMALLER}", 1
    if isinstance(error, BrokenPipeError):  # as in `chainrule score … | head -1`
        return "", 1
    if isinstance(error, OSError):
        return f"error: {_name(error)}: {error.strerror or error}{_remedy(error)}", 1
    if isinstance(error, RecursionError):
        return "error: the input is nested too deeply to be read; make it flatter", 3
    if not isinstance(error, TyperException):
        words = " ".join(str(error).split())
        return (
            f"error: {type(error).__name__}: {words[:500]}; this is a defect of chainrule: --debug shows where",
            1,
        )
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        return context.get_help(), 2
    words = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
    command = context.command_path if context is not None else "chainrule"
    return f"error: {words[:1].lower() + words[1:]}; see {command} --help", 2


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; torch and the dynamic linker have no type of their own for it."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    words = str(error).lower()
    is_named = any(phrase in words for phrase in ("allocate memory", "out of memory", "bad_alloc", "failed to map"))
    return is_named and isinstance(error, RuntimeError | ImportError | OSError)


def _name(error: OSError) -> str:
    """The file an error is about, readable also where its name is not UTF-8."""
    name = error.filename
    if name is None:
        return "input or output"  # a stream: the standard output, most often
    text = os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else str(name)
    return text.encode("utf-8", "backslashreplace").decode()


def _remedy(error: OSError) -> str:
    """What to do about an error of the system, where that is known."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "; make room, or write to another disk"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "; raise the limit of open files (ulimit -n)"
    return ""


def _prepare_streams() -> None:
    """UTF-8 whatever the locale says; a closed stdout fails when it is written to, a closed stderr is silent."""
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_ClosedOutput()), write_through=True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the process ends)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of files need not be UTF-8: what is not is written as an escape.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


class _ClosedOutput(io.RawIOBase):
    """Stands for a stdout that was closed before the process began."""

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        raise OSError(errno.EBADF, "it is closed; redirect it to a file, a pipe or /dev/null", "standard output")


def _discard_output() -> None:
    """Let stdout go nowhere: what is still in its buffer cannot be written."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError):  # not a stream of the system
        sys.stdout = io.StringIO()
        return
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, target)
    os.close(descriptor)


def _terminated(signum: int, frame: FrameType | None) -> None:
    say("stopped")
    sys.exit(143)
