"""What `import chainrule` offers: train, load, mix, compare. Each is thin over the parts."""

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from chainrule import artifact, families, folder, mixture, recipes, sizing
from chainrule import config as settings
from chainrule import memory as sizes
from chainrule.data.training import TrainingData
from chainrule.errors import ConfigError, InputError, ModelFileError, UsageError, VocabularyError
from chainrule.evaluation.perplexity import perplexity
from chainrule.lm import Context
from chainrule.model import Model, Origin
from chainrule.preparation import Prepared, prepare
from chainrule.progress import Progress, as_progress, silent
from chainrule.scratch import scratch_folder
from chainrule.text.corpus import Corpus
from chainrule.text.files import Sources
from chainrule.tokenizers.config import KINDS, TokenizerConfig
from chainrule.tokenizers.encode import encode
from chainrule.training.config import Training


def load(folder: str | Path, *, device: str = "auto") -> Model:
    """The model of a folder, every file of it verified; `auto` is the GPU for networks where there is one."""
    return artifact.load(folder, device)


def train(
    family: str,
    text: Sources | Corpus,
    *,
    valid: Sources | Corpus | None = None,
    tokenizer: str | Path | None = None,
    context: Context | None = None,
    seed: int | None = None,
    recipe: str | None = None,
    device: str = "auto",
    memory: str | int | None = None,
    progress: Progress | bool = silent,
    command: str = "",
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    tensorboard: bool = False,
    size: str | None = None,
    announce: Callable[[str], None] = lambda plan: None,
    **chosen: Any,
) -> Model:
    """Train one model; `chosen` are settings of the tokenizer (`min_count`) and of the family (`order`).

    By default words, each line from `<s>`, seed 0; a `recipe` may say otherwise, and what is given here wins.
    An n-gram model takes at most `memory` (`"2G"`, by default `"80%"` of the machine's) and works on disk where
    that is too little. With `out` a network keeps a checkpoint and its log there while it learns, and `resume` goes
    on from it; save the finished model to the same folder. An unfinished run or a finished model in `out` is
    refused unless `force` is True. `progress=True` prints a line of progress to stderr every 30 seconds.

    `size="auto"` sizes a network to text, machine and `max_seconds`; `announce` receives the plan before training.
    """
    progress = as_progress(progress)
    run, choice, config, given = _choose(family, recipe, tokenizer, {"context": context, "seed": seed}, chosen)
    _check(family, config, size, has_validation=valid is not None)
    place, limit = None if out is None else Path(out), _limit(family, memory)
    corpus, held_out = Corpus.of(text), None if valid is None else Corpus.of(valid)
    with _writing(place, command, force=force, resume=resume), _ids_file(memory) as ids_file:
        prepared = _prepare(corpus, choice, held_out, progress, ids_file)
        mark, words = prepared.fingerprint, command or f"chainrule.train({family!r}, …)"
        origin = Origin.now(text=corpus.name, fingerprint=mark, command=words, seed=run.seed, run=place)
        if place is not None and not resume:
            folder.check_replace(place, artifact.facts("model", origin), force=force)
        plan = ""
        if size is not None:
            config, plan = _sized(family, prepared, given, place if resume else None, run, device, announce)
        return train_prepared(
            family,
            config,
            prepared,
            origin,
            context=run.context,
            seed=run.seed,
            progress=progress,
            device=device,
            memory=limit,
            place=place,
            resume=resume,
            tensorboard=_beside(place, ".tensorboard") if tensorboard else None,
            plan=plan,
        )


def _writing(place: Path | None, command: str, *, force: bool, resume: bool) -> AbstractContextManager[None]:
    """Hold the folder of a run, where it has one."""
    return nullcontext() if place is None else folder.writing(place, command, force=force, resume=resume)


def _choose(
    family: str,
    recipe: str | None,
    tokenizer: str | Path | None,
    of_run: Mapping[str, Any],
    chosen: Mapping[str, Any],
) -> tuple[settings.Run, TokenizerConfig | Path, Any, dict[str, object]]:
    """The settings of the run, of the tokenizer and of the model: the recipe's, and over them what is given.

    Last those of the model that were chosen, without defaults.
    """
    config_kind = families.get(family).Config
    if family not in families.trainable():
        raise ConfigError(f"a {family} is made of models, not of text: use chainrule mix, or chainrule.mix")
    known = _known(recipe, family, tokenizer)
    kind = str(known.tokenizer.pop("kind", "word"))
    said = {name: value for name, value in of_run.items() if value is not None}
    run = settings.make(settings.Run, known.run | said, "run")
    wanted, own = split_settings({**known.tokenizer, **known.model, **chosen})
    families.check_settings(family, own)
    config = settings.make(config_kind, own, "model")
    return run, tokenizer_choice(tokenizer or kind, wanted), config, own


def _prepare(
    corpus: Corpus,
    tokenizer: TokenizerConfig | Path,
    valid: Corpus | None,
    progress: Progress,
    ids_file: Path | None,
) -> Prepared:
    """Prepare the texts; refuse a validation text without words."""
    prepared = prepare(corpus, tokenizer, valid, progress, ids_file)
    if prepared.valid is not None and not prepared.valid.words:
        raise InputError("the validation text holds no words; give one with words, or none")
    return prepared


def _check(family: str, config: object, size: str | None, *, has_validation: bool) -> None:
    """Refuse what cannot be trained before the text is read and the speed is measured."""
    if size not in (None, "auto"):
        raise ConfigError(f"size is '{size}'; choose auto, or leave it out")
    if size is not None and family not in sizing.LADDERS:
        raise ConfigError(f"--size auto chooses the size of a network, and '{family}' is none; leave it out")
    if isinstance(config, Training):
        config.check_validation(has_validation)


def _sized(
    family: str,
    prepared: Prepared,
    given: Mapping[str, object],
    resumed: Path | None,
    run: settings.Run,
    device: str,
    announce: Callable[[str], None],
) -> tuple[Any, str]:
    """The sized config and its plan, which is announced; a resumed run keeps the config of its checkpoint."""
    limit = settings.make(families.get(family).Config, given, "model").max_seconds
    fixed = {name: value for name, value in given.items() if name != "max_seconds"}
    if resumed is not None:
        fixed = {**_checkpoint_config(resumed), **fixed}
    sized = sizing.size(
        family, prepared, seconds=limit, device=device, context=run.context, seed=run.seed, settings=fixed
    )
    announce(sized.plan)
    return sized.config, sized.plan


def _checkpoint_config(place: Path) -> dict[str, Any]:
    """The settings of the run that wrote the checkpoint; none where it cannot be read, as the trainer says."""
    if not (place / folder.CHECKPOINT).exists():
        return {}
    try:
        config = folder.read_json(folder.read(place / folder.CHECKPOINT), "config.json").get("config")
    except ModelFileError:
        return {}
    return config if isinstance(config, dict) else {}


def _limit(family: str, memory: str | int | None) -> int | None:
    """Bytes a training may take; networks have no such limit."""
    if family == "ngram":
        return sizes.bytes_of(sizes.DEFAULT if memory is None else memory)
    if memory is not None:
        raise ConfigError(f"memory is for n-gram models; a {family} takes what its settings need")
    return None


@contextmanager
def _ids_file(memory: str | int | None) -> Iterator[Path | None]:
    """Where ids are kept that may be too many for a limit that was named; None: in memory."""
    if memory is None:
        yield None
        return
    with scratch_folder() as place:
        yield place / "ids"


def _known(recipe: str | None, family: str, tokenizer: str | Path | None) -> settings.Choices:
    """What a recipe chooses; nothing where there is none."""
    known = settings.Choices() if recipe is None else recipes.read(recipe, family).choices
    if tokenizer is not None and tokenizer not in KINDS:
        known.tokenizer.clear()  # of a finished tokenizer nothing can be chosen any more
    return known


def train_prepared(
    family: str,
    config: Any,
    prepared: Prepared,
    origin: Origin,
    *,
    context: Context = "line",
    seed: int = 0,
    progress: Progress = silent,
    max_seconds: float | None = None,
    device: str = "auto",
    memory: int | None = None,
    place: Path | None = None,
    resume: bool = False,
    tensorboard: Path | None = None,
    plan: str = "",
) -> Model:
    """Train one model on a text that is ready; its validation figures and the `plan` become its metrics."""
    data = TrainingData(
        train=prepared.train,
        valid=prepared.valid,
        vocabulary=prepared.tokenizer.vocabulary,
        names=prepared.tokenizer.names,
        context=context,
        seed=seed,
        progress=progress,
        max_seconds=max_seconds,
        device=device,
        memory=memory,
        place=place,
        resume=resume,
        tensorboard=tensorboard,
        identity=_identity(family, config, prepared, context, seed),
    )
    start = time.perf_counter()
    lm = families.get(family).train(data, config)
    seconds = time.perf_counter() - start
    model = Model(
        lm=lm,
        tokenizer=prepared.tokenizer,
        family=family,
        config=config,
        speller=prepared.speller,
        origin=origin,
        metrics={
            "train_tokens": prepared.train.tokens,
            "train_oov": prepared.train.oov,
            "train_seconds": round(seconds, 3),
            **data.summary,
            **({"plan": plan} if plan else {}),
        },
    )
    if prepared.valid is None or not prepared.valid.tokens:
        return model
    figures = model.evaluate_encoded(prepared.valid, progress)
    metrics = {"valid_perplexity": figures.perplexity, "valid_bits_per_byte": figures.bits_per_byte}
    finite = {name: value for name, value in metrics.items() if value < float("inf")}
    return dataclasses.replace(model, metrics=model.metrics | finite)


def _beside(place: Path | None, ending: str) -> Path:
    """A folder that stays when the finished model takes the place of its run."""
    if place is None:
        raise UsageError("events for TensorBoard are written beside the model: give out")
    return place.with_name(place.name + ending)


def _identity(family: str, config: Any, prepared: Prepared, context: Context, seed: int) -> dict[str, Any]:
    """What a run must share with the checkpoint it goes on from."""
    free = {"max_seconds", "checkpoint_seconds"}
    texts = (prepared.fingerprint, prepared.valid_fingerprint)
    return {
        "family": family,
        "config": {name: value for name, value in settings.to_json(config).items() if name not in free},
        "text": [None if text is None else text.sha256 for text in texts],
        "tokenizer": hashlib.sha256(prepared.tokenizer.to_json().encode()).hexdigest(),
        "context": context,
        "seed": seed,
    }


def mix(
    models: Sequence[Model | str | Path],
    *,
    held_out: Sources | Corpus,
    progress: Progress | bool = silent,
    command: str = "",
) -> Model:
    """Interpolate models, given or in folders, that share a tokenizer; the weights are the best for `held_out`."""
    progress = as_progress(progress)
    loaded = [model if isinstance(model, Model) else load(model) for model in models]
    if len(loaded) < 2:
        raise ConfigError(f"a mixture needs two models or more, not {len(loaded)}")
    first = next((m for m in loaded if not m.tokenizer.config.closed), loaded[0])  # open where any is
    for other in loaded:
        if other.tokenizer.to_json() != first.tokenizer.to_json():
            raise VocabularyError(
                f"{other.name or repr(other)} and {first.name or repr(first)} have different tokenizers; "
                "train one with the folder of the other as its tokenizer"
            )
    text = encode(Corpus.of(held_out), first.tokenizer, progress)
    if not text.tokens:
        raise InputError("the held-out text is empty; give one with at least one line")
    components = [mixture.Component(m.family, m.config, m.lm) for m in loaded]
    log_probs = mixture.component_log_probs(components, text, progress)  # (M, N)
    lm = mixture.fit_scored(components, log_probs, first.tokenizer.vocabulary)
    origin = Origin.now(
        text=first.origin.text,
        fingerprint=first.origin.fingerprint,
        command=command or "chainrule.mix(…)",
        seed=first.origin.seed,
    )
    made = Model(
        lm=lm,
        tokenizer=first.tokenizer,
        family="mixture",
        config=mixture.config_of(lm),
        speller=next((m.speller for m in loaded if m.speller is not None), None),
        origin=origin,
    )
    figures = made.evaluate_encoded(text)
    metrics = {"held_out_perplexity": figures.perplexity, "held_out_bits_per_byte": figures.bits_per_byte}
    finite: dict[str, Any] = {name: value for name, value in metrics.items() if value < float("inf")}
    perplexities = [perplexity(row) for row in log_probs]
    finite["held_out_component_perplexities"] = [p if p < float("inf") else None for p in perplexities]
    return dataclasses.replace(made, metrics=finite)


def split_settings(chosen: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Settings of the tokenizer, and those left for the family."""
    names = {field.name for field in dataclasses.fields(TokenizerConfig)} - {"kind"}
    wanted = {name: value for name, value in chosen.items() if name in names}
    return wanted, {name: value for name, value in chosen.items() if name not in names}


def tokenizer_choice(tokenizer: str | Path, wanted: Mapping[str, object]) -> TokenizerConfig | Path:
    """A kind with its settings, or the folder of one that exists."""
    if not isinstance(tokenizer, str | Path):
        raise ConfigError(f"tokenizer is {tokenizer!r}; give one of {', '.join(KINDS)}, or a folder")
    if tokenizer in KINDS:
        return settings.make(TokenizerConfig, {"kind": tokenizer, **wanted}, "tokenizer")
    folder = Path(tokenizer)
    if not str(tokenizer) or not folder.exists():
        raise ConfigError(f"tokenizer is '{tokenizer}'; choose one of {', '.join(KINDS)}, or a folder")
    if wanted:
        raise ConfigError(f"{folder} is a finished tokenizer; {', '.join(wanted)} cannot be set any more")
    return folder
