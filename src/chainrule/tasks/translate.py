"""Translation: train sequence-to-sequence models on sentence pairs, translate, score, align, save and load."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from chainrule import config as settings
from chainrule.api import split_settings
from chainrule.decoding import beam
from chainrule.decoding.continuation import Continuation
from chainrule.decoding.generate import generate
from chainrule.decoding.prompt import Prompt, read_prompt
from chainrule.decoding.settings import Decoding
from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids
from chainrule.model import Origin
from chainrule.neural import conditional, weights
from chainrule.neural.conditional import BATCH_SIZE, ConditionalLM, mean_nats
from chainrule.neural.device import device_of, select_device
from chainrule.neural.learning import TrainingPlan, fit
from chainrule.neural.pairs import PairCollator, PairConfig, PairNetwork, pair_loss
from chainrule.progress import Progress, as_progress, silent
from chainrule.tasks import store, translation
from chainrule.tasks.running import RunOptions, digest_texts
from chainrule.tasks.translation import Alignment, Translation, check_length, encode_with_eos
from chainrule.text.pairs import SentencePairs, read_pairs
from chainrule.tokenizers.tokenizer import Tokenizer
from chainrule.training.examples import ExampleBatches

if TYPE_CHECKING:
    from chainrule.tasks.translation_report import TranslationReport

Config = PairConfig
FROM_SOURCE_LENGTH = 1_000_000  # max_tokens value that means 2 · S + 20 for a source of S tokens, `</s>` included
BEAM = Decoding(strategy="beam", beam_size=5, length_penalty=1.0, max_tokens=FROM_SOURCE_LENGTH)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Translator:
    """A trained translation model p(target | source)."""

    task: ClassVar = "translate"
    network: PairNetwork
    config: PairConfig
    source: Tokenizer
    target: Tokenizer
    origin: Origin = field(default_factory=Origin)
    metrics: dict[str, Any] = field(default_factory=dict)
    log: bytes = b""

    def __repr__(self) -> str:
        return f"<{self.config.family} translator of {self.origin.text}: {self.parameters:,} parameters>"

    @property
    def parameters(self) -> int:
        """Number of weights; tied matrices count once."""
        return sum(p.numel() for p in self.network.parameters())

    @property
    def validation(self) -> dict[str, float]:
        """Validation metrics recorded in training; empty without validation pairs."""
        names = ("nats_per_token", "perplexity")
        return {name: self.metrics[f"valid_{name}"] for name in names if f"valid_{name}" in self.metrics}

    def condition_on(self, source: str) -> ConditionalLM:
        """Language model p(target | source) for this source, over the vocabulary of `target`."""
        return conditional.condition_on(self.network, self.target.vocabulary, [self._encode_source(source, 1)])[0]

    def translate(self, source: str, **chosen: Any) -> Translation:
        """Best translation; `chosen` holds decoding settings (strategy, beam_size, temperature)."""
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
        """The `num` best translations or samples of each source; an empty source gives an empty translation.

        `chosen` overrides settings of `decoding`. A translation has at most `max_tokens` tokens, by default
        2 · S + 20 for a source of S tokens, and never contains `<unk>`. Samples depend on the seed and the index of
        the source; `first` is the index of the first of these sources.
        """
        progress = as_progress(progress)
        decoding = translation.override_decoding(decoding, chosen, num)
        translation.check_texts(sources, "sources")
        ids = [self._encode_source(text, first + i) for i, text in enumerate(sources, start=1)]
        p = decoding.length_penalty
        translations: list[list[Translation]] = [[Translation(text, "", [], [], [], p, True)] for text in sources]
        order = sorted((i for i, text in enumerate(sources) if text.strip()), key=lambda i: len(ids[i]))
        without_unk = dataclasses.replace(self.target.vocabulary, closed=True)
        for start in range(0, len(order), BATCH_SIZE):
            rows = order[start : start + BATCH_SIZE]
            progress("translating", start, len(order))
            models = conditional.condition_on(self.network, without_unk, [ids[i] for i in rows])
            decodings = [self._decoding_for_source(decoding, first + i, len(ids[i])) for i in rows]
            decode = self._sample if decoding.strategy == "sample" else self._beam_search
            for i, candidates in zip(rows, decode(models, [sources[i] for i in rows], decodings, num), strict=True):
                translations[i] = candidates
        return translations

    def _decoding_for_source(self, decoding: Decoding, number: int, length: int) -> Decoding:
        """Decoding settings with the seed and maximum length of one source."""
        max_tokens = 2 * length + 20 if decoding.max_tokens == FROM_SOURCE_LENGTH else decoding.max_tokens
        max_tokens = min(max_tokens, self.config.longest) if self.config.family == "transformer" else max_tokens
        return dataclasses.replace(
            decoding, max_tokens=max_tokens, seed=translation.source_seed(decoding.seed, number)
        )

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
        p = decodings[0].length_penalty
        for text, hypotheses in zip(texts, beam.search_batch(models[0], models[0].join, searches), strict=True):
            candidates = [
                Translation.of(self.target, text, continuation.text(h.ids), h.ids, h.log_probs, p, h.is_finished)
                for h in hypotheses
            ]
            yield translation.rank_translations(candidates)

    def _sample(
        self, models: list[ConditionalLM], texts: list[str], decodings: list[Decoding], num: int
    ) -> Iterator[list[Translation]]:
        for lm, text, decoding in zip(models, texts, decodings, strict=True):
            samples, p = generate(lm, self.target, "", decoding, num=num), decoding.length_penalty
            yield [
                Translation.of(self.target, text, g.text, g.ids, g.log_probs, p, g.finish_reason == "stop")
                for g in samples
            ]

    def score(self, sources: Sequence[str], targets: Sequence[str], progress: Progress | bool = silent) -> Floats:
        """(N,) log p(target | source) in nats, `</s>` included, for reranking or filtering pairs.

        An empty target is `</s>` alone; the score of an empty source is NaN.
        """
        progress = as_progress(progress)
        translation.check_aligned(sources, targets)
        data = self._collate(sources, targets)
        scores, done = np.zeros(len(sources)), 0
        for rows in conditional.batch_by_length([len(t) for t in data.targets]):
            progress("scoring", done, len(sources))
            scores[rows] = -conditional.pair_nats(self.network, data(rows))
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
    ) -> "TranslationReport":
        """Translate and compare with the references; `other` holds translations of another system."""
        progress = as_progress(progress)
        from chainrule.tasks.translation_report import evaluate

        decoding = translation.override_decoding(decoding, chosen)
        data = pairs if isinstance(pairs, SentencePairs) else read_pairs(pairs)
        return evaluate(self, data, decoding, other=other, progress=progress)

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
        attention = conditional.attention_alignment(self.network, ids, target_ids, self.target.vocabulary)
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

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model folder; an existing model or unfinished run is replaced only with `force`."""
        tokenizers = {"text": self.source} if self.config.joint else {"source": self.source, "target": self.target}
        parts = store.ModelParts(
            task="translate",
            config=self.config,
            tokenizers=tokenizers,
            extra={},
            origin=self.origin,
            metrics=self.metrics,
        )
        files = {weights.FILE: weights.serialize(self.network)}
        store.save(path, parts, files | ({store.LOG_FILE: self.log} if self.log else {}), force=force)


def load(path: str | Path, device: str = "auto") -> Translator:
    """Verify and load a translator."""
    sealed, parts = store.load(path, "translate", PairConfig, _tokenizer_roles)
    config, tokenizers = parts.config, parts.tokenizers
    source, target = (tokenizers["text" if config.joint else role] for role in ("source", "target"))
    network = weights.load_network(
        sealed, lambda: conditional.build(config, source.vocab_size, target.vocabulary), config.layers
    )
    return Translator(
        network=network.to(select_device(device)).eval(),
        config=config,
        source=source,
        target=target,
        origin=parts.origin,
        metrics=dict(parts.metrics),
        log=sealed.bytes(store.LOG_FILE) if store.LOG_FILE in sealed.files else b"",
    )


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
    """Train on sentence pairs, two files or one table; `chosen` holds tokenizer and model settings."""
    options = RunOptions.merge(options, chosen)
    tokenizer_settings, model_settings = split_settings(chosen)
    config = settings.build_config(PairConfig, {"family": family, **model_settings}, "model")
    data, valid_data = (_read_pairs(texts) for texts in (pairs, valid))
    assert data is not None
    source, target = translation.make_tokenizers(
        data, config.joint, tokenizer, tokenizer_settings, options.progress
    )
    encoded = translation.encode_pairs(data, source, target, config.longest)
    valid_encoded = (
        None if valid_data is None else translation.encode_pairs(valid_data, source, target, config.longest)
    )
    texts = [
        text for corpus in (data, valid_data) if corpus is not None for text in (corpus.sources, corpus.targets)
    ]
    job = options.job("translate", config, texts, {"source": source, "target": target})
    origin = options.origin("translate", data.name, digest_texts([*data.sources, *data.targets]))

    def plan(network: PairNetwork, device: Any) -> TrainingPlan:
        collate = PairCollator(*encoded, target.vocabulary, device)
        lengths = np.array([len(s) + len(t) for s, t in zip(*encoded, strict=True)])
        validate = None
        if valid_encoded is not None:
            valid_batches = PairCollator(*valid_encoded, target.vocabulary, device)
            validate = lambda: mean_nats(network, valid_batches)  # noqa: E731
        examples = ExampleBatches(lengths, collate, config, job.seed)
        return TrainingPlan(source=examples, objective=pair_loss, validate=validate)

    start = time.perf_counter()
    network, log = fit(job, config, lambda: conditional.build(config, source.vocab_size, target.vocabulary), plan)
    metrics: dict[str, Any] = {
        "train_pairs": len(encoded[0]),
        "train_seconds": round(time.perf_counter() - start, 3),
    }
    metrics |= job.summary
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
