"""Shared parts of the task `train` commands: options, settings from all sources, and the training run."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import progress, say

if TYPE_CHECKING:
    from chainrule.config import ConfigOverrides
    from chainrule.data.training_data import RunOptions

SETTINGS = (
    *("vocab_size", "min_count", "lowercase", "hidden", "layers", "embedding", "dropout", "init"),
    *("batch_size", "epochs", "max_seconds", "optimizer", "learning_rate", "clip", "precision"),
)
"""Options that set a configuration field of the same name, if the command has them."""

Out = Annotated[Path, typer.Option(help="Output model folder.")]
Recipe = Annotated[str | None, typer.Option(help="Name of a recipe; see chainrule recipes.")]
Config = Annotated[
    Path | None, typer.Option(help="TOML file of settings with tables [model], [training], [tokenizer], [run].")
]
Set = Annotated[list[str] | None, typer.Option("--set", help="Set any configuration field: key=value. Repeatable.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume from the checkpoint in --out.")]
Tensorboard = Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard event files.")]


def resolve_settings(
    task: str, family: str, kind: type[Any], params: Mapping[str, Any], more: Sequence[str] = ()
) -> "ConfigOverrides":
    """Merge the settings of recipe, --config, --set and options, in increasing priority; check them against `kind`.

    `params` are the parameters of the command; `more` names options beyond `SETTINGS` that are configuration
    fields. The result does not contain the family, which is an argument of the command.
    """
    from chainrule import families, recipes
    from chainrule.api import split_settings
    from chainrule.config import ConfigOverrides, build_config, parse_overrides, read_toml
    from chainrule.config import overrides_from_tables as of_tables
    from chainrule.tokenizers.config import KINDS, TokenizerConfig

    set_options = options.drop_unset(**{name: params[name] for name in (*SETTINGS, *more) if name in params})
    tokenizer_settings, model_settings = split_settings(parse_overrides(params.get("set_") or []) | set_options)
    if "kind" in model_settings:
        tokenizer_settings["kind"] = model_settings.pop("kind")
    seed = {} if params["seed"] is None else {"seed": params["seed"]}
    pretrained = params.get("pretrained") and Path(params["pretrained"])
    encoder_shape = {} if pretrained is None else families.get_task("pretrain").read_shape(pretrained)
    settings, overridden = ConfigOverrides(), []
    if params["recipe"] is not None:
        settings = recipes.read(params["recipe"], family, task).choices
        if params.get("tokenizer") not in (None, *KINDS):
            settings.tokenizer.clear()  # a trained tokenizer cannot be configured
        if pretrained is not None:
            overridden = _leave_to_pretrained(settings, encoder_shape)
    if params["config"] is not None:
        file = Path(params["config"])
        settings |= of_tables(read_toml(file), file)
    settings |= ConfigOverrides(model=model_settings, tokenizer=tokenizer_settings, run=seed)
    _check_family(settings.model.pop("family", family), family)
    _check_settings(
        kind, {"family": family, **settings.model}, encoder_shape, pretrained
    )  # report errors before any work
    build_config(TokenizerConfig, {n: v for n, v in settings.tokenizer.items() if n != "kind"}, "tokenizer")
    if overridden:
        say(f"the encoder of {pretrained} decides {', '.join(overridden)}; the recipe is not followed there")
    return settings


def _check_family(configured: object, family: str) -> None:
    """Raise ConfigError if the settings name another family than the command."""
    from chainrule.errors import ConfigError

    if configured != family:
        raise ConfigError(
            f"model.family is '{configured}', and the command says '{family}'; leave it out of the settings"
        )


def _check_settings(
    kind: type[Any], settings: Mapping[str, object], encoder_shape: Mapping[str, object], pretrained: Any
) -> None:
    """Raise ConfigError for unknown settings and for settings that conflict with the pre-trained encoder."""
    from chainrule.config import build_config

    if pretrained is None:
        build_config(kind, settings, "model", str(settings["family"]))
        return
    from chainrule.tasks.initialization import build_config_with_shape

    build_config_with_shape(kind, settings, encoder_shape, pretrained)


def _leave_to_pretrained(settings: "ConfigOverrides", encoder_shape: Mapping[str, object]) -> list[str]:
    """Drop a recipe's tokenizer and encoder settings; return descriptions of those that the encoder overrides."""
    dropped = {name: settings.model.pop(name) for name in encoder_shape if name in settings.model}
    settings.tokenizer.clear()
    return [f"{name} {encoder_shape[name]}" for name, value in dropped.items() if value != encoder_shape[name]]


@contextmanager
def resume_hint(out: Path) -> Iterator[None]:
    """If a signal interrupts the block, print where the checkpoint is and how to resume."""
    from chainrule.storage.verified_dir import CHECKPOINT

    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if (out / CHECKPOINT).exists():
            say(f"the run is saved in {out / CHECKPOINT}: the same command with --resume goes on from there")
        raise


def _check_output(out: Path) -> None:
    """Raise if `out` cannot be written; for a damaged checkpoint, say how to recover."""
    from chainrule.errors import ModelFileError
    from chainrule.storage import manifest, verified_dir

    try:
        verified_dir.check_writable_target(out)
    except ModelFileError as error:
        if error.remedy != manifest.REMEDY:
            raise
        raise ModelFileError(error.message, f"remove {out / verified_dir.CHECKPOINT} to start anew") from error


@contextmanager
def task_run(params: Mapping[str, Any], settings: "ConfigOverrides", tokenizer: object) -> "Iterator[RunOptions]":
    """Yield the run options, with the output folder locked and a progress bar shown.

    If a signal interrupts the block, print how to resume. `tokenizer` is the kind or folder in the settings.
    """
    from chainrule.config import RunConfig, build_config
    from chainrule.data.training_data import RunOptions

    out = Path(params["out"])  # a string or a Path, depending on the version of typer
    seed = build_config(RunConfig, settings.run, "run").seed
    _check_output(out)
    command, force, resume = options.command_line(), params["force"], params["resume"]
    inputs = options.input_files(params, settings, tokenizer)
    writing = options.lock_output(out, inputs, force=force, resume=resume)
    with resume_hint(out), writing, progress() as bar:
        yield RunOptions(
            seed=seed,
            device=options.check_device(params["device"]),
            progress=bar,
            announce=say,
            command=command,
            out=out,
            resume=resume,
            force=force,
            tensorboard=params["tensorboard"],
        )
