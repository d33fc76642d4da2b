"""Python API: train, load and mix language models."""

import dataclasses
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NoReturn, overload

from chainrule import families, mixture, recipes, sizing, system
from chainrule.config import RunConfig, build_config, merge_settings, to_json
from chainrule.data.encoded import EncodedText
from chainrule.data.training_data import RunOptions, TrainingData
from chainrule.distributed.ngram_training import NgramJob, WordCounts, train_ngram
from chainrule.distributed.options import EngineOptions, take_engine_options
from chainrule.distributed.start import start_engine
from chainrule.errors import ConfigError, InputError, ModelFileError, UsageError, VocabularyError
from chainrule.evaluation.perplexity import perplexity
from chainrule.model import Model, load_model
from chainrule.neural.config import ModelConfig
from chainrule.ngram import engine as engines
from chainrule.ngram import family as ngram
from chainrule.ngram.model import NgramModel
from chainrule.ngram.oov_speller import Speller
from chainrule.ngram.sharded import ShardedModel, split
from chainrule.prepared_corpus import (
    MemoryLimit,
    PreparedCorpus,
    fit_speller,
    prepare_corpus,
    rare_types,
    warn_of_long_tokens,
    warn_of_unknown,
)
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage import verified_dir
from chainrule.storage.provenance import CONFIG, Origin
from chainrule.storage.temp_dir import ScratchFolder, scratch_folder
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import Fingerprint
from chainrule.text.readers import Sources
from chainrule.tokenizers.config import KINDS, TokenizerConfig
from chainrule.tokenizers.encode import encode, encode_with_fingerprint

LARGEST_IN_MEMORY: Final = 1 << 28
"""Bytes of text up to which networks keep the token ids in memory instead of a mapped temporary file."""


@overload
def load(
    folder: str | Path,
    *,
    device: str = "auto",
    verify: bool = False,
    kind: Literal["language model"],
    shard_servers: Sequence[str] = (),
    shard_server_key: str | None = None,
) -> Model: ...
@overload
def load(
    folder: str | Path,
    *,
    device: str = "auto",
    verify: bool = False,
    kind: str | None = None,
    shard_servers: Sequence[str] = (),
    shard_server_key: str | None = None,
) -> Any: ...
def load(
    folder: str | Path,
    *,
    device: str = "auto",
    verify: bool = False,
    kind: str | None = None,
    shard_servers: Sequence[str] = (),
    shard_server_key: str | None = None,
) -> Any:
    """Load a language model, a task model or word vectors from a folder and verify its files.

    `device="auto"` uses a GPU for neural models if available. The tables of an n-gram model are verified block by
    block on first use, or completely with `verify`. `kind`, "language model" or a task such as "tag", raises
    ModelFileError for folders of any other kind. `shard_servers` are the addresses of the servers that have the
    shards of a sharded n-gram model, `http://HOST:PORT`, and `shard_server_key` is their API key.
    """
    opened = verified_dir.open_dir(Path(folder), verify=verify)
    if kind is None:
        task = verified_dir.read_json(opened, CONFIG).get("task")
        kind = task if isinstance(task, str) and task in families.TASKS else "language model"
    load_kind = load_model if kind == "language model" else families.get_task(kind).load
    model = load_kind(opened, device)
    opened.verify_rest()
    return _with_servers(model, shard_servers, shard_server_key) if shard_servers else model


def _with_servers(model: Any, urls: Sequence[str], key: str | None) -> Model:
    """Connect a sharded model to the servers of its shards."""
    from chainrule.ngram.remote_shards import with_servers

    if not isinstance(model, Model) or not isinstance(model.lm, ShardedModel):
        raise ConfigError("shard servers are for sharded n-gram models (chainrule convert --to shards); omit them")
    return dataclasses.replace(model, lm=with_servers(model.lm, urls, key))


def train(
    family: str,
    text: Sources | Corpus,
    *,
    valid: Sources | Corpus | None = None,
    tokenizer: str | Path | None = None,
    recipe: str | None = None,
    memory: str | int | None = None,
    size: str | None = None,
    options: RunOptions | None = None,
    settings: "Settings | None" = None,
    engine: EngineOptions | None = None,
    shards: int | None = None,
    **chosen: Any,
) -> Model:
    """Train one model.

    Args:
        family: `ngram`, `feedforward`, `rnn`, `lstm`, `gru`, `transformer`.
        text: Training text: a file, files, a corpus.
        valid: Validation text.
        tokenizer: Kind or folder; words by default.
        recipe: Name of a recipe; explicit arguments override its settings.
        memory: Memory limit of n-gram training, which sorts on disk beyond it; `"2G"`, `"80%"` by default.
        size: `"auto"` sizes a neural model to text, machine and `max_seconds`; `announce` receives the plan.
        options: Options of the run.
        settings: Settings of `resolve_settings`, in place of `tokenizer`, `recipe` and the settings in `chosen`.
        engine: Where an n-gram model is trained (docs/spark.md); or by name: `workers` (number of processes), `on`
            (`"processes"`, `"spark"` or a SparkSession), `master`, `work`, `partition` and `resume`.
        shards: Number of files of an n-gram model that is trained on an engine.
        chosen: Settings of the tokenizer (`min_count`) and of the family (`order`), and fields of `RunOptions` by
            name: `context` (`line` by default), `seed`, `device`, `progress` (True prints to stderr), `out` (folder
            of the checkpoint and the log of a neural model), `resume`, `force` (overwrite `out`), `tensorboard`.

    """
    engine, session = (engine, None) if engine is not None else take_engine_options(chosen)
    named = {"kind": tokenizer} | {name: chosen.pop(name, None) for name in ("context", "seed")}
    run = {} if options is None else {"context": options.context, "seed": options.seed}
    options = RunOptions.merge(options, chosen)
    if settings is None:
        arguments = run | chosen | {name: value for name, value in named.items() if value is not None}
        settings = resolve_settings(family, recipe, options=arguments)
    _check(family, settings.model, size, has_validation=valid is not None)
    _check_engine(family, engine, shards, memory)
    options = dataclasses.replace(options, **to_json(settings.run), memory_limit=_memory_limit(family, memory))
    corpus, held_out = Corpus.of(text), None if valid is None else Corpus.of(valid)
    if engine is not None:
        job = NgramJob(corpus=corpus, tokenizer=settings.tokenizer, config=settings.model, context=options.context)
        return _train_on_engine(job, held_out, options, EngineRun(engine, session, shards))
    with (
        _ranks(family, options.device),
        _writing(options),
        _limit(family, memory, corpus, settings, options) as limit,
    ):
        prepared = _prepare(family, corpus, settings.tokenizer, held_out, options.progress, limit)
        origin = _origin(family, corpus, prepared.fingerprint, options)
        if options.out is not None and not options.resume:
            verified_dir.check_replace(options.out, origin.manifest_facts("model"), force=options.force)
        config, plan = (settings.model, "") if size is None else _choose_size(family, prepared, settings, options)
        return train_prepared(family, config, prepared, origin, options, plan)


def _origin(family: str, corpus: Corpus, fingerprint: Fingerprint, options: RunOptions) -> Origin:
    """Return the provenance of a trained model."""
    return Origin.now(
        text=corpus.name,
        fingerprint=fingerprint,
        command=options.command or f"chainrule.train({family!r}, …)",
        seed=options.seed,
        run=options.out,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class EngineRun:
    """Where an n-gram model is trained, and the number of its shards."""

    options: EngineOptions
    session: Any = None  # a running Spark session
    shards: int | None = None


def _check_engine(family: str, engine: EngineOptions | None, shards: int | None, memory: str | int | None) -> None:
    """Raise for options that do not go together with an engine."""
    if engine is None:
        if shards is not None:
            raise UsageError("--shards is for training on an engine; add --workers N or --on spark")
        return
    if family != "ngram":
        raise UsageError(f"--workers and --on train n-gram models; leave them out for {family}")
    if memory is not None:
        raise UsageError("--memory limits training in one process; with --workers or --on, choose --partition")
    if shards is not None and shards < 1:
        raise UsageError(f"shards is {shards}; choose 1 or more")


def _train_on_engine(job: NgramJob, valid: Corpus | None, options: RunOptions, run: EngineRun) -> Model:
    """Train an n-gram model on an engine."""
    with _writing(options):
        return _train_job(job, valid, options, run)


def _train_job(job: NgramJob, valid: Corpus | None, options: RunOptions, run: EngineRun) -> Model:
    start = time.perf_counter()
    scratch = ScratchFolder()
    spellers: list[Future[Speller | None]] = []
    try:
        with (
            ThreadPoolExecutor(max_workers=1) as thread,
            start_engine(run.options, job.corpus, job.settings(), options.progress, session=run.session) as engine,
        ):
            folder = scratch.path if run.options.work is None else engine.work.path
            trained = train_ngram(
                engine, job, folder / ngram.FILE, lambda counts: spellers.append(thread.submit(_speller, counts))
            )
        ngram_engine = engines.open_file(trained.path)
    except BaseException:
        scratch.remove()
        raise
    weakref.finalize(ngram_engine, scratch.remove)
    seconds = time.perf_counter() - start
    tokenizer = trained.tokenizer
    warn_of_long_tokens(tokenizer.config, trained.tokens, trained.characters)
    placeholders = trained.unknown.get(tokenizer.config.unk, 0)
    oov = sum(trained.unknown.values())
    warn_of_unknown(tokenizer.config, "training", trained.tokens, oov - placeholders)
    config: Any = job.config
    lm: Any = NgramModel(ngram_engine, tokenizer.vocabulary, job.context, config.is_normalized)
    if run.shards is not None:
        lm = split(lm, config, run.shards)
        config = lm.config
    model = Model(
        lm=lm,
        tokenizer=tokenizer,
        family="ngram" if run.shards is None else "sharded-ngram",
        config=config,
        speller=spellers[0].result(),
        origin=_origin("ngram", job.corpus, trained.fingerprint, options),
        metrics={"train_tokens": trained.tokens, "train_oov": oov, "train_seconds": round(seconds, 3)},
    )
    if valid is None:
        return model
    held_out, _ = encode_with_fingerprint(valid, tokenizer, options.progress)
    if not held_out.words:
        raise InputError("the validation text contains no words; give a text with words, or omit --valid")
    return _with_validation(model, held_out, options.progress)


def _speller(counts: WordCounts) -> Speller | None:
    """Train the speller of a tokenizer that has unknown words."""
    if counts.tokenizer.unk is None or counts.tokenizer.config.closed:
        return None
    spellings = [word for word, count in counts.unknown.items() for _ in range(count)]
    return fit_speller(counts.tokenizer, spellings, lambda: rare_types(counts.known()))


def _writing(options: RunOptions) -> AbstractContextManager[None]:
    """Lock the output folder of a run; do nothing if there is none."""
    if options.out is None:
        return nullcontext()
    return verified_dir.lock_for_writing(options.out, options.command, force=options.force, resume=options.resume)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Validated settings of a language model and its training run."""

    run: RunConfig
    tokenizer: TokenizerConfig | Path  # settings of a new tokenizer, or the folder of a trained one
    model: Any  # config of the family
    explicit: dict[str, object]  # model settings that were given, without the defaults

    @property
    def tokenizer_kind(self) -> str:
        """Kind of a new tokenizer; empty for a trained one."""
        return "" if isinstance(self.tokenizer, Path) else self.tokenizer.kind

    @property
    def tokenizer_files(self) -> list[str | Path | None]:
        """Folder or vocabulary file that the tokenizer is read from."""
        return [self.tokenizer if isinstance(self.tokenizer, Path) else self.tokenizer.vocab]


def resolve_settings(
    family: str,
    recipe: str | None = None,
    file: Path | None = None,
    pairs: Sequence[str] = (),
    options: Mapping[str, object] = MappingProxyType({}),
) -> Settings:
    """Merge and validate the settings of a recipe, a TOML file, `key=value` pairs and options."""
    config_class = families.get(family).Config
    if family not in families.trainable():
        raise ConfigError(
            f"a {family} cannot be trained on text; combine trained models with chainrule mix (in Python: "
            "chainrule.mix)"
        )
    recipe_settings = None if recipe is None else recipes.read(recipe, family).choices
    merged = merge_settings(recipe_settings, file, pairs, options, tokenizer_config=TokenizerConfig)
    families.check_setting_names(family, merged.model)
    return Settings(
        run=build_config(RunConfig, merged.run, "run"),
        tokenizer=resolve_tokenizer(merged.tokenizer.pop("kind", "word"), merged.tokenizer),
        model=build_config(config_class, merged.model, "model", family),
        explicit=merged.model,
    )


def _prepare(
    family: str,
    corpus: Corpus,
    tokenizer: TokenizerConfig | Path,
    valid: Corpus | None,
    progress: Progress,
    limit: MemoryLimit | None,
) -> PreparedCorpus:
    """Prepare the texts; raise if the validation text has no words."""
    is_network = family != "ngram"
    prepared = prepare_corpus(corpus, tokenizer, valid, progress, limit, maps_shards=is_network)
    if prepared.valid is not None and not prepared.valid.words:
        raise InputError("the validation text contains no words; give a text with words, or omit --valid")
    return prepared


def _check(family: str, config: object, size: str | None, *, has_validation: bool) -> None:
    """Raise for invalid settings before the text is read and the training speed is measured."""
    if size not in (None, "auto"):
        raise ConfigError(f"size is '{size}'; choose auto, or leave it out")
    if size is not None and family not in sizing.LADDERS:
        raise ConfigError(f"--size auto chooses the size of a network, but '{family}' is not one; leave it out")
    if size is not None and system.rank_and_size()[1] > 1:
        raise ConfigError("--size auto measures a single process; give the sizes (--hidden, --layers) instead")
    if isinstance(config, ModelConfig):
        config.training.check_validation(has_validation)


def _choose_size(family: str, prepared: PreparedCorpus, settings: Settings, options: RunOptions) -> tuple[Any, str]:
    """Choose the network size and announce the plan; a resumed run keeps the config of its checkpoint."""
    fixed = {name: value for name, value in settings.explicit.items() if name != "max_seconds"}
    if options.resume and options.out is not None:
        fixed = {**_checkpoint_config(options.out), **fixed}
    sized = sizing.choose_size(
        family, prepared, seconds=settings.model.training.max_seconds, options=options, settings=fixed
    )
    options.announce(sized.plan)
    return sized.config, sized.plan


def _checkpoint_config(run_dir: Path) -> dict[str, Any]:
    """Read the settings stored in a checkpoint; empty if unreadable (the trainer raises the error)."""
    if not (run_dir / verified_dir.CHECKPOINT).exists():
        return {}
    try:
        config = verified_dir.read_json(verified_dir.open_dir(run_dir / verified_dir.CHECKPOINT), CONFIG).get(
            "config"
        )
    except ModelFileError:
        return {}
    return config if isinstance(config, dict) else {}


def _memory_limit(family: str, memory: str | int | None) -> int | None:
    """Return the memory limit of n-gram training in bytes; None for neural models."""
    if family == "ngram":
        return system.parse_size(system.DEFAULT if memory is None else memory)
    if memory is not None:
        raise ConfigError(f"memory applies to n-gram models only; omit it for {family}")
    return None


def _ranks(family: str, device: str) -> AbstractContextManager[Any]:
    """Join the processes that torchrun started, if any; in ranks other than 0, train and exit."""
    rank, size = system.rank_and_size()
    if not size:
        return nullcontext()
    if family == "ngram":
        raise UsageError("torchrun and --processes are for networks; for an ngram model give --workers")
    if rank:
        follow(device)
    from chainrule.training import ranks

    return ranks.process_group(device)


def follow(device: str = "auto") -> NoReturn:
    """Train as one of several processes, as rank 0 says, and exit; rank 0 prepares, validates and writes."""
    from chainrule.neural.family import data_from_json
    from chainrule.training import ranks

    with ranks.process_group(device) as team:
        job = team.from_first(dict)
        family = families.get(job["family"])
        family.train(data_from_json(job), build_config(family.Config, job["config"], "model", is_saved=True))
    raise SystemExit(0)


@contextmanager
def _limit(
    family: str, memory: str | int | None, corpus: Corpus, settings: Settings, options: RunOptions
) -> Iterator[MemoryLimit | None]:
    """Yield a memory limit and a temporary folder, else None (all in memory).

    An n-gram model has a limit if one was given. A network keeps the token ids in a file if the text is large or
    several processes read them; no text is too large for it.
    """
    limit, config = options.memory_limit, settings.model
    if family != "ngram":
        is_small = (corpus.size_hint() or 0) <= LARGEST_IN_MEMORY and not system.rank_and_size()[1]
        with nullcontext() if is_small else scratch_folder() as scratch:
            yield (
                None
                if scratch is None
                else MemoryLimit(
                    limit=system.parse_size(system.DEFAULT),
                    folder=scratch,
                    minimum=lambda tokens, words, has_words: 0,
                )
            )
        return
    if memory is None or limit is None:
        yield None
        return
    engines.return_large_blocks()
    with scratch_folder() as scratch:
        yield MemoryLimit(
            limit=limit,
            folder=scratch,
            minimum=lambda tokens, words, has_words: ngram.minimum_memory(
                config, tokens, words, limit, has_words=has_words
            ),
            temporary=lambda tokens, words: ngram.temporary_bytes(config, tokens, words, limit),
            announce=options.announce,
        )


def train_prepared(
    family: str,
    config: Any,
    prepared: PreparedCorpus,
    origin: Origin,
    options: RunOptions | None = None,
    plan: str = "",
) -> Model:
    """Train one model on a prepared corpus; validation results and the sizing `plan` become its metrics."""
    options = RunOptions() if options is None else options
    texts = (prepared.fingerprint, prepared.valid_fingerprint)
    data = TrainingData(
        train=prepared.train,
        valid=prepared.valid,
        vocabulary=prepared.tokenizer.vocabulary,
        names=prepared.tokenizer.stored_names,
        options=options.with_identity(
            {"family": family},
            config,
            [None if text is None else text.sha256 for text in texts],
            prepared.tokenizer.sha256(),
            context=options.context,
            seed=options.seed,
        ),
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
    return _with_validation(model, prepared.valid, options.progress)


def _with_validation(model: Model, valid: EncodedText, progress: Progress) -> Model:
    """Evaluate a model on a validation text and add the results to its metrics."""
    figures = model.evaluate_encoded(valid, progress)
    metrics = {"valid_perplexity": figures.perplexity, "valid_bits_per_byte": figures.bits_per_byte}
    finite = {name: value for name, value in metrics.items() if value < float("inf")}
    return dataclasses.replace(model, metrics=model.metrics | finite)


def mix(
    models: Sequence[Model | str | Path],
    *,
    held_out: Sources | Corpus,
    progress: Progress | bool = silent,
    command: str = "",
) -> Model:
    """Interpolate models (or model folders) that share a tokenizer, with weights fitted to `held_out` by EM."""
    progress = as_progress(progress)
    loaded = [model if isinstance(model, Model) else load(model, kind="language model") for model in models]
    if len(loaded) < 2:
        raise ConfigError(f"a mixture needs two models or more, not {len(loaded)}")
    first = next((m for m in loaded if not m.tokenizer.config.closed), loaded[0])  # prefer an open vocabulary
    for other in loaded:
        if other.tokenizer.sha256() != first.tokenizer.sha256():
            raise VocabularyError(
                f"{other.name or repr(other)} and {first.name or repr(first)} have different tokenizers; "
                "train one with the folder of the other as its tokenizer"
            )
    text = encode(Corpus.of(held_out), first.tokenizer, progress)
    if not text.tokens:
        raise InputError("the held-out text is empty; give one with at least one line")
    components = [mixture.Component(m.family, m.config, m.lm) for m in loaded]
    log_probs = mixture.component_log_probs(components, text, progress)  # (M, N)
    lm = mixture.fit_to_log_probs(components, log_probs, first.tokenizer.vocabulary)
    origin = Origin.now(
        text=first.origin.text,
        fingerprint=first.origin.fingerprint,
        command=command or "chainrule.mix(…)",
        seed=first.origin.seed,
    )
    mixed = Model(
        lm=lm,
        tokenizer=first.tokenizer,
        family="mixture",
        config=mixture.mixture_config(lm),
        speller=next((m.speller for m in loaded if m.speller is not None), None),
        origin=origin,
    )
    figures = mixed.evaluate_encoded(text)
    metrics = {"held_out_perplexity": figures.perplexity, "held_out_bits_per_byte": figures.bits_per_byte}
    finite: dict[str, Any] = {name: value for name, value in metrics.items() if value < float("inf")}
    perplexities = [perplexity(row) for row in log_probs]
    finite["held_out_component_perplexities"] = [p if p < float("inf") else None for p in perplexities]
    return dataclasses.replace(mixed, metrics=finite)


def split_settings(chosen: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Split settings into those of the tokenizer and those of the family."""
    names = {field.name for field in dataclasses.fields(TokenizerConfig)} - {"kind"}
    tokenizer_settings = {name: value for name, value in chosen.items() if name in names}
    return tokenizer_settings, {name: value for name, value in chosen.items() if name not in names}


def resolve_tokenizer(tokenizer: object, tokenizer_settings: Mapping[str, object]) -> TokenizerConfig | Path:
    """Return the config of a tokenizer kind, or the path of a trained tokenizer."""
    if not isinstance(tokenizer, str | Path):
        raise ConfigError(f"tokenizer is {tokenizer!r}; give one of {', '.join(KINDS)}, or a folder")
    if tokenizer in KINDS:
        return build_config(TokenizerConfig, {"kind": tokenizer, **tokenizer_settings}, "tokenizer")
    folder = Path(tokenizer)
    if not str(tokenizer) or not folder.exists():
        raise ConfigError(f"tokenizer is '{tokenizer}'; choose one of {', '.join(KINDS)}, or a folder")
    if tokenizer_settings:
        names = ", ".join(tokenizer_settings)
        raise ConfigError(f"{folder} is a finished tokenizer; {names} cannot be set any more")
    return folder
