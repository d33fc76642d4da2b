"""Command-line options: those shared by several commands, and those generated from the fields of configs."""

import dataclasses
import inspect
import os
import shlex
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from chainrule.distributed.options import EngineOptions
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.text.corpus import Corpus

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a trained model.")]
Texts = Annotated[list[str], typer.Argument(metavar="TEXT...", help="Text files, folders, globs, or - for stdin.")]
Out = Annotated[Path, typer.Option(help="Output model folder.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a finished model or an unfinished run in --out.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Set any configuration field: key=value. Repeatable.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same result.")]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="Number of CPU threads.  [default: all]")]
Device = Annotated[str, typer.Option(help="Device of neural models: auto, cpu or cuda.")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """How text files are read."""

    column: Annotated[
        str | None,
        typer.Option(
            help="Name of the text column in CSV, TSV, JSON Lines and Parquet files; the last two default to "
            "'text'."
        ),
    ] = None
    errors: Annotated[
        str,
        typer.Option(help="How to treat invalid UTF-8: 'strict' raises an error, 'replace' substitutes U+FFFD."),
    ] = "strict"

    def corpus(self, sources: str | list[str], *, reads_once: bool = False) -> "Corpus":
        """Open the sources as a corpus, read as these options specify."""
        from chainrule.text.corpus import Corpus

        return Corpus.of(sources, **dataclasses.asdict(self), reads_once=reads_once)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat(TextFormat):
    """How lines of text are read."""

    drop_blank_lines: Annotated[bool, typer.Option("--drop-blank-lines", help="Ignore blank lines.")] = False


def options_from_fields(config: type[Any], *names: str) -> dict[str, Any]:
    """Return the options of some fields of a config dataclass: field name -> annotated type.

    Help text and flags were declared with `chainrule.config.setting`. A boolean field is a switch, unless its flags
    include a negation.
    """
    hints, options = get_type_hints(config), {}
    about = {field.name: field.metadata for field in dataclasses.fields(config)}
    for name in names:
        flags = about[name]["option"] or (f"--{name.replace('_', '-')}" if hints[name] is bool else "")
        options[name] = option(_value_type(hints[name]), about[name]["help"], flags, **about[name]["limits"])
    return options


def option(kind: Any, help: str, flags: str = "", **limits: Any) -> Any:
    """Return the annotated type of an option that is None if it is left out."""
    return Annotated[kind | None, typer.Option(*([flags] if flags else []), help=help, **limits)]


def _value_type(hint: Any) -> Any:
    """Return the type of the option of a field: literals and tuples are given as text."""
    if get_origin(hint) in (Union, types.UnionType):
        return _value_type(next(kind for kind in get_args(hint) if kind is not type(None)))
    return str if get_origin(hint) in (Literal, tuple) else hint


ENGINE = options_from_fields(EngineOptions, "on", "workers", "master", "work", "partition")
"""Options of a job on an engine, for `expand_option_groups`; see `engine_options`."""
RESUME_JOB = options_from_fields(EngineOptions, "resume")
"""The option --resume of a command that has no other meaning for it."""


def engine_options(settings: dict[str, Any], *, resume: bool = False) -> EngineOptions:
    """Take the options of `ENGINE` and `RESUME_JOB` out of `settings`."""
    chosen = {name: settings.pop(name) for name in (*ENGINE, *RESUME_JOB) if name in settings}
    return EngineOptions(**({"resume": resume} | chosen))


def write_to_stdout(blocks: Iterable[bytes]) -> None:
    """Write the output of a job to stdout."""
    sys.stdout.flush()
    for block in blocks:
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def expand_option_groups(
    settings: Mapping[str, Any] = types.MappingProxyType({}),
) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that lets Typer see groups of options as single options.

    A parameter of the command whose type is a dataclass stands for the options of its fields. The parameter
    `settings` stands for the given options (name -> annotated type); its value contains those that were given.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[Callable[..., Any], list[str]]] = {}
        build: Any
        for parameter in inspect.signature(command).parameters.values():
            if parameter.name == "settings":
                members = [_parameter(name, kind) for name, kind in settings.items()]
                build = _drop_none
            elif dataclasses.is_dataclass(parameter.annotation):
                build = parameter.annotation
                hints = get_type_hints(build, include_extras=True)
                members = [_parameter(f.name, hints[f.name], f.default) for f in dataclasses.fields(build)]
            else:
                parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))
                continue
            groups[parameter.name] = build, [member.name for member in members]
            parameters += members

        @wraps(command)
        def run(**values: Any) -> None:
            for group, (build, names) in groups.items():
                values[group] = build(**{name: values.pop(name) for name in names})
            command(**values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    default = inspect.Parameter.empty if default is dataclasses.MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _drop_none(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def command_line() -> str:
    """Return the command line, for the provenance record of the output."""
    return shlex.join(["chainrule", *sys.argv[1:]]).encode(errors="replace").decode()


def lock_output(
    out: Path, inputs: Iterable[str | Path | None], *, force: bool, resume: bool = False
) -> AbstractContextManager[None]:
    """Lock the output folder; `inputs` are the files read besides the training text (their digests are stored)."""
    from chainrule.storage import verified_dir
    from chainrule.storage.verified_dir import input_digests

    return verified_dir.lock_for_writing(
        out, command_line(), force=force, resume=resume, inputs=input_digests(inputs)
    )


def report_word_splitting(requested: object, kind: str) -> None:
    """If `word` was requested, print on stderr whether `word` or `whitespace` splitting was chosen."""
    from chainrule.cli.console import say
    from chainrule.tokenizers.punctuation import describe_choice

    message = describe_choice(requested, kind)
    if message:
        say(message)


def check_output(out: Path | None, corpus: "Corpus") -> None:
    """Raise if the output file is one of the files that are read."""
    if (
        out is not None
        and out.is_file()
        and any(file.path.exists() and out.samefile(file.path) for file in corpus.files)
    ):
        raise UsageError(f"--out {out} is the text that is read; choose another file")


def limit_threads(number: int | None) -> None:
    """Limit the threads of all libraries; they read these variables when they are first loaded."""
    if number is not None:
        for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(number)


def drop_unset(**values: object) -> dict[str, object]:
    """Drop options that were not set: None and False."""
    return {name: value for name, value in values.items() if value is not None and value is not False}


def check_device(value: str) -> str:
    """Return the device name; raise UsageError if it is unknown."""
    if value not in ("auto", "cpu", "cuda"):
        raise UsageError(f"device is '{value}'; choose auto, cpu or cuda")
    return value
