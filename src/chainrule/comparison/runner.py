"""Train every family on the same split of the same text and evaluate all on one scale."""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from chainrule import families
from chainrule.comparison import measurement, mixtures, page
from chainrule.comparison.journal import Journal
from chainrule.comparison.measurement import Measured
from chainrule.comparison.model_store import Output, Store, best_by, kept_names
from chainrule.comparison.plan import (
    MAX_ORDER,
    Candidate,
    describe_plan,
    is_installed,
    load_libraries,
    ngram_candidates,
    plan_networks,
)
from chainrule.comparison.results import (
    Curve,
    Results,
    Row,
    Sentence,
    SplitInfo,
    Surprisal,
    add_differences,
    extrapolate,
    is_unigram,
    rank_rows,
    rankable_rows,
)
from chainrule.comparison.settings import Settings, make_settings
from chainrule.comparison.tokenized_text import Tokenized, collapse_blanks, tokenize, tokenize_all
from chainrule.errors import ChainruleError, ChainruleWarning, InputError, UsageError
from chainrule.evaluation.perplexity import LN2
from chainrule.inspection import gradient_flow
from chainrule.inspection.text_excerpt import take_sample
from chainrule.lm import Floats
from chainrule.model import OVERLAP_WARNING_THRESHOLD
from chainrule.neural.probes.measurements import GradientFlow
from chainrule.plots.formatting import format_bits, format_duration
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage import verified_dir
from chainrule.system import versions
from chainrule.text.corpus import Corpus
from chainrule.text.fingerprint import fingerprint
from chainrule.text.readers import Sources
from chainrule.text.splits import CorpusSplit, split_text, subsample_blocks
from chainrule.tokenizers.tokenizer import Tokenizer

Announce = Callable[[str], None]

NGRAM_SHARE: Final = 0.4
"""Fraction of the budget for n-grams if networks are trained, too."""
NETWORK_SHARE: Final = 0.7
"""Fraction of the remaining time for networks; the rest is for evaluation, mixtures and learning curves."""
CURVE_PARTS: Final = (16, 8, 4, 2)  # a learning curve trains on 1/16 … 1/2 of the text
CURVE_SECONDS: Final = 20.0
"""Without a total budget, models that train longer than this get no learning curve."""
FLOW_TOKENS: Final = 2000  # test tokens for the gradient-flow measurement
FLOW_LAGS: Final = 50
FLOW_POSITIONS: Final = 64
SENTENCES: Final = 4
SENTENCE_LENGTHS: Final = range(8, 22)
COLLAPSED: Final = "runs of blanks are read as one by every tokenizer, as the word tokenizer does"


@dataclass(frozen=True, slots=True)
class Clock:
    """Time budget of a comparison."""

    total: float  # expected total in seconds
    start: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self.total - self.elapsed)


def compare(
    text: Sources | Corpus | None = None,
    *,
    valid: Sources | Corpus | None = None,
    test: Sources | Corpus | None = None,
    progress: Progress | bool = silent,
    announce: Announce = lambda line: None,
    **chosen: Any,
) -> Results:
    """Train and compare every family on one text, by default the embedded one; `chosen` are fields of `Settings`.

    If `out` is given, report, results and models are written there; replacing another comparison requires `force`.
    `announce` receives the plan and each finished row, one line at a time. `progress=True` prints progress to
    stderr every 30 seconds.
    """
    settings = make_settings(chosen)
    progress = as_progress(progress)
    if settings.out is None:
        return _compare(text, valid, test, progress, announce, settings, None)
    output = Output(settings.out, settings.command, settings.force, settings.resume)
    output.check()
    with verified_dir.lock(settings.out):
        output.check()
        return _compare(text, valid, test, progress, announce, settings, output)


def _compare(
    text: Sources | Corpus | None,
    valid: Sources | Corpus | None,
    test: Sources | Corpus | None,
    progress: Progress,
    announce: Announce,
    settings: Settings,
    output: Output | None,
) -> Results:
    clock = _clock(settings)
    parts = split_text(text, valid, test, settings.seed)
    texts = collapse_blanks(parts, settings)
    tokenized = tokenize_all(texts, settings, progress)
    if output is not None:
        output.check(texts.sha256, tokenized[0].prepared.fingerprint.sha256)
    _warn_overlap(tokenized[0], texts)
    if texts.seed is not None:
        _warn_short_training_text(tokenized[0])
    journal = Journal(settings.out, _identity(texts, settings), settings.resume)
    comparison = Comparison(texts, settings, tokenized, progress, announce, output, journal, clock)
    choices = [tokenized_text.choice for tokenized_text in tokenized if tokenized_text.choice]
    for choice in choices:
        announce(choice)
    results = comparison.results([*choices, *([COLLAPSED] if texts is not parts else [])])
    if output is not None:
        page.write(results, output.path)
        journal.remove()  # the comparison is complete; only cleanup follows
        output.remove_others(kept_names(results.rows, settings.keep))
    return results


class Comparison:
    """State of a running comparison."""

    def __init__(
        self,
        texts: CorpusSplit,
        settings: Settings,
        tokenized: list[Tokenized],
        progress: Progress,
        announce: Announce,
        output: Output | None,
        journal: Journal,
        clock: Clock,
    ) -> None:
        self.texts, self.settings, self.tokenized = texts, settings, tokenized
        self.progress, self.announce, self.output, self.journal = progress, announce, output, journal
        self.clock = clock
        self.families = _families(settings)
        self.networks = [name for name in self.families if name != "ngram"]
        self.store = Store(settings, output, journal)
        self.plan: list[str] = []

    @property
    def is_labelled(self) -> bool:
        """Whether model names include the tokenizer."""
        return len(self.tokenized) > 1

    def results(self, remarks: list[str]) -> Results:
        """Train, evaluate and compare all models."""
        if "ngram" in self.families:
            self.train_ngrams()
        self.train_networks()
        self.mix()
        rows = tuple(self.store.rows)
        if not rows:
            raise InputError("no model could be trained on this text; see the warnings")
        rows = add_differences(rows, self.store.line_nats, self._line_bytes(), self.settings.seed)
        first = self.tokenized[0]
        return Results(
            text=self.texts.name,
            text_sha256=self.texts.sha256,
            tokenizer="; ".join(_describe(one.prepared.tokenizer) for one in self.tokenized),
            split=_split_info(self.texts, first),
            rows=rank_rows(rows),
            sentences=tuple(self.sentence_surprisals(rows)),
            flows=tuple(self.gradient_flows(rows)),
            curves=tuple(self.learning_curves(rows)),
            command=self.settings.command,
            versions=versions(),
            seconds=self.clock.elapsed,
            remarks=tuple(remarks),
            plan=tuple(self.plan),
        )

    def train_ngrams(self) -> None:
        """Train the n-gram models of every tokenizer, each with an equal share of the remaining time."""
        limits = [self.settings.max_seconds, self.settings.total_seconds]
        if limits[1] is not None and self.networks:
            limits[1] *= NGRAM_SHARE
        end = time.perf_counter() + min(seconds for seconds in limits if seconds is not None)

        def valid_bits(name: str) -> float:
            valid_bits_per_byte = next(
                (row.valid_bits_per_byte for row in self.store.rows if row.name == name), None
            )
            return float("nan") if valid_bits_per_byte is None else valid_bits_per_byte

        ordered = sorted(self.tokenized, key=_has_grid)
        for i, tokenized in enumerate(ordered):
            start = time.perf_counter()
            limit = (end - start) / (len(ordered) - i)
            for candidate in ngram_candidates(tokenized, valid_bits, self.is_labelled):
                if time.perf_counter() - start >= limit and self.store.rows:
                    message = f"{candidate.name} is skipped: the time budget for n-gram models is used up"
                    warnings.warn(message, ChainruleWarning, stacklevel=2)
                    if not _has_grid(tokenized):
                        break
                    continue
                self._run_candidate(candidate, self._train_first_seed)

    def train_networks(self) -> None:
        """Plan the networks within the remaining time, announce the plan and train them in sequence."""
        if not self.networks:
            return
        candidates = self.journal.planned({one.name: one for one in self.tokenized})
        if candidates is None:
            available = [name for name in self.networks if is_installed(name)]  # importing torch takes seconds
            if available:
                load_libraries(available[0], self.tokenized[0], self.settings)
            seconds = None if self.settings.total_seconds is None else NETWORK_SHARE * self.clock.left
            candidates = plan_networks(self.tokenized, available, self.settings, seconds)
            self.journal.add_plan(candidates)
        if not candidates:
            return
        self.plan = describe_plan(candidates, self.settings.seeds)
        for line in self.plan:
            self.announce(line)
        for candidate in candidates:
            self._run_candidate(candidate, self._train_seeds)

    def mix(self) -> None:
        """Add mixtures of the best models of each tokenizer."""
        for tokenized in self.tokenized:
            rows = [row for row in self.store.rows if row.tokenizer == tokenized.title]
            names = {name for chosen in mixtures.choose_components(rows) for name in chosen}
            if not names:
                continue
            self._stage("mixing")("", 0, None)
            models = {name: self.store.get(name) for name in names}
            arguments = (tokenized, rows, models, self.settings, self.texts.name, self.is_labelled)
            for measured in mixtures.mix_best(*arguments):
                self._add(measured)

    def sentence_surprisals(self, rows: Sequence[Row]) -> Iterator[Sentence]:
        """Surprisal of a few test lines under the best model of each tokenizer and family, and the best unigram."""
        names = {row.name: None for row in best_by(rows, "tokenizer", "family")}
        for title in dict.fromkeys(row.tokenizer for row in rows):
            unigrams = rankable_rows(row for row in rows if row.tokenizer == title and is_unigram(row))
            names.update({row.name: None for row in unigrams[:1]})
        lines = [line for line in self.texts.test if len(line.split()) in SENTENCE_LENGTHS]
        lines = lines or [line for line in self.texts.test if line.strip()]
        for line in lines[:: max(1, len(lines) // SENTENCES)][:SENTENCES]:
            scores = [(name, self.store.get(name).score(line)) for name in names]
            surprisals = (
                Surprisal(name=name, tokens=score.tokens, bits=tuple((0.0 - p) / LN2 for p in score.log_probs))
                for name, score in scores
            )
            yield Sentence(text=line, by_model=tuple(surprisals))

    def gradient_flows(self, rows: Sequence[Row]) -> Iterator[GradientFlow]:
        """Gradient flow of the best network of each tokenizer and family."""
        corpus = Corpus.from_lines(self.texts.test)
        for row in best_by(rows, "tokenizer", "family"):
            if row.family in ("ngram", "mixture"):
                continue
            sample = take_sample(self.store.get(row.name), corpus, name=row.name, tokens=FLOW_TOKENS)
            stage = self._stage(f"gradient flow of {row.name}")
            flows = gradient_flow.measure(sample, lags=FLOW_LAGS, positions=FLOW_POSITIONS, progress=stage)
            yield from gradient_flow.comparable_flows(flows)

    def learning_curves(self, rows: Sequence[Row]) -> Iterator[Curve]:
        """Learning curves of the best model of each tokenizer and family, while time is left.

        A network trained on a fraction of the text gets the same fraction of the training time.
        """
        by_title = {text.title: text for text in self.tokenized}
        subsets: dict[tuple[str, int], Tokenized | None] = {}
        for row in best_by(rows, "tokenizer", "family"):
            seconds = row.train_seconds / max(1, len(row.seeds))
            expected = seconds * sum(1 / part for part in CURVE_PARTS)
            has_limit = self.settings.total_seconds is not None
            is_too_long = expected > self.clock.left if has_limit else row.train_seconds > CURVE_SECONDS
            if row.family == "mixture" or (is_too_long and expected > 1):
                continue
            whole, config = by_title[row.tokenizer], self.store.get(row.name).config
            points = []
            for part in CURVE_PARTS:
                stage = self._stage(f"learning curve of {row.name}")
                stage("", 0, None)
                if (row.tokenizer, part) not in subsets:
                    subsets[row.tokenizer, part] = _tokenize_part(self.texts, whole, part, self.settings)
                subset = subsets[row.tokenizer, part]
                if subset is not None:
                    candidate = Candidate(subset, row.family, config, row.name)
                    limit = None if row.epochs is None else seconds / part
                    with suppress(ChainruleError):  # skip parts too small to train on
                        model, _ = measurement.train(
                            candidate,
                            self.settings,
                            self.texts.name,
                            seed=self.settings.seed,
                            seconds=limit,
                            progress=stage,
                        )
                        points.append((*_size(subset), model.evaluate_encoded(subset.test).bits_per_byte))
            points.append((*_size(whole), saved_model_bits(row)))
            tokens, size, bits = zip(*points, strict=True)
            doubled_bits = extrapolate(size, bits)
            yield Curve(name=row.name, tokens=tokens, bytes=size, bits_per_byte=bits, doubled_bits=doubled_bits)

    def _run_candidate(self, candidate: Candidate, train: Callable[[Candidate], Measured]) -> None:
        """Reuse the row of an interrupted run or train the model; skip it with a warning if training fails."""
        measured = self.journal.finished.get(candidate.name)
        if measured is None:
            try:
                measured = train(candidate)
            except UsageError:
                raise
            except ChainruleError as error:
                warnings.warn(f"{candidate.name} is left out: {error}", ChainruleWarning, stacklevel=3)
                return
        self._add(measured)

    def _add(self, measured: Measured) -> None:
        self.store.add(measured)  # a full disk ends the comparison
        self.announce(_row_line(measured.row))
        for words in measured.row.advice:
            self.announce(f"  {measured.row.name}: {words}")

    def _train_first_seed(self, candidate: Candidate) -> Measured:
        return self._train_seed(candidate, self.settings.seed)

    def _train_seeds(self, candidate: Candidate) -> Measured:
        """Train a network with every seed and save the best by validation, so that it survives an interruption."""
        seeds = range(self.settings.seed, self.settings.seed + self.settings.seeds)
        measured: list[Measured] = []
        for seed in seeds:
            run = self.journal.runs.get((candidate.name, seed))
            if run is None:
                run = self._train_seed(candidate, seed)
                is_best = measurement.combine_seeds([*measured, run], seeds[: len(measured) + 1]).model is run.model
                if len(seeds) > 1 and self.output is not None and run.model is not None and is_best:
                    self.output.save(run.model, candidate.name)
                if len(seeds) > 1:
                    self.journal.add(run, seed)
            measured.append(run)
        return measurement.combine_seeds(measured, seeds)

    def _train_seed(self, candidate: Candidate, seed: int) -> Measured:
        """Train and evaluate one model; networks write checkpoints into their model folder."""
        stage = self._stage(f"training {candidate.name}")
        stage("", 0, None)
        model, advice = measurement.train(
            candidate,
            self.settings,
            self.texts.name,
            seed=seed,
            seconds=candidate.seconds,
            progress=stage,
            run_dir=self._checkpoint_dir(candidate),
        )
        return measurement.measure(candidate, model, self.settings, advice)

    def _checkpoint_dir(self, candidate: Candidate) -> Path | None:
        if self.output is None or candidate.family == "ngram":
            return None
        self.output.begin(candidate.tokenized.prepared.fingerprint.sha256)
        return self.output.models / candidate.name

    def _stage(self, name: str) -> Progress:
        """Return the progress of one stage, reported as elapsed time of the whole comparison."""

        def report(what: str, done: int, total: int | None) -> None:
            seconds = max(1, round(self.clock.total))
            description = f"{name}: {what}" if what else name
            self.progress(description, min(round(self.clock.elapsed), seconds), seconds)

        return report

    def _line_bytes(self) -> Floats:
        """UTF-8 bytes of each test line after normalization, including the line break."""
        see = self.tokenized[0].prepared.tokenizer.canonicalize
        return np.array([len(see(line).encode()) + 1 for line in self.texts.test], dtype=np.float64)


def _size(tokenized: Tokenized) -> tuple[int, int]:
    """Tokens and bytes of the training text."""
    return tokenized.prepared.train.tokens, tokenized.prepared.train.bytes


def saved_model_bits(row: Row) -> float:
    """Bits per byte of the saved model, not the mean over seeds."""
    saved = [figures["bits_per_byte"] for figures in row.seeds if figures["is_kept"]]
    return float(saved[0]) if saved else row.bits_per_byte


def _tokenize_part(texts: CorpusSplit, whole: Tokenized, part: int, settings: Settings) -> Tokenized | None:
    """Tokenize every `part`-th block of lines with a new tokenizer; None if they contain no words."""
    lines = subsample_blocks(texts.train, part)
    if not any(line.strip() for line in lines):
        return None
    with suppress(ChainruleError), warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainruleWarning)  # the full text has been warned about
        return tokenize(replace(texts, train=lines), whole.name, settings)
    return None


def _has_grid(tokenized: Tokenized) -> bool:
    """Whether the full grid of orders and smoothings is tried; such tokenizers come last, as they take longest."""
    return tokenized.kind not in MAX_ORDER


def _families(settings: Settings) -> tuple[str, ...]:
    return settings.families or tuple(families.trainable())


def _clock(settings: Settings) -> Clock:
    return Clock(settings.total_seconds or (settings.max_seconds or 0) * len(_families(settings)))


def _row_line(row: Row) -> str:
    figure = f"{format_bits(row.bits_per_byte)} bits per byte" if row.is_ranked else row.note
    ending = "" if row.status in ("", "complete") else f", {row.status}"
    return f"{row.name}: {figure}, {format_duration(row.train_seconds)}{ending}"


def _warn_overlap(tokenized: Tokenized, texts: CorpusSplit) -> None:
    overlap = tokenized.prepared.fingerprint.overlap(fingerprint(Corpus.from_lines(texts.test)))
    if overlap >= OVERLAP_WARNING_THRESHOLD:
        warnings.warn(
            f"about {overlap:.0%} of the lines of the test text are in the training text, too: "
            "the metrics partly measure memorization",
            ChainruleWarning,
            stacklevel=4,
        )


def _warn_short_training_text(tokenized: Tokenized) -> None:
    """Warn if lines of very different lengths leave less text for training than for testing."""
    train, test = tokenized.prepared.train.bytes, tokenized.test.bytes
    if train < test:
        warnings.warn(
            f"the training part has {train:,} bytes, fewer than the {test:,} bytes of the test part, "
            "as lines differ widely in length: break long lines, or give --valid and --test",
            ChainruleWarning,
            stacklevel=4,
        )


def _identity(texts: CorpusSplit, settings: Settings) -> dict[str, Any]:
    """Settings that must match when an interrupted comparison is resumed."""
    names = ("families", "tokenizer_names", "tokenizer_settings", "context", "seed", "seeds", "size")
    chosen = {name: _to_json(getattr(settings, name)) for name in names}
    return {"text_sha256": texts.sha256, "lines": [len(texts.train), len(texts.valid), len(texts.test)], **chosen}


def _to_json(value: Any) -> Any:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | dict) else value


def _describe(tokenizer: Tokenizer) -> str:
    words = f"{tokenizer.config.kind}, {tokenizer.vocab_size} ids"
    return f"{words} (scores one segmentation: bits are an upper bound)" if tokenizer.config.is_ambiguous else words


def _split_info(texts: CorpusSplit, tokenized: Tokenized) -> SplitInfo:
    return SplitInfo(
        train_lines=len(texts.train),
        valid_lines=len(texts.valid),
        test_lines=len(texts.test),
        train_tokens=tokenized.prepared.train.tokens,
        test_tokens=tokenized.test.tokens,
        test_bytes=tokenized.test.bytes,
        seed=texts.seed,
    )
