"""What the `train` commands of the tasks share: settings from recipe, file and command line, and the run itself."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import progress, say

if TYPE_CHECKING:
    from chainrule.config import Choices
    from chainrule.tasks.running import Running

SETTINGS = (
    *("vocab_size", "min_count", "lowercase", "hidden", "layers", "embedding", "dropout", "init"),
    *("batch_size", "epochs", "max_seconds", "optimizer", "learning_rate", "clip", "precision"),
)
"""The options that are settings by the same name, where a command has them."""

Out = Annotated[Path, typer.Option(help="The model folder to write.")]
Recipe = Annotated[str | None, typer.Option(help="Settings by name; see chainrule recipes.")]
Config = Annotated[Path | None, typer.Option(help="Settings in TOML: [model], [training], [tokenizer], [run].")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Any setting, as key=value.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in --out.")]
Tensorboard = Annotated[bool, typer.Option("--tensorboard", help="Write the curves for TensorBoard as well.")]


def choices(
    task: str, family: str, kind: type[Any], given: Mapping[str, Any], more: Sequence[str] = ()
) -> "Choices":
    """All that was chosen, each source over the one before: recipe, file, --set, options; checked against `kind`.

    `given` are the parameters of the command; `more` are options beyond the common ones that are settings. The
    family is an argument of the command and not among the settings found.
    """
    from chainrule import recipes, tasks
    from chainrule.api import split_settings
    from chainrule.config import Choices, make, parse_overrides, read_toml
    from chainrule.config import choices as of_tables
    from chainrule.tokenizers.config import KINDS, TokenizerConfig

    named = options.chosen(**{name: given[name] for name in (*SETTINGS, *more) if name in given})
    wanted, own = split_settings(parse_overrides(given.get("set_") or []) | named)
    if "kind" in own:
        wanted["kind"] = own.pop("kind")
    seed = {} if given["seed"] is None else {"seed": given["seed"]}
    pretrained = given.get("pretrained") and Path(given["pretrained"])
    decided = {} if pretrained is None else tasks.get("pretrain").shape_of(pretrained)
    chosen, unfollowed = Choices(), []
    if given["recipe"] is not None:
        chosen = recipes.read(given["recipe"], family, task).choices
        if given.get("tokenizer") not in (None, *KINDS):
            chosen.tokenizer.clear()  # of a finished tokenizer nothing can be chosen any more
        if pretrained is not None:
            unfollowed = _leave_to_pretrained(chosen, decided)
    if given["config"] is not None:
        file = Path(given["config"])
        chosen |= of_tables(read_toml(file), file)
    chosen |= Choices(model=own, tokenizer=wanted, run=seed)
    _check_family(chosen.model.pop("family", family), family)
    _check(kind, {"family": family, **chosen.model}, decided, pretrained)  # a wrong one is answered before any work
    make(TokenizerConfig, {n: v for n, v in chosen.tokenizer.items() if n != "kind"}, "tokenizer")
    if unfollowed:
        say(f"the encoder of {pretrained} decides {', '.join(unfollowed)}; the recipe is not followed there")
    return chosen


def _check_family(named: object, family: str) -> None:
    """Refuse settings that name another family than the command does."""
    from chainrule.errors import ConfigError

    if named != family:
        raise ConfigError(
            f"model.family is '{named}', and the command says '{family}'; leave it out of the settings"
        )


def _check(kind: type[Any], own: Mapping[str, object], decided: Mapping[str, object], pretrained: Any) -> None:
    """Refuse settings that the model does not have, or that a pre-trained encoder has decided otherwise."""
    from chainrule.config import make

    if pretrained is None:
        make(kind, own, "model", str(own["family"]))
        return
    from chainrule.tasks.beginning import with_shape

    with_shape(kind, own, decided, pretrained)


def _leave_to_pretrained(chosen: "Choices", decided: Mapping[str, object]) -> list[str]:
    """Drop what a recipe says of tokenizer and encoder; in words, what a pre-trained one decides otherwise."""
    found = {name: chosen.model.pop(name) for name in decided if name in chosen.model}
    chosen.tokenizer.clear()
    return [f"{name} {decided[name]}" for name, value in found.items() if value != decided[name]]


@contextmanager
def said_if_saved(out: Path) -> Iterator[None]:
    """Where a signal ends the block, say what was saved and how to go on."""
    from chainrule.folder import CHECKPOINT

    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if (out / CHECKPOINT).exists():
            say(f"the run is saved in {out / CHECKPOINT}: the same command with --resume goes on from there")
        raise


def _check_place(out: Path) -> None:
    """Refuse what cannot be written to; a damaged checkpoint with what to do."""
    from chainrule import folder, manifest
    from chainrule.errors import ModelFileError

    try:
        folder.check_target(out)
    except ModelFileError as error:
        if not str(error).endswith(manifest.REMEDY):
            raise
        words = str(error).removesuffix(manifest.REMEDY)
        raise ModelFileError(f"{words}remove {out / folder.CHECKPOINT} to start anew") from error


@contextmanager
def run(given: Mapping[str, Any], chosen: "Choices", tokenizer: object) -> "Iterator[Running]":
    """The run of a command, its folder held, a bar shown; where a signal ends it, how to go on is said.

    `tokenizer` is the one that the settings name: a kind or a folder.
    """
    from chainrule.config import Run, make
    from chainrule.tasks.running import Running

    out = Path(given["out"])  # typer hands the parameters over as they were typed, or converted, by its version
    seed = make(Run, chosen.run, "run").seed
    _check_place(out)
    command, force, resume = options.command_line(), given["force"], given["resume"]
    inputs = options.inputs_of(given, chosen, tokenizer)
    writing = options.writing(out, inputs, force=force, resume=resume)
    with said_if_saved(out), writing, progress() as bar:
        yield Running(
            seed=seed,
            device=options.device(given["device"]),
            progress=bar,
            say=say,
            command=command,
            out=out,
            resume=resume,
            force=force,
            tensorboard=given["tensorboard"],
        )
