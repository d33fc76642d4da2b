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

SHAPE = (
    *("hidden", "layers", "embedding", "directions", "longest"),
    *("heads", "positions", "norm", "feedforward", "activation", "bias"),
)
"""Settings of an encoder that a pre-trained one has decided."""

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

    `given` are the parameters of the command; `more` are options beyond the common ones that are settings.
    """
    from chainrule import recipes
    from chainrule.api import split_settings
    from chainrule.config import Choices, make, parse_overrides, read_toml
    from chainrule.config import choices as of_tables
    from chainrule.tokenizers.config import KINDS, TokenizerConfig

    named = options.chosen(**{name: given[name] for name in (*SETTINGS, *more) if name in given})
    wanted, own = split_settings(parse_overrides(given.get("set_") or []) | named)
    if "kind" in own:
        wanted["kind"] = own.pop("kind")
    seed = {} if given["seed"] is None else {"seed": given["seed"]}
    chosen = Choices()
    if given["recipe"] is not None:
        chosen = recipes.read(given["recipe"], family, task).choices
        if given.get("tokenizer") not in (None, *KINDS):
            chosen.tokenizer.clear()  # of a finished tokenizer nothing can be chosen any more
        if given.get("pretrained") is not None:
            _leave_to_pretrained(chosen)
    if given["config"] is not None:
        chosen |= of_tables(read_toml(given["config"]), given["config"])
    chosen |= Choices(model=own, tokenizer=wanted, run=seed)
    make(kind, {"family": family, **chosen.model}, "model", family)  # a wrong name is answered before any work
    make(TokenizerConfig, {n: v for n, v in chosen.tokenizer.items() if n != "kind"}, "tokenizer")
    return chosen


def _leave_to_pretrained(chosen: "Choices") -> None:
    """What a recipe says of tokenizer and encoder is not followed where a pre-trained one is taken."""
    for name in SHAPE:
        chosen.model.pop(name, None)
    chosen.tokenizer.clear()


@contextmanager
def run(given: Mapping[str, Any], chosen: "Choices") -> "Iterator[Running]":
    """The run of a command, its folder held, a bar shown; where a signal ends it, how to go on is said."""
    from chainrule import folder
    from chainrule.config import Run, make
    from chainrule.tasks.running import Running

    out: Path = given["out"]
    seed = make(Run, chosen.run, "run").seed
    folder.check_target(out)
    try:
        with folder.hold(out), progress() as bar:
            yield Running(
                seed=seed,
                device=options.device(given["device"]),
                progress=bar,
                command=options.command_line(),
                out=out,
                resume=given["resume"],
                tensorboard=given["tensorboard"],
            )
    except (KeyboardInterrupt, SystemExit):
        if (out / folder.CHECKPOINT).exists():
            say(f"the run is saved in {out / folder.CHECKPOINT}: the same command with --resume goes on from there")
        raise
