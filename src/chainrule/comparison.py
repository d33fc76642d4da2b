"""The main job: every family on the same split of the same text, on one scale.

Lives here: what is trained, measured and kept. Not here: the table and the page (report/, cli/), any family's name.
"""

import dataclasses
import shutil
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from chainrule import families, folder, manifest
from chainrule.api import tokenizer_choice, train_prepared
from chainrule.data.encoded import Encoded
from chainrule.errors import ChainruleError, ChainruleWarning, ConfigError, InputError, MissingExtra, UsageError
from chainrule.evaluation.perplexity import LN2, Evaluation
from chainrule.inspection.flow import GradientFlow
from chainrule.lm import Context
from chainrule.microscope import flow
from chainrule.microscope.sample import take
from chainrule.model import OVERLAP_WORTH_A_WORD, Model, Origin
from chainrule.preparation import Prepared, prepare
from chainrule.progress import Progress, silent
from chainrule.report import files
from chainrule.report.results import Curve, Results, Row, Sentence, SplitInfo, Surprisal, contenders, ranked
from chainrule.text.corpus import Corpus
from chainrule.text.files import Sources
from chainrule.text.fingerprint import fingerprint
from chainrule.text.parts import Parts, divide, thin
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer
from chainrule.versions import versions

PARTS = 100  # steps of the progress bar for each piece of work
CURVE_PARTS = (16, 8, 4, 2, 1)
CURVE_SECONDS = 20.0
"""A model that takes longer to train gets no learning curve."""
MIN_COUNT = 2
"""Words seen once are unknown words, unless said otherwise: every family meets some while it learns."""
FLOW_TOKENS = 2000  # of the test text that gradients are followed in
FLOW_LAGS = 50
FLOW_POSITIONS = 64
SENTENCES = 4
SENTENCE_LENGTHS = range(8, 22)
SAMPLE_TOKENS = 30
SAMPLES = 8
"""The first that is more than an empty line is shown."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to compare."""

    families: tuple[str, ...] = ()  # all that learn from text, where none are named
    tokenizer: str = "word"
    tokenizer_settings: dict[str, object] = dataclasses.field(default_factory=dict)
    context: Context = "line"
    seed: int = 0
    max_seconds: float | None = None  # for each family
    device: str = "auto"
    out: Path | None = None  # where report, results and models go
    force: bool = False  # replace another comparison in `out`
    command: str = "chainrule.compare(…)"

    def __post_init__(self) -> None:
        for name in self.families:
            families.get(name)
            if name not in families.trainable():
                raise ConfigError(
                    f"'{name}' does not learn from text; choose from {', '.join(families.trainable())}"
                )
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ConfigError(f"max-seconds is {self.max_seconds:g}; choose a number above 0")


def compare(
    text: Sources | Corpus | None = None,
    *,
    valid: Sources | Corpus | None = None,
    test: Sources | Corpus | None = None,
    progress: Progress = silent,
    **chosen: Any,
) -> Results:
    """Train every family on one text, the embedded one where none is given; `chosen` as in `Settings`.

    Where `out` is given, report, results and models are written there; another comparison there is refused unless
    `force` is True.
    """
    settings = _settings(chosen)
    if settings.out is None:
        return _compare(text, valid, test, progress, settings, None)
    output = Output(settings.out, settings.command, settings.force)
    output.check()
    with folder.hold(settings.out):
        output.check()
        return _compare(text, valid, test, progress, settings, output)


def _compare(
    text: Sources | Corpus | None,
    valid: Sources | Corpus | None,
    test: Sources | Corpus | None,
    progress: Progress,
    settings: Settings,
    output: "Output | None",
) -> Results:
    start = time.perf_counter()
    texts = divide(text, valid, test, settings.seed)
    corpus = Corpus.from_lines(texts.train)
    choice = tokenizer_choice(settings.tokenizer, settings.tokenizer_settings)
    prepared = prepare(corpus, choice, Corpus.from_lines(texts.valid), progress)
    if output is not None:
        output.check(texts.sha256, prepared.fingerprint.sha256)
    encoded = encode(Corpus.from_lines(texts.test), prepared.tokenizer, progress)
    if not encoded.tokens:
        raise InputError("the test text is empty; give one with at least one line")
    overlap = prepared.fingerprint.overlap(fingerprint(Corpus.from_lines(texts.test)))
    if overlap >= OVERLAP_WORTH_A_WORD:
        warnings.warn(
            f"about {overlap:.0%} of the lines of the test text are in the training text, too: "
            "the figures say how well these are remembered",
            ChainruleWarning,
            stacklevel=2,
        )
    arena = Arena(texts, settings, prepared, encoded, progress, output)
    rows = tuple(arena.rows())
    if not rows:
        raise InputError("no model could be trained on this text; see the warnings")
    flows = tuple(arena.flows(rows))
    results = Results(
        text=texts.name,
        text_sha256=texts.sha256,
        tokenizer=_describe(prepared.tokenizer),
        split=_split_info(texts, prepared, encoded),
        rows=ranked(rows),
        curves=tuple(arena.curves(rows)),
        sentences=tuple(arena.sentences(rows)),
        command=settings.command,
        versions=versions(),
        seconds=time.perf_counter() - start,
        flows=flows,
    )
    if output is not None:
        output.finish(results)
    return results


class Arena:
    """One comparison under way: the text, the rules, and the models worth keeping."""

    def __init__(
        self,
        texts: Parts,
        settings: Settings,
        prepared: Prepared,
        test: Encoded,
        progress: Progress,
        output: "Output | None" = None,
    ) -> None:
        self.texts, self.settings, self.prepared, self.test = texts, settings, prepared, test
        self.progress, self.output = progress, output
        self.models: dict[str, Model] = {}  # the best so far of each family and order

    def rows(self) -> Iterator[Row]:
        """Train and measure every candidate of every family."""
        trained = self.settings.families or tuple(families.trainable())
        wanted = [(name, config) for name in trained for config in _candidates(name)]
        left = dict.fromkeys(trained, self.settings.max_seconds)
        best: dict[tuple[object, ...], Row] = {}
        for done, (family, config) in enumerate(wanted):
            name = row_name(family, config)
            inner = Inner(self.progress, f"comparing: {name}", done, len(wanted))
            inner("", 0, None)
            budget = left[family]
            rivals = sum(name == family for name, _ in wanted[done:])
            if budget is not None and budget <= 0:
                warnings.warn(f"{name} is left out: {family}'s time is up", ChainruleWarning, stacklevel=2)
                continue
            start = time.perf_counter()
            try:
                limit = None if budget is None else budget / rivals
                model = self._train(family, config, self.prepared, limit, inner)
                row = self._row(name, model, model.evaluate_encoded(self.test))
            except UsageError:
                raise
            except ChainruleError as error:  # one that fails does not take the others along
                warnings.warn(f"{name} is left out: {error}", ChainruleWarning, stacklevel=2)
                continue
            finally:
                if budget is not None:
                    left[family] = budget - (time.perf_counter() - start)
            if self.output is not None:
                self.output.save(model, name)  # a disk that is full ends the comparison
            key = (family, row.facets.get("order"))
            if row.is_ranked and (key not in best or row.bits_per_byte < best[key].bits_per_byte):
                if key in best:
                    self.models.pop(best[key].name)
                best[key], self.models[name] = row, model
            yield row
        self.progress("comparing", len(wanted), len(wanted))

    def curves(self, rows: Sequence[Row]) -> Iterator[Curve]:
        """Quality by the amount of training text, for the models kept."""
        kept = [row for row in contenders(rows) if row.name in self.models and row.train_seconds <= CURVE_SECONDS]
        points: dict[str, list[tuple[int, float]]] = {row.name: [] for row in kept}
        for done, part in enumerate(CURVE_PARTS):
            self.progress("learning curves", done, len(CURVE_PARTS))
            lines = thin(self.texts.train, part)
            if not any(line.strip() for line in lines):
                continue
            prepared, test = self._prepare(lines) if part > 1 else (self.prepared, self.test)
            for row in kept:
                old = self.models[row.name]
                limit = None if self.settings.max_seconds is None else row.train_seconds
                with suppress(ChainruleError):  # a part too small for a model is a point less
                    inner = Inner(self.progress, f"learning curves: {row.name}", done, len(CURVE_PARTS))
                    model = old if part == 1 else self._train(old.family, old.config, prepared, limit, inner)
                    points[row.name].append((prepared.train.tokens, model.evaluate_encoded(test).bits_per_byte))
        self.progress("learning curves", len(CURVE_PARTS), len(CURVE_PARTS))
        for name, found in ((name, found) for name, found in points.items() if found):
            tokens, bits = zip(*found, strict=True)
            yield Curve(name=name, tokens=tokens, bits_per_byte=bits)

    def sentences(self, rows: Sequence[Row]) -> Iterator[Sentence]:
        """A few lines of the test text as the models kept read them."""
        kept = [row.name for row in contenders(rows) if row.name in self.models]
        lines = [line for line in self.texts.test if len(line.split()) in SENTENCE_LENGTHS]
        lines = lines or [line for line in self.texts.test if line.strip()]
        for line in lines[:: max(1, len(lines) // SENTENCES)][:SENTENCES]:
            scores = [(name, self.models[name].score(line)) for name in kept]
            views = (
                Surprisal(name=name, tokens=score.tokens, bits=tuple(-p / LN2 for p in score.log_probs))
                for name, score in scores
            )
            yield Sentence(text=line, by_model=tuple(views))

    def flows(self, rows: Sequence[Row]) -> Iterator[GradientFlow]:
        """How far back the error of one prediction reaches, in the networks kept."""
        corpus = Corpus.from_lines(self.texts.test)
        for row in contenders(rows):
            if row.name in self.models and hasattr(self.models[row.name].lm, "network"):
                sample = take(self.models[row.name], corpus, name=row.name, tokens=FLOW_TOKENS)
                inner = Inner(self.progress, f"gradient flow: {row.name}", 0, 1)
                found = flow.flows(sample, lags=FLOW_LAGS, positions=FLOW_POSITIONS, progress=inner)
                yield from flow.compared(found)

    def _prepare(self, lines: list[str]) -> tuple[Prepared, Encoded]:
        """A part of the training text with a tokenizer of its own, unless the tokenizer was given."""
        choice = tokenizer_choice(self.settings.tokenizer, self.settings.tokenizer_settings)
        prepared = prepare(Corpus.from_lines(lines), choice, Corpus.from_lines(self.texts.valid))
        return prepared, encode(Corpus.from_lines(self.texts.test), prepared.tokenizer)

    def _train(
        self, family: str, config: Any, prepared: Prepared, max_seconds: float | None, progress: Progress
    ) -> Model:
        origin = Origin.now(
            text=self.texts.name,
            fingerprint=prepared.fingerprint,
            command=self.settings.command,
            seed=self.settings.seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ChainruleWarning)  # discount fall-backs of the many small models
            return train_prepared(
                family,
                config,
                prepared,
                origin,
                context=self.settings.context,
                seed=self.settings.seed,
                max_seconds=max_seconds,
                device=self.settings.device,
                progress=progress,
            )

    def _row(self, name: str, model: Model, figures: Evaluation) -> Row:
        family = families.get(model.family)
        note = "" if model.lm.is_normalized else "a score, not a probability"
        if figures.infinite:
            note = f"infinite: no probability for {figures.cause}"
        seconds = model.metrics["train_seconds"]
        samples = model.generate_several("", SAMPLES, seed=self.settings.seed, max_tokens=SAMPLE_TOKENS)
        return Row(
            name=name,
            family=model.family,
            parameters=model.parameters,
            size_bytes=sum(map(len, family.files(model.lm).values())),
            train_seconds=seconds,
            train_tokens_per_second=_tokens_processed(model) / max(seconds, 1e-3),
            perplexity=figures.perplexity,
            perplexity_per_word=figures.perplexity_per_word,
            bits_per_byte=figures.bits_per_byte,
            sample=next((sample.text for sample in samples if sample.text), ""),
            is_ranked=model.lm.is_normalized and not figures.infinite,
            note=note,
            facets=family.facets(model.config),
        )


class Output:
    """The folder of a comparison: `report.html` and `results.json`, which describe the models under `models/`.

    The report of an earlier comparison is removed before its first model is replaced, so that a run that is
    interrupted leaves models without a report, never a report of other models.
    """

    def __init__(self, path: Path, command: str, force: bool) -> None:
        self.path, self.command, self.force = path, command, force
        self.models = path / "models"
        self._is_begun = False

    def check(self, text_sha256: str | None = None, training_sha256: str | None = None) -> None:
        """Refuse a model, another comparison, or the same one of another text, as far as the text is known."""
        if self.path.exists() and (not self.path.is_dir() or (self.path / manifest.NAME).exists()):
            raise UsageError(f"{self.path} is a file or a model; choose another --out")
        if (self.path / folder.CHECKPOINT).exists():
            raise UsageError(f"{self.path} holds an unfinished run; choose another --out")
        if self.force:
            return
        for run in sorted(self.models.glob(f"*/{folder.CHECKPOINT}")):
            folder.check_replace(run.parent, {})
        earlier = files.read_origin(self.path)
        recorded = [facts for facts in map(folder.recorded, self._saved()) if facts is not None]
        commands = [folder.command_words(facts.get("command")) for facts in (*recorded, *earlier)]
        command = folder.command_words(self.command)
        if commands and (command is None or any(words != command for words in commands)):
            raise UsageError(f"{self.path} holds another comparison; {folder.REPLACE}")
        known = [(facts["text_sha256"], text_sha256) for facts in earlier]
        known += [(folder.text_sha256(facts), training_sha256) for facts in recorded]
        if any(now is not None and then != now for then, now in known):
            raise UsageError(f"{self.path} holds a comparison of another text; {folder.REPLACE}")

    def save(self, model: Model, name: str) -> None:
        """Save one model; before the first, remove the report and the models of another comparison."""
        if not self._is_begun:
            self._begin(model)
            self._is_begun = True
        model.save(self.models / name, force=True)

    def finish(self, results: Results) -> None:
        """Write the report; remove the models it does not describe."""
        names = {row.name for row in results.rows}
        self._remove([model for model in self._saved() if model.name not in names])
        files.write(results, self.path)

    def _begin(self, model: Model) -> None:
        files.remove(self.path)
        text = None if model.origin.fingerprint is None else model.origin.fingerprint.sha256
        wanted = (folder.command_words(self.command), text)
        others = []
        for path in self._saved():
            facts = folder.recorded(path) or {}
            if (folder.command_words(facts.get("command")), folder.text_sha256(facts)) != wanted:
                others.append(path)
        self._remove(others)

    def _saved(self) -> list[Path]:
        """The model folders under `models/`; what has no intact manifest is not ours to remove."""
        paths = sorted(path.parent for path in self.models.glob(f"*/{manifest.NAME}"))
        return [path for path in paths if folder.recorded(path) is not None]

    def _remove(self, models: Sequence[Path]) -> None:
        for model in models:
            folder.check_target(model)  # which refuses files of others in it
            try:
                shutil.rmtree(model)
            except OSError as error:
                raise ChainruleError(f"cannot remove {model}: {error.strerror}; remove it by hand") from error


@dataclasses.dataclass(frozen=True, slots=True)
class Inner:
    """One of `total` pieces of work after `before` others; what it tells is told as a part of the whole."""

    outer: Progress
    name: str
    before: int
    total: int

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Move the whole's bar by this piece's part."""
        part = min(1.0, done / total) if total else 0.0
        words = f"{self.name}: {what}" if what else self.name
        self.outer(words, round(PARTS * (self.before + part)), PARTS * self.total)


def _settings(chosen: dict[str, Any]) -> Settings:
    """The settings, with words seen once cut off where nothing else was said of the vocabulary."""
    if chosen.get("out") is not None:
        chosen = chosen | {"out": Path(chosen["out"])}
    settings = Settings(**chosen)
    cuts = {"min_count", "vocab_size", "top_percent", "closed"}
    if settings.tokenizer not in ("word", "whitespace", "char") or cuts & set(settings.tokenizer_settings):
        return settings
    return dataclasses.replace(settings, tokenizer_settings={**settings.tokenizer_settings, "min_count": MIN_COUNT})


def _candidates(family: str) -> list[Any]:
    """What to train of a family; nothing, and a word about it, where something it needs is not installed."""
    try:
        return families.get(family).candidates()
    except MissingExtra as error:
        warnings.warn(f"{family} is left out: {error}", ChainruleWarning, stacklevel=2)
        return []


def _tokens_processed(model: Model) -> int:
    """Tokens that were learnt from: a network reads its text once an epoch, an n-gram once."""
    return int(model.metrics.get("train_tokens_processed", model.metrics["train_tokens"]))


def row_name(family: str, config: Any) -> str:
    """The family and what tells its candidates apart: `ngram-5-modified-kneser-ney`."""
    return "-".join([family, *map(str, families.get(family).facets(config).values())])


def _describe(tokenizer: Tokenizer) -> str:
    words = f"{tokenizer.config.kind}, {tokenizer.vocab_size} ids"
    return f"{words} (one way to cut of many: bits are upper bounds)" if tokenizer.config.is_ambiguous else words


def _split_info(texts: Parts, prepared: Prepared, test: Encoded) -> SplitInfo:
    return SplitInfo(
        train_lines=len(texts.train),
        valid_lines=len(texts.valid),
        test_lines=len(texts.test),
        train_tokens=prepared.train.tokens,
        test_tokens=test.tokens,
        test_bytes=test.bytes,
        seed=texts.seed,
    )
