"""Train every family on the same split of the same text and evaluate all on one scale."""

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from chainrule import families, folder
from chainrule.api import tokenizer_choice, train_prepared
from chainrule.comparison.output import Output
from chainrule.comparison.settings import Settings, make_settings
from chainrule.comparison.stages import Inner
from chainrule.data.encoded import Encoded
from chainrule.errors import ChainruleError, ChainruleWarning, InputError, MissingExtra, UsageError
from chainrule.evaluation.perplexity import LN2, Evaluation
from chainrule.inspection.flow import GradientFlow
from chainrule.microscope import flow
from chainrule.microscope.sample import take
from chainrule.model import OVERLAP_WORTH_A_WORD, Model, Origin
from chainrule.preparation import Prepared, prepare
from chainrule.progress import Progress, silent
from chainrule.report.results import Curve, Results, Row, Sentence, SplitInfo, Surprisal, contenders, ranked
from chainrule.text.corpus import Corpus
from chainrule.text.files import Sources
from chainrule.text.fingerprint import fingerprint
from chainrule.text.parts import Parts, divide, thin
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer
from chainrule.versions import versions

CURVE_PARTS = (16, 8, 4, 2, 1)
CURVE_SECONDS = 20.0
"""A model that takes longer to train gets no learning curve."""
FLOW_TOKENS = 2000  # of the test text that gradients are followed in
FLOW_LAGS = 50
FLOW_POSITIONS = 64
SENTENCES = 4
SENTENCE_LENGTHS = range(8, 22)
SAMPLE_TOKENS = 30
SAMPLES = 8
"""The first that is more than an empty line is shown."""


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
    settings = make_settings(chosen)
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
    output: Output | None,
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
        output: Output | None = None,
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
