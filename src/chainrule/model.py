"""A language model with its tokenizer and speller: score, evaluate, generate, save and load.

Files of a model folder: `config.json`, `tokenizer.json`, n-gram tables or network weights, speller, metrics, model
card, manifest.
"""

import html
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from chainrule import families
from chainrule.config import build_config, to_json
from chainrule.data.encoded import EncodedText
from chainrule.decoding.detokenizer import SpellingSampler
from chainrule.decoding.generate import Generation, generate, next_tokens, stream
from chainrule.decoding.settings import Decoding
from chainrule.errors import ChainruleWarning, ConfigError, InputError, ModelFileError, UsageError, VocabularyError
from chainrule.evaluation.perplexity import Evaluation, TokenScorer, first_impossible, summarize, token_log_probs
from chainrule.lm import AnyModel, Context, Floats
from chainrule.ngram.oov_speller import Speller
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage import provenance
from chainrule.storage.provenance import CONFIG, METRICS, SKETCH, TOKENIZER, Card, Origin, translate_config_errors
from chainrule.storage.verified_dir import VerifiedDir, read_json
from chainrule.text.corpus import Corpus
from chainrule.text.readers import Sources
from chainrule.tokenizers.encode import encode, encode_with_fingerprint
from chainrule.tokenizers.tokenizer import Tokenizer, read_tokenizer

SPELLER = "speller.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Log-probabilities of the tokens of a text in nats, including `</s>` of each line.

    `log_prob` scores an unknown word as p(`<unk>`); to compare texts or models, use `log_prob_with_spelling`, which
    includes the probability of its characters.
    """

    text: str
    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]
    oov: int
    log_prob_of_spellings: float  # of the unknown words; −inf if there are some and the model has no speller

    @property
    def log_prob(self) -> float:
        """Return log p(tokens) in nats."""
        return math.fsum(self.log_probs) if not self.infinite else -math.inf

    @property
    def log_prob_with_spelling(self) -> float:
        """Return log p(tokens) + log p(spellings of the unknown words) in nats: the log-probability of the text."""
        return self.log_prob + self.log_prob_of_spellings

    @property
    def bits(self) -> float:
        """Return −log₂ p(tokens)."""
        return (0.0 - self.log_prob) / math.log(2)  # avoids -0.0 for p = 1

    @property
    def perplexity(self) -> float:
        """Return exp of the mean −log p per token."""
        with np.errstate(over="ignore"):
            return float(np.exp(-self.log_prob / len(self.tokens)))

    @property
    def infinite(self) -> bool:
        """Whether some token has probability zero."""
        return -math.inf in self.log_probs

    def _repr_html_(self) -> str:
        from chainrule.plots.html import surprisal_html

        bits = [(0.0 - log_prob) / math.log(2) for log_prob in self.log_probs]
        figures = f"{self.bits:.1f} bits, perplexity {self.perplexity:.1f}"
        if self.oov:
            figures += (
                f"; {(0.0 - self.log_prob_with_spelling) / math.log(2):.1f} bits with the spelling of unknown words"
            )
        return f"<div>{surprisal_html(self.tokens, bits)}<small>{html.escape(figures)}</small></div>"


OVERLAP_WARNING_THRESHOLD = 0.3
SPELLING_ATTEMPTS = 1000
"""Spellings sampled for an out-of-vocabulary word before U+FFFD is written instead."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Model:
    """A language model of any family with its tokenizer, speller and provenance."""

    lm: AnyModel
    tokenizer: Tokenizer
    family: str
    config: Any
    speller: Speller | None = None
    origin: Origin = field(default_factory=Origin)
    metrics: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def __repr__(self) -> str:
        return (
            f"<{self.family} model of {self.origin.text or 'unknown text'}: {self.tokenizer.config.kind} tokens, "
            f"{self.tokenizer.vocab_size:,} ids, {self.parameters:,} parameters>"
        )

    @property
    def parameters(self) -> int:
        """Number of estimated parameters."""
        return families.get(self.family).parameters(self.lm)

    def score(self, text: str) -> Score:
        """Score a text of one or more lines token by token."""
        if not isinstance(text, str):
            raise UsageError(f"score takes a text, not {text!r}; use scores for several texts")
        return next(iter(self.scores([text])))

    def scores(
        self, texts: Sequence[str], progress: Progress | bool = silent, scorer: TokenScorer | None = None
    ) -> Iterator[Score]:
        """Yield one score per text; a `stream` model reads them as one stream, continued from `scorer` if given."""
        encoded = encode(Corpus.from_lines(texts), self.tokenizer)
        log_probs = (
            scorer.log_probs(encoded.ids) if scorer else token_log_probs(self.lm, encoded, as_progress(progress))
        )
        spellings = iter(self._spelling_log_probs(encoded))
        lines = [sum(1 for _ in Corpus.from_lines([text])) for text in texts]
        ends = np.flatnonzero(encoded.ids == encoded.eos) + 1
        first = 0
        for text, last in zip(texts, ends[np.cumsum(lines, dtype=int) - 1], strict=True):
            ids = encoded.ids[first:last]
            oov = int(np.count_nonzero(ids == encoded.unk)) if encoded.unk is not None else 0
            yield Score(
                text=text,
                tokens=tuple(self.tokenizer.tokens(ids.tolist())),
                log_probs=tuple(log_probs[first:last].tolist()),
                oov=oov,
                log_prob_of_spellings=float(sum(next(spellings) for _ in range(oov))),
            )
            first = last

    def evaluate(self, text: Sources | Corpus, progress: Progress | bool = silent) -> Evaluation:
        """Compute perplexity, bits per byte and the other metrics on files or a corpus."""
        progress = as_progress(progress)
        corpus = Corpus.of(text)
        if self.origin.fingerprint is None:
            return self.evaluate_encoded(encode(corpus, self.tokenizer, progress), progress)
        encoded, fingerprint = encode_with_fingerprint(corpus, self.tokenizer, progress)
        _warn_of_overlap(self.origin.fingerprint.overlap(fingerprint))
        return self.evaluate_encoded(encoded, progress)

    def evaluate_encoded(self, text: EncodedText, progress: Progress = silent) -> Evaluation:
        """Evaluate an encoded text."""
        if not text.tokens:
            raise InputError("the text is empty; give one with at least one line")
        start = time.perf_counter()
        return self._summary(text, token_log_probs(self.lm, text, progress), start)

    def evaluate_lines(
        self, text: EncodedText, log_probs: Floats | None = None, progress: Progress = silent
    ) -> tuple[Evaluation, Floats]:
        """Return the metrics of `evaluate_encoded`, and −log p of each line with its spellings in nats, (lines,).

        `log_probs`, (N,), are the log-probabilities of the tokens if already computed.
        """
        if not text.tokens:
            raise InputError("the text is empty; give one with at least one line")
        start = time.perf_counter()
        if log_probs is None:
            log_probs = token_log_probs(self.lm, text, progress)
        figures = self._summary(text, log_probs, start)
        nats = 0.0 - log_probs  # 0 where p = 1, not -0
        if text.oov:
            nats[text.ids == text.unk] -= self._spelling_log_probs(text)
        starts = np.concatenate([[0], np.flatnonzero(text.ids == text.eos)[:-1] + 1])
        return figures, np.add.reduceat(nats, starts)

    def evaluate_adapted(
        self,
        text: Sources | Corpus,
        valid: Sources | Corpus | None,
        kinds: Sequence[str],
        *,
        train: Sources | Corpus | None = None,
        stride: int | None = None,
        progress: Progress | bool = silent,
    ) -> dict[str, tuple[Evaluation, dict[str, float]]]:
        """Evaluate the model with test-time adaptation; return metrics and the settings tuned on `valid`, by kind.

        Kinds are `temperature`, `cache`, `dynamic` and, for a Transformer, `stride`.
        """
        progress = as_progress(progress)
        adapt = getattr(families.get(self.family), "adapt", None)
        if adapt is None:
            raise UsageError(
                "temperature, cache, dynamic evaluation and stride are for neural models; "
                f"this is {'an' if self.family == 'ngram' else 'a'} {self.family}"
            )
        sources = {"text": text, "validation text": valid, "training text": train}
        parts = {
            name: encode(Corpus.of(part), self.tokenizer, progress)
            for name, part in sources.items()
            if part is not None
        }
        for name, part in parts.items():
            if not part.tokens:
                raise InputError(f"the {name} is empty; give one with at least one line")
        encoded, held_out, statistics = (parts.get(name) for name in sources)
        results = {}
        for kind in kinds:
            start = time.perf_counter()
            adapted = adapt(self.lm, encoded, held_out, kind, train=statistics, stride=stride, progress=progress)
            results[kind] = (self._summary(parts["text"], adapted.log_probs, start), adapted.settings)
        return results

    def generate(self, prompt: str = "", **settings: Any) -> Generation:
        """Continue a prompt; settings as in `Decoding`."""
        if "num" in settings:
            raise UsageError("generate returns one text; use generate_several(prompt, num) for several")
        return self.generate_several(prompt, 1, **settings)[0]

    def generate_several(self, prompt: str, num: int, **settings: Any) -> list[Generation]:
        """Generate several continuations: independent samples, or beam hypotheses with the best first."""
        return generate(self.lm, self.tokenizer, prompt, _decoding(settings), num=num, spell=self.spell)

    def stream(self, prompt: str = "", **settings: Any) -> Iterator[str]:
        """Continue a prompt and yield the text in pieces as it is generated."""
        return stream(self.lm, self.tokenizer, prompt, _decoding(settings), spell=self.spell)

    def next(self, context: str = "", top: int = 10) -> list[tuple[str, float]]:
        """Return the most probable next tokens with their probabilities."""
        return next_tokens(self.lm, self.tokenizer, context, top)

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Save the model to a folder atomically; `force` allows replacing another model or an unfinished run."""
        files = {
            **families.get(self.family).files(self.lm),
            TOKENIZER: self.tokenizer.json_file(),
        }
        if self.speller is not None:
            files[SPELLER] = self.speller.to_bytes()
        if self.origin.fingerprint is not None:
            files[SKETCH] = self.origin.fingerprint.to_bytes()
        config = {
            "family": self.family,
            "context": self.lm.context,
            "model": to_json(self.config),
            "tokenizer": to_json(self.tokenizer.config),
        }
        facts = [
            f"Tokenizer: {self.tokenizer.config.kind}, {self.tokenizer.vocab_size} ids",
            f"Context: {self.lm.context}",
            f"Parameters: {self.parameters}",
            *(() if self.lm.is_normalized else ("Gives scores, not probabilities.",)),
        ]
        usage = ("generate THIS_FOLDER", "evaluate THIS_FOLDER text.txt")
        card = Card(title=f"{self.family} language model", facts=facts, usage=usage)
        provenance.save(
            Path(folder),
            "model",
            files,
            config=config,
            metrics=self.metrics,
            origin=self.origin,
            card=card,
            force=force,
        )

    @property
    def spell(self) -> SpellingSampler | None:
        """Sampler of spellings for out-of-vocabulary words; None without a speller."""
        return None if self.speller is None else partial(_draw_unknown_word, self.speller, self.tokenizer)

    def _summary(self, text: EncodedText, log_probs: Floats, start: float) -> Evaluation:
        """Summarize the token log-probabilities of a text; `start` is the time at which scoring started."""
        spellings = self._spelling_log_probs(text)
        return summarize(
            text,
            log_probs,
            spellings,
            seconds=time.perf_counter() - start,
            cause=self._cause(text, log_probs),
            is_upper_bound=self.tokenizer.config.is_ambiguous,
        )

    def _spelling_log_probs(self, text: EncodedText) -> Floats:
        """Return log p(spelling) of each unknown word; −inf without a speller."""
        if self.speller is None:
            return np.zeros(0) if not text.oov else np.full(text.oov, -np.inf)
        return self.speller.log_probs(text.spellings)

    def _cause(self, text: EncodedText, log_probs: Floats) -> str | None:
        """Describe the first token with probability zero; None if all tokens are possible."""
        first = first_impossible(text, log_probs)
        if first is None:
            return None
        id_, line, position = first
        token = self.tokenizer.tokens([id_])[0]
        if id_ == text.unk:
            at = int(np.flatnonzero(np.isneginf(log_probs))[0])
            token = text.spellings[int(np.count_nonzero(text.ids[:at] == text.unk))]
        return f"'{self.tokenizer.display_text(token)}' on line {line}, token {position}"


def _warn_of_overlap(overlap: float) -> None:
    """Warn if the share `overlap` of the lines of an evaluated text were in the training text."""
    if overlap >= OVERLAP_WARNING_THRESHOLD:
        warnings.warn(
            f"about {overlap:.0%} of the lines of this text were in the training text: "
            "the metrics measure memorization of the training text, not generalization to new text",
            ChainruleWarning,
            stacklevel=3,
        )


def _decoding(settings: dict[str, Any]) -> Decoding:
    """Build the decoding config; `stop` is one string or several."""
    stop = settings.pop("stop", ())
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    return replace(build_config(Decoding, settings, "generate"), stop=stops)


def _draw_unknown_word(speller: Speller, tokenizer: Tokenizer, rng: np.random.Generator) -> str:
    """Sample spellings until one is a single out-of-vocabulary word and not the name of `<unk>`."""
    for _ in range(SPELLING_ATTEMPTS):
        word = speller.sample(rng)
        if word != tokenizer.config.unk and tokenizer.encode(word).tolist() == [tokenizer.unk]:
            return word
    return "\N{REPLACEMENT CHARACTER}"


def load_model(folder: VerifiedDir, device: str = "auto") -> Model:
    """Load a language model from an open folder."""
    config = read_config(folder)
    if families.is_builtin(str(config["family"])):
        with translate_config_errors(folder):
            return _load(folder, config, device)
    with translate_config_errors(folder):  # errors raised by the code of a plug-in are not errors of the config
        _read_model_config(folder, config)
    return _load(folder, config, device)


def read_config(folder: VerifiedDir) -> dict[str, Any]:
    """Read `config.json`; raise ModelFileError unless it is that of a language model."""
    config = read_json(folder, CONFIG)
    if "task" in config:
        hint = provenance.usage_hint(str(config["task"]), folder.path)
        raise ModelFileError(f"{folder.path} is not a language model: {hint}")
    if "family" not in config:
        raise ModelFileError(f"{folder.path} contains a tokenizer, not a model; give a model folder")
    return config


def _read_model_config(folder: VerifiedDir, config: dict[str, Any]) -> tuple[families.Family, Tokenizer, Any]:
    """Parse `config.json`: the family, the tokenizer and the config of the model."""
    family = families.get(str(config["family"]))
    tokenizer = read_tokenizer(folder, config.get("tokenizer", {}))
    model_config = build_config(family.Config, config["model"], "model", is_saved=True)
    if config["context"] not in get_args(Context):
        raise ConfigError(f"context is {config['context']!r}; it must be one of {', '.join(get_args(Context))}")
    return family, tokenizer, model_config


def _load(folder: VerifiedDir, config: dict[str, Any], device: str) -> Model:
    family, tokenizer, model_config = _read_model_config(folder, config)
    lm = family.load(folder, model_config, tokenizer.vocabulary, config["context"], device)
    if lm.vocabulary.size != tokenizer.vocab_size:
        raise VocabularyError(
            f"the model was built for {lm.vocabulary.size} ids but {TOKENIZER} makes {tokenizer.vocab_size}"
        )
    return Model(
        lm=lm,
        tokenizer=tokenizer,
        family=config["family"],
        config=model_config,
        speller=_read_speller(folder, tokenizer) if SPELLER in folder.files else None,
        origin=provenance.read_origin(folder),
        metrics=read_json(folder, METRICS),
        name=str(folder.path),
    )


def _read_speller(folder: VerifiedDir, tokenizer: Tokenizer) -> Speller:
    return Speller.from_bytes(folder.bytes(SPELLER), str(folder.path / SPELLER), tokenizer.vocabulary_words)
