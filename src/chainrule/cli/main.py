"""Entry point of the command line: command registration and error handling."""

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
    dedup,
    doctor,
    encode,
    evaluate,
    filter_lines,
    generate,
    identify,
    info,
    inspect,
    mix,
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
from chainrule.storage.temp_dir import remove_orphans
from chainrule.system import parse_size
from chainrule.text.readers import LIMIT_VARIABLE

INTERRUPTED = 130
SMALLER = "take a smaller model (--hidden, --layers, --order), a smaller vocabulary or less text"

app = typer.Typer(
    name="chainrule",
    help="Train, compare, evaluate and serve language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(is_requested: bool) -> None:
    if is_requested:
        print(f"chainrule {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when an error occurs.")] = False,
    max_decompressed: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Maximum decompressed size of a text file, e.g. 2G.  "
            "[default: 4M or 250 times the compressed size, whichever is larger]",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train, compare, evaluate and serve language models."""
    if max_decompressed is not None:
        parse_size(max_decompressed, "--max-decompressed")
        os.environ[LIMIT_VARIABLE] = max_decompressed  # inherited by child processes


app.command("compare")(compare.compare)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("score")(score.score)
app.command("generate")(generate.generate)
app.command("next")(generate.next_token)
app.command("mix")(mix.mix)
app.command("convert")(convert.convert)
app.command("info")(info.info)
app.command("inspect")(inspect.inspect)
app.command("rerank")(rerank.rerank)
app.command("correct")(correct.correct)
app.command("filter")(filter_lines.filter_lines)
app.command("identify")(identify.identify)
app.command("dedup")(dedup.dedup)
app.command("encode")(encode.encode)
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
    """Run a command; report errors in one or two lines with an exit status, without a traceback unless --debug."""
    _prepare_streams()
    warnings.showwarning = show_warning
    warnings.simplefilter("once", ChainruleWarning)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # otherwise cli/signals.py handles it
        signal.signal(signal.SIGTERM, _terminated)
    is_debug = "--debug" in sys.argv[1:]
    arguments = _root_options_first([argument for argument in sys.argv[1:] if argument != "--debug"])
    remove_orphans()
    sys.exit(_run_app(arguments, is_debug))


def _root_options_first(arguments: list[str]) -> list[str]:
    """Move `--max-decompressed` to the front, so that it may be given anywhere, like `--debug`."""
    option = "--max-decompressed"
    for index, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument == option or argument.startswith(f"{option}="):
            size = 2 if argument == option else 1
            return [*arguments[index : index + size], *arguments[:index], *arguments[index + size :]]
    return arguments


def _run_app(arguments: list[str], is_debug: bool) -> int:
    """Run the command, flush its output and return the exit status."""
    code = 0
    try:
        status = app(arguments, prog_name="chainrule", standalone_mode=False)
        code = status if isinstance(status, int) else 0
        if status == INTERRUPTED:
            say("stopped")
        sys.stdout.flush()  # raises here if the disk is full
    except Exception as error:
        if is_debug:
            traceback.print_exc()
        message, code = _describe_error(error)
        if message:
            say(message)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _discard_output()  # already reported; keep the interpreter from flushing again at exit
    return code


def _describe_error(error: Exception) -> tuple[str, int]:
    """Return the message for an error (empty for a broken pipe) and the exit status."""
    if isinstance(error, ChainruleError):
        return f"error: {error}", error.exit_code
    if is_out_of_memory(error):
        return f"error: out of memory; {SMALLER}", 1
    if isinstance(error, BrokenPipeError):  # as in `chainrule score … | head -1`
        return "", 1
    if isinstance(error, OSError):
        return f"error: {_file_name(error)}: {error.strerror or error}{_remedy(error)}", 1
    if isinstance(error, RecursionError):
        return "error: the input is nested too deeply; reduce its nesting", 3
    if not isinstance(error, TyperException):
        text = " ".join(str(error).split())
        return (
            f"error: {type(error).__name__}: {text[:500]}; this is a bug in chainrule; "
            "run again with --debug for a traceback",
            1,
        )
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        return context.get_help(), 2
    text = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
    command = context.command_path if context is not None else "chainrule"
    separator = " See" if text.endswith("?") else "; see"
    return f"error: {text[:1].lower() + text[1:]}{separator} {command} --help", 2


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error means out of memory; torch and the dynamic linker raise generic types for it."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    text = str(error).lower()
    is_named = any(phrase in text for phrase in ("allocate memory", "out of memory", "bad_alloc", "failed to map"))
    return is_named and isinstance(error, RuntimeError | ImportError | OSError)


def _file_name(error: OSError) -> str:
    """Return the file name of an error, with bytes that are not UTF-8 escaped."""
    name = error.filename
    if name is None:
        return "input or output"  # a stream, usually stdout
    text = os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else str(name)
    return text.encode("utf-8", "backslashreplace").decode()


def _remedy(error: OSError) -> str:
    """Return advice for an operating-system error, or an empty string."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "; make room, or write to another disk"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "; raise the limit of open files (ulimit -n)"
    return ""


def _prepare_streams() -> None:
    """Set both streams to UTF-8; writing to a closed stdout raises, to a closed stderr does nothing."""
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_ClosedOutput()), write_through=True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open until the process ends)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # File names may not be UTF-8; other bytes are written as escapes.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


class _ClosedOutput(io.RawIOBase):
    """Replacement for a stdout that was closed before the process started; raises on write."""

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        raise OSError(errno.EBADF, "it is closed; redirect it to a file, a pipe or /dev/null", "standard output")


def _discard_output() -> None:
    """Redirect stdout to /dev/null, because its buffer cannot be written."""
    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError):  # not backed by a file descriptor
        sys.stdout = io.StringIO()
        return
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, target)
    os.close(descriptor)


def _terminated(signum: int, frame: FrameType | None) -> None:
    say("stopped")
    sys.exit(143)
