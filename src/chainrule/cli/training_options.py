"""Shared parts of the commands that train a model: options, settings from all sources, and the training run."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say
from chainrule.config import RunConfig
from chainrule.neural.cells import CELLS
from chainrule.neural.config import ModelConfig
from chainrule.tokenizers.config import TokenizerConfig
from chainrule.training.config import TrainingConfig

if TYPE_CHECKING:
    from chainrule.config import ConfigOverrides
    from chainrule.data.training_data import RunOptions
    from chainrule.progress import Progress

TASK_SETTINGS = (
    options.options_from_fields(TokenizerConfig, "kind", "vocab_size", "min_count", "lowercase")
    | options.options_from_fields(ModelConfig, "hidden", "layers", "embedding", "dropout")
    | options.options_from_fields(TrainingConfig, "batch_size", "epochs", "max_seconds")
    | options.options_from_fields(TrainingConfig, "optimizer", "learning_rate", "clip", "precision")
    | options.options_from_fields(RunConfig, "seed")
)
"""Options of every task that trains a network."""
FAMILIES = f"Model family: {', '.join(CELLS)} or transformer."


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Options of a training run."""

    out: options.Out
    recipe: Annotated[str | None, typer.Option(help="Name of a recipe; see chainrule recipes.")] = None
    config: Annotated[
        Path | None, typer.Option(help="TOML file of settings with tables [model], [training], [tokenizer], [run].")
    ] = None
    set_: options.Set = None
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the checkpoint in --out.")] = False
    force: options.Force = False
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard event files.")] = False
    threads: options.Threads = None
    device: options.Device = "auto"

    @contextmanager
    def start(self, *inputs: object) -> "Iterator[Progress]":
        """Lock the output folder and show a progress bar; if a signal interrupts the block, print how to resume.

        `inputs` are the files read besides the training text and --config.
        """
        files = [self.config, *(str(name) for name in inputs if name)]
        lock = options.lock_output(self.out, files, force=self.force, resume=self.resume)
        with resume_hint(self.out), lock, progress() as bar:
            yield bar

    def run_options(self, bar: "Progress", **config: Any) -> "RunOptions":
        """Return the options of this run; `config` are its seed and context."""
        from chainrule.data.training_data import RunOptions

        return RunOptions(
            **config,
            device=options.check_device(self.device),
            progress=bar,
            announce=say,
            command=options.command_line(),
            out=self.out,
            resume=self.resume,
            force=self.force,
            tensorboard=self.tensorboard,
        )


def train_task(
    task: str,
    family: str,
    data: Any,
    run: Run,
    given: Mapping[str, object],
    inputs: Sequence[object] = (),
    text_format: options.TextFormat | None = None,
    **arguments: Any,
) -> tuple[Any, float]:
    """Train and save the model of a task; return it and the seconds this took.

    `inputs` are the files read besides the training data. With `text_format`, training and validation data are
    opened as text. `arguments` are passed to the `train` function of the task.
    """
    from chainrule import families
    from chainrule.config import build_config

    start = time.perf_counter()
    module = families.get_task(task)
    config = module.get_config_class(family) if task == "classify" else module.Config
    settings = _resolve_settings(task, family, config, run, given, arguments.get("pretrained"))
    seed = build_config(RunConfig, settings.run, "run").seed
    _check_output(run.out)
    if text_format is not None:
        data, valid = text_format.corpus(data), arguments["valid"]
        arguments["valid"] = None if valid is None else text_format.corpus(valid)
    with run.start(settings.tokenizer.get("vocab"), settings.tokenizer.get("kind"), *inputs) as bar:
        model = module.train(
            family, data, options=run.run_options(bar, seed=seed), **arguments, **settings.arguments()
        )
        model.save(run.out, force=run.force)
    return model, time.perf_counter() - start


def report_training(
    run: Run,
    model: Any,
    seconds: float,
    about: Mapping[str, object],
    validation: Mapping[str, Any],
    quality: str,
    json: bool,
) -> None:
    """Print the figures of a trained task model as JSON if requested, and a one-line summary on stderr."""
    if json:
        document = {"model": str(run.out), **about, "parameters": model.parameters, **model.metrics}
        emit(document | ({"validation": validation} if validation else {}))
    say(f"saved {run.out}: {model.parameters:,} parameters{quality}, {seconds:.1f} s in all")


def _resolve_settings(
    task: str, family: str, config: type[Any], run: Run, given: Mapping[str, object], pretrained: Path | None
) -> "ConfigOverrides":
    """Merge the settings of recipe, --config, --set and options, and check them before any work.

    The result does not contain the family, which is an argument of the command. A pre-trained encoder determines
    the settings that describe its shape; for these, the recipe is ignored.
    """
    from chainrule import families, recipes
    from chainrule.config import build_config, merge_settings
    from chainrule.errors import ConfigError

    encoder_shape = {} if pretrained is None else families.get_task("pretrain").read_shape(pretrained)
    recipe = None if run.recipe is None else recipes.read(run.recipe, family, task).choices
    overridden = []
    if recipe is not None and pretrained is not None:
        dropped = {name: recipe.model.pop(name) for name in encoder_shape if name in recipe.model}
        recipe.tokenizer.clear()
        overridden = [f"{name} {encoder_shape[name]}" for name, x in dropped.items() if x != encoder_shape[name]]
    settings = merge_settings(recipe, run.config, run.set_ or (), given, tokenizer_config=TokenizerConfig)
    if (named := settings.model.pop("family", family)) != family:
        raise ConfigError(
            f"model.family is '{named}', but the command says '{family}'; leave it out of the settings"
        )
    if pretrained is None:
        build_config(config, {"family": family, **settings.model}, "model", family)
    else:
        from chainrule.tasks.initialization import build_config_with_shape

        build_config_with_shape(config, {"family": family, **settings.model}, encoder_shape, pretrained)
    build_config(TokenizerConfig, {n: v for n, v in settings.tokenizer.items() if n != "kind"}, "tokenizer")
    if overridden:
        say(f"settings taken from the encoder {pretrained} instead of the recipe: {', '.join(overridden)}")
    return settings


@contextmanager
def resume_hint(out: Path) -> Iterator[None]:
    """If a signal interrupts the block, print where the checkpoint is and how to resume."""
    from chainrule.storage.verified_dir import CHECKPOINT

    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if (out / CHECKPOINT).exists():
            say(f"the run is saved in {out / CHECKPOINT}: the same command with --resume continues from there")
        raise


def _check_output(out: Path) -> None:
    """Raise if `out` cannot be written; for a damaged checkpoint, say how to recover."""
    from chainrule.errors import ModelFileError
    from chainrule.storage import verified_dir

    try:
        verified_dir.check_writable_target(out)
    except ModelFileError as error:
        if error.remedy != verified_dir.REMEDY:
            raise
        raise ModelFileError(error.message, f"remove {out / verified_dir.CHECKPOINT} to start over") from error
