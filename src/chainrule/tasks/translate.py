"""Translation: train sequence-to-sequence models on sentence pairs, translate, score, align and evaluate."""

import dataclasses
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from chainrule import config as settings
from chainrule.api import split_settings
from chainrule.data.encoded import batches_by_length
from chainrule.data.training_data import RunOptions
from chainrule.decoding import beam
from chainrule.decoding.detokenizer import Continuation
from chainrule.decoding.generate import generate
from chainrule.decoding.prompt import Prompt, read_prompt
from chainrule.decoding.settings import Decoding
from chainrule.errors import ChainruleWarning, ConfigError, InputError
from chainrule.evaluation.significance import Comparison, compare_bleu
from chainrule.evaluation.translation import (
    CorpusScore,
    LengthBucket,
    bleu,
    bleu_by_length,
    chrf,
    exact_match,
    has_four_grams,
)
from chainrule.evaluation.translation import check_aligned as check_references
from chainrule.lm import Floats, Ids
from chainrule.neural import weights
from chainrule.neural.encoders import seq2seq
from chainrule.neural.encoders.seq2seq import (
    BATCH_SIZE,
    ConditionalLM,
    PairCollator,
    PairConfig,
    PairNetwork,
    mean_nats,
    pair_loss,
)
from chainrule.neural.family import fit
from chainrule.progress import Progress, as_progress, silent
from chainrule.storage.verified_dir import VerifiedDir
from chainrule.tasks import model
from chainrule.tasks.run_setup import digest_texts, identify, make_origin, make_tokenizer
from chainrule.text.parallel import SentencePairs, read_pairs
from chainrule.tokenizers.tokenizer import Tokenizer
from chainrule.training.batches import ExampleBatches
from chainrule.training.device import device_of, select_device
from chainrule.training.trainer import TrainingPlan

Config = PairConfig
FROM_SOURCE_LENGTH = 1_000_000  # max_tokens value that means 2 · S + 20 for a source of S tokens, `</s>` included
BEAM = Decoding(strategy="beam", beam_size=5, length_penalty=1.0, max_tokens=FROM_SOURCE_LENGTH)
EDGES: Final = (10, 15, 20, 30, 40)  # lower bounds of the source-length buckets, in words
WORDS: Final = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Translation:
    """One translation of a source."""

    source: str
    text: str
    ids: list[int]  # ends with `</s>` if finished
    tokens: list[str]  # token strings of `ids`
    log_probs: list[float]  # nats per token, from the model without decoding adjustments
    length_penalty: float  # exponent p of `score`
    is_finished: bool  # False: max_tokens was reached before `</s>` or a stop string

    @property
    def log_prob(self) -> float:
        """log p(target | source) in nats."""
        return float(np.sum(self.log_probs))

    @property
    def score(self) -> float:
        """Ranking score: log p / length^p, `</s>` included in the length."""
        return float(self.log_prob / max(1, len(self.ids)) ** self.length_penalty)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Cross-attention weights of a translation."""

    source: list[str]  # S tokens, ending with `</s>`
    target: list[str]  # T tokens, ending with `</s>` if finished
    by_head: Floats  # (L, H, T, S) per layer and head

    @property
    def weights(self) -> Floats:
        """(T, S) mean over layers and heads."""
        mean: Floats = self.by_head.mean(axis=(0, 1))
        return mean


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationReport:
    """Evaluation of one system on one test set."""

    translations: list[str]
    numbers: tuple[int, ...]  # line number of each, from 1
    left_out: int  # pairs with an empty side
    bleu: CorpusScore
    chrf: CorpusScore
    exact_match: float  # fraction identical to the reference up to white space
    by_length: list[LengthBucket]
    nats_per_token: float  # of the references, `</s>` included
    unfinished: int  # translations that reached max_tokens
    seconds: float  # translation time
    against: Comparison | None = None  # BLEU difference from another system

    @property
    def perplexity(self) -> float:
        """Perplexity per token of the references."""
        return float(np.exp(min(self.nats_per_token, 700)))

    @property
    def by_line(self) -> list[str]:
        """One translation per line of the file, empty for skipped pairs."""
        lines = [""] * max(len(self.translations) + self.left_out, *self.numbers)
        for number, text in zip(self.numbers, self.translations, strict=True):
            lines[number - 1] = text
        return lines

    def as_json(self) -> dict[str, Any]:
        """JSON document without the translations."""
        buckets = [
            {"from": b.low, "below": b.high, "sentences": b.sentences, "bleu": b.score} for b in self.by_length
        ]
        other = self.against
        return {
            "sentences": len(self.translations),
            "left_out": self.left_out,
            "bleu": self.bleu.score,
            "bleu_signature": self.bleu.signature,
            "chrf": self.chrf.score,
            "chrf_signature": self.chrf.signature,
            "exact_match": self.exact_match,
            "nats_per_token": self.nats_per_token,
            "perplexity": self.perplexity,
            "unfinished": self.unfinished,
            "by_source_words": buckets,
            "seconds": self.seconds,
            **({} if other is None else {"bleu_minus_other": _interval(other)}),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Translator(model.NetworkModel):
    """A trained translation model p(target | source)."""

    task = "translate"
    noun = "translation model"
    network: PairNetwork
    config: PairConfig
    source: Tokenizer
    target: Tokenizer

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        """Tokenizers by role; a joint tokenizer is stored once, as "text"."""
        return {"text": self.source} if self.config.joint else {"source": self.source, "target": self.target}

    @property
    def validation(self) -> dict[str, float]:
        """Validation metrics recorded in training; empty without validation pairs."""
        names = ("nats_per_token", "perplexity")
        return {name: self.metrics[f"valid_{name}"] for name in names if f"valid_{name}" in self.metrics}

    def condition_on(self, source: str) -> ConditionalLM:
        """Language model p(target | source) for this source, over the vocabulary of `target`."""
        return seq2seq.condition_on(self.network, self.target.vocabulary, [self._encode_source(source, 1)])[0]

    def translate(self, source: str, **chosen: Any) -> Translation:
        """Best translation; `chosen` contains decoding settings (strategy, beam_size, temperature)."""
        return self.translate_all([source], **chosen)[0][0]

    def translate_all(
        self,
        sources: Sequence[str],
        decoding: Decoding = BEAM,
        *,
        num: int = 1,
        progress: Progress | bool = silent,
        first: int = 0,
        **chosen: Any,
    ) -> list[list[Translation]]:
        """The `num` best translations or samples of each source; the translation of an empty source is empty.

        `chosen` overrides settings of `decoding`. A translation has at most `max_tokens` tokens, by default
        2 · S + 20 for a source of S tokens, and never contains `<unk>`. Samples depend on the seed and the index of
        the source; `first` is the index of the first of these sources.
        """
        progress = as_progress(progress)
        decoding = override_decoding(decoding, chosen, num)
        check_texts(sources, "sources")
        ids = [self._encode_source(text, first + i) for i, text in enumerate(sources, start=1)]
        p = decoding.length_penalty
        translations: list[list[Translation]] = [[Translation(text, "", [], [], [], p, True)] for text in sources]
        order = sorted((i for i, text in enumerate(sources) if text.strip()), key=lambda i: len(ids[i]))
        without_unk = dataclasses.replace(self.target.vocabulary, closed=True)
        for start in range(0, len(order), BATCH_SIZE):
            rows = order[start : start + BATCH_SIZE]
            progress("translating", start, len(order))
            models = seq2seq.condition_on(self.network, without_unk, [ids[i] for i in rows])
            decodings = [self._decoding_for_source(decoding, first + i, len(ids[i])) for i in rows]
            decode = self._sample if decoding.strategy == "sample" else self._beam_search
            for i, candidates in zip(rows, decode(models, [sources[i] for i in rows], decodings, num), strict=True):
                translations[i] = candidates
        return translations

    def _decoding_for_source(self, decoding: Decoding, number: int, length: int) -> Decoding:
        """Decoding settings with the seed and maximum length of one source."""
        max_tokens = 2 * length + 20 if decoding.max_tokens == FROM_SOURCE_LENGTH else decoding.max_tokens
        max_tokens = min(max_tokens, self.config.longest) if self.config.family == "transformer" else max_tokens
        return dataclasses.replace(decoding, max_tokens=max_tokens, seed=source_seed(decoding.seed, number))

    def _beam_search(
        self, models: list[ConditionalLM], texts: list[str], decodings: list[Decoding], num: int
    ) -> Iterator[list[Translation]]:
        continuation = Continuation(self.target, "", decodings[0].stop)
        prompt = Prompt((), models[0].vocabulary, continuation.is_stopped)
        if decodings[0].strategy == "greedy":
            decodings = [dataclasses.replace(decoding, strategy="beam", beam_size=1) for decoding in decodings]
        searches = [
            beam.search_steps(*read_prompt(lm, prompt), prompt, decoding, num=num)
            for lm, decoding in zip(models, decodings, strict=True)
        ]
        for text, hypotheses in zip(texts, beam.search_batch(models[0], searches), strict=True):
            candidates = [
                self._translation(text, continuation.text(h.ids), h.ids, h.log_probs, decodings[0], h.is_finished)
                for h in hypotheses
            ]
            yield rank_translations(candidates)

    def _sample(
        self, models: list[ConditionalLM], texts: list[str], decodings: list[Decoding], num: int
    ) -> Iterator[list[Translation]]:
        for lm, text, decoding in zip(models, texts, decodings, strict=True):
            yield [
                self._translation(text, g.text, g.ids, g.log_probs, decoding, g.finish_reason == "stop")
                for g in generate(lm, self.target, "", decoding, num=num)
            ]

    def _translation(
        self,
        source: str,
        text: str,
        ids: Sequence[int],
        log_probs: Sequence[float],
        decoding: Decoding,
        is_finished: bool,
    ) -> Translation:
        tokens, p = self.target.tokens(ids), decoding.length_penalty
        return Translation(source, text.strip(), list(ids), tokens, list(log_probs), p, is_finished)

    def score(self, sources: Sequence[str], targets: Sequence[str], progress: Progress | bool = silent) -> Floats:
        """(N,) log p(target | source) in nats, `</s>` included, for reranking or filtering pairs.

        An empty target is `</s>` alone; the score of an empty source is NaN.
        """
        progress = as_progress(progress)
        check_aligned(sources, targets)
        data = self._collate(sources, targets)
        scores, done = np.zeros(len(sources)), 0
        for rows in batches_by_length([len(t) for t in data.targets], seq2seq.BATCH_SIZE):
            progress("scoring", done, len(sources))
            scores[rows] = -seq2seq.pair_nats(self.network, data(rows))
            done += len(rows)
        scores[[not text.strip() for text in sources]] = np.nan
        return scores

    def evaluate(
        self,
        pairs: str | Path | Sequence[str | Path] | SentencePairs,
        decoding: Decoding = BEAM,
        *,
        other: Sequence[str] | None = None,
        progress: Progress | bool = silent,
        **chosen: Any,
    ) -> TranslationReport:
        """Translate the sources and compare with the targets; `other` contains translations of another system.

        Pairs with an empty side are skipped and counted; `other` may still contain lines for them. `chosen`
        overrides settings of `decoding`.
        """
        progress = as_progress(progress)
        decoding = override_decoding(decoding, chosen)
        data, other = _drop_empty(pairs if isinstance(pairs, SentencePairs) else read_pairs(pairs), other)
        nats = -self.score(data.sources, data.targets, progress)  # first, so that invalid input fails early
        start = time.perf_counter()
        best = [candidates[0] for candidates in self.translate_all(data.sources, decoding, progress=progress)]
        seconds = time.perf_counter() - start
        texts = [translation.text for translation in best]
        _warn_short_texts(texts, data.targets)
        lengths = [count_words(text) for text in data.sources]
        return TranslationReport(
            translations=texts,
            numbers=data.numbers,
            left_out=data.left_out,
            bleu=bleu(texts, data.targets),
            chrf=chrf(texts, data.targets),
            exact_match=exact_match(texts, data.targets),
            by_length=bleu_by_length(texts, data.targets, lengths, EDGES),
            nats_per_token=float(nats.sum()) / sum(len(encode_with_eos(self.target, t)) for t in data.targets),
            unfinished=sum(not translation.is_finished for translation in best),
            seconds=seconds,
            against=None if other is None else compare_bleu(texts, other, data.targets),
        )

    def align(self, source: str, target: str | None = None) -> Alignment:
        """Attention weights between a source and a translation, by default the model's own."""
        if self.config.attention == "none":
            raise ConfigError(
                "this model has no attention: its decoder sees only the last encoder state; "
                "train one with --attention additive"
            )
        ids = self._encode_source(source, 1)
        best_ids = self.translate(source).ids if target is None else []
        target_ids = np.array(best_ids, dtype=np.int64) if best_ids else self._encode_target(target or "", 1)
        attention = seq2seq.attention_alignment(self.network, ids, target_ids, self.target.vocabulary)
        return Alignment(self.source.tokens(ids.tolist()), self.target.tokens(target_ids.tolist()), attention)

    def encode_pair(self, source: str, target: str, line: int = 1) -> tuple[Ids, Ids]:
        """Encode a pair with `</s>`; raise if it is too long for a Transformer."""
        return self._encode_source(source, line), self._encode_target(target, line)

    def _collate(self, sources: Sequence[str], targets: Sequence[str]) -> PairCollator:
        source_ids = [self._encode_source(text, i) for i, text in enumerate(sources, start=1)]
        target_ids = [self._encode_target(text, i) for i, text in enumerate(targets, start=1)]
        return PairCollator(source_ids, target_ids, self.target.vocabulary, device_of(self.network))

    def _encode_source(self, text: str, line: int) -> Ids:
        return check_length(encode_with_eos(self.source, text), self.config, f"source {line}")

    def _encode_target(self, text: str, line: int) -> Ids:
        return check_length(encode_with_eos(self.target, text), self.config, f"target {line}")


def load(folder: VerifiedDir, device: str = "auto") -> Translator:
    """Load a translation model from an open folder."""
    fields, tokenizers, _ = model.read(folder, "translate", PairConfig, _tokenizer_roles)
    config = fields["config"]
    source, target = (tokenizers["text" if config.joint else role] for role in ("source", "target"))
    network = weights.load_network(
        folder, lambda: seq2seq.build(config, source.vocab_size, target.vocabulary), config.layers
    )
    return Translator(network=network.to(select_device(device)).eval(), source=source, target=target, **fields)


def _tokenizer_roles(config: PairConfig) -> tuple[str, ...]:
    return ("text",) if config.joint else ("source", "target")


def train(
    family: str,
    pairs: Sequence[str | Path] | SentencePairs,
    *,
    valid: Sequence[str | Path] | SentencePairs | None = None,
    tokenizer: str | Path = "bpe",
    options: RunOptions | None = None,
    **chosen: Any,
) -> Translator:
    """Train on sentence pairs, two files or one table; `chosen` contains tokenizer and model settings."""
    options = RunOptions.merge(options, chosen).check_output()
    tokenizer_settings, model_settings = split_settings(chosen)
    config = settings.build_config(PairConfig, {"family": family, **model_settings}, "model")
    data, valid_data = (_read_pairs(texts) for texts in (pairs, valid))
    assert data is not None
    source, target = make_tokenizers(data, config.joint, tokenizer, tokenizer_settings, options.progress)
    encoded = encode_pairs(data, source, target, config.longest)
    valid_encoded = None if valid_data is None else encode_pairs(valid_data, source, target, config.longest)
    texts = [
        text for corpus in (data, valid_data) if corpus is not None for text in (corpus.sources, corpus.targets)
    ]
    options = identify(options, "translate", config, texts, [source, target])
    origin = make_origin(options, "translate", data.name, digest_texts([*data.sources, *data.targets]))

    def plan(network: PairNetwork, device: Any) -> TrainingPlan:
        collate = PairCollator(*encoded, target.vocabulary, device)
        lengths = np.array([len(s) + len(t) for s, t in zip(*encoded, strict=True)])
        validate = None
        if valid_encoded is not None:
            valid_batches = PairCollator(*valid_encoded, target.vocabulary, device)
            validate = lambda: mean_nats(network, valid_batches)  # noqa: E731
        examples = ExampleBatches(lengths, collate, config.training, options.seed)
        return TrainingPlan(source=examples, objective=pair_loss, validate=validate)

    start = time.perf_counter()
    network, log, summary = fit(
        options, config.training, lambda: seq2seq.build(config, source.vocab_size, target.vocabulary), plan
    )
    metrics: dict[str, Any] = {
        "train_pairs": len(encoded[0]),
        "train_seconds": round(time.perf_counter() - start, 3),
    }
    metrics |= summary
    if valid_encoded is not None:
        nats = mean_nats(network, PairCollator(*valid_encoded, target.vocabulary, device_of(network)))
        metrics |= {"valid_nats_per_token": nats, "valid_perplexity": float(np.exp(min(nats, 700)))}
    return Translator(
        network=network,
        config=config,
        source=source,
        target=target,
        origin=origin,
        metrics=metrics,
        log=log,
    )


def _read_pairs(texts: Sequence[str | Path] | SentencePairs | None) -> SentencePairs | None:
    return texts if texts is None or isinstance(texts, SentencePairs) else read_pairs(texts)


def rank_translations(translations: Sequence[Translation]) -> list[Translation]:
    """Sort by score, best first, unfinished translations last."""
    return sorted(translations, key=lambda translation: (not translation.is_finished, -translation.score))


def override_decoding(base: Decoding, chosen: Mapping[str, Any], num: int = 1) -> Decoding:
    """Override decoding settings by name; raise if they cannot produce `num` translations."""
    names = [field.name for field in dataclasses.fields(Decoding)]
    if unknown := [name for name in chosen if name not in names]:
        raise ConfigError(f"decoding has no setting '{unknown[0]}'; choose among {', '.join(names)}")
    decoding = replace(base, **chosen)
    if decoding.strategy == "greedy" and num > 1:
        raise ConfigError(f"num is {num}, but greedy gives one translation; use beam or sample")
    return decoding


def source_seed(seed: int | None, number: int) -> int | None:
    """Sampling seed of source `number`, counted from 0; differs between sources, reproducible between runs."""
    if seed is None:
        return None
    return int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1, np.uint64)[0])


def check_texts(texts: Sequence[str], name: str) -> None:
    """Raise if `texts` is a single string instead of a list."""
    if isinstance(texts, str):
        raise InputError(f"{name} is one text; give a list of texts, such as [text]")


def check_aligned(sources: Sequence[str], targets: Sequence[str]) -> None:
    """Raise unless there is at least one pair and every source has a target."""
    for texts, name in ((sources, "sources"), (targets, "targets")):
        check_texts(texts, name)
    if len(sources) != len(targets):
        raise InputError(f"{len(sources)} sources but {len(targets)} targets; give one target for each source")
    if not len(sources):
        raise InputError("there are no pairs; give at least one source and its target")


def encode_with_eos(tokenizer: Tokenizer, text: str) -> Ids:
    """Encode a line and append `</s>`."""
    return np.append(tokenizer.encode(text), tokenizer.eos).astype(np.int64)


def check_length(ids: Ids, config: "PairConfig", name: str) -> Ids:
    """Return `ids` unchanged; raise if they are too long for a Transformer."""
    if config.family == "transformer" and len(ids) > config.longest:
        raise InputError(
            f"{name} has {len(ids)} tokens with </s>, but this model reads at most {config.longest}; "
            "cut it into sentences, or train with --set longest=…"
        )
    return ids


def make_tokenizers(
    data: SentencePairs,
    is_joint: bool,
    tokenizer: str | Path,
    tokenizer_settings: dict[str, object],
    progress: Progress,
) -> tuple[Tokenizer, Tokenizer]:
    """Train or load the source and target tokenizers, or one joint tokenizer for both."""
    if is_joint:
        joint = make_tokenizer([*data.sources, *data.targets], tokenizer, tokenizer_settings, progress)
        return joint, joint
    source = make_tokenizer(data.sources, tokenizer, tokenizer_settings, progress)
    return source, make_tokenizer(data.targets, tokenizer, tokenizer_settings, progress)


def encode_pairs(
    data: SentencePairs, source: Tokenizer, target: Tokenizer, longest: int
) -> tuple[list[Ids], list[Ids]]:
    """Encode the pairs; drop those longer than `longest`, with a warning."""
    pairs = [
        (encode_with_eos(source, s), encode_with_eos(target, t))
        for s, t in zip(data.sources, data.targets, strict=True)
    ]
    usable = [pair for pair in pairs if max(map(len, pair)) <= longest]
    if not usable:
        raise InputError(f"{data.name}: every pair is longer than {longest} tokens; increase longest")
    if len(usable) < len(pairs):
        message = f"{data.name}: {len(pairs) - len(usable)} pairs are longer than {longest} tokens and left out"
        warnings.warn(f"{message}; increase longest to keep them", ChainruleWarning, stacklevel=4)
    return [s for s, _ in usable], [t for _, t in usable]


def count_words(text: str) -> int:
    """Number of words and punctuation marks, independent of the tokenizer."""
    return len(WORDS.findall(text))


def _drop_empty(pairs: SentencePairs, other: Sequence[str] | None) -> tuple[SentencePairs, Sequence[str] | None]:
    """Drop pairs with an empty side, and the corresponding lines of `other`."""
    triples = zip(pairs.sources, pairs.targets, pairs.numbers, strict=True)
    complete = [(i, *triple) for i, triple in enumerate(triples) if triple[0].strip() and triple[1].strip()]
    if not complete:
        raise InputError(f"{pairs.name}: none of {len(pairs)} pairs has text on both sides; give at least one")
    rows, sources, targets, numbers = zip(*complete, strict=True)
    lines = len(pairs) + pairs.left_out
    if other is not None:
        if not isinstance(other, str) and len(other) == lines > len(complete):
            other = [other[i] for i in ([n - 1 for n in numbers] if pairs.left_out else rows)]
        if not isinstance(other, str) and len(other) != len(complete):
            raise InputError(f"other has {len(other)} texts but {pairs.name} has {lines} pairs; give one per pair")
        check_references(other, targets)  # fail before translating
    return SentencePairs(sources, targets, pairs.name, numbers, lines - len(complete)), other


def _warn_short_texts(translations: Sequence[str], targets: Sequence[str]) -> None:
    short = [
        name for name, texts in (("translations", translations), ("targets", targets)) if not has_four_grams(texts)
    ]
    if short:
        message = f"BLEU uses n-grams of up to 4 words, but the {' and the '.join(short)} are shorter"
        warnings.warn(f"{message}; use the exact matches and chrF instead", ChainruleWarning, stacklevel=3)


def _interval(comparison: Comparison) -> dict[str, Any]:
    return {
        "other_bleu": comparison.b,
        "difference": comparison.difference,
        "low": comparison.low,
        "high": comparison.high,
        "p_value": comparison.p_value,
        "is_two_sided": True,
        "resamples": comparison.samples,
    }
