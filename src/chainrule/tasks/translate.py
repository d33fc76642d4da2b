"""Pairs of texts: learn to turn one into the other, translate, score a given translation, show where it looked.

Lives here: text in, text out. Not here: the networks (neural/seq2seq.py, neural/encoder_decoder.py), the search
(decoding/beam.py), figures (evaluation/overlap.py).
"""

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
from chainrule.decoding.prompt import Prompt, read
from chainrule.decoding.settings import Decoding
from chainrule.errors import ConfigError
from chainrule.lm import Floats, Ids
from chainrule.model import Origin
from chainrule.neural import conditional, weights
from chainrule.neural.conditional import SIDE_BY_SIDE, Conditional, mean_nats
from chainrule.neural.device import choose, device_of
from chainrule.neural.learning import Plan, learn
from chainrule.neural.pairs import Collate, PairConfig, PairNetwork, pair_loss
from chainrule.progress import Progress, as_progress, silent
from chainrule.tasks import store, translation
from chainrule.tasks.running import Running, digest
from chainrule.tasks.translation import Alignment, Translation, readable, with_end
from chainrule.text.pairs import Pairs, read_pairs
from chainrule.tokenizers.tokenizer import Tokenizer
from chainrule.training.examples import Examples

if TYPE_CHECKING:
    from chainrule.tasks.translation_report import TranslationReport

Config = PairConfig
BY_SOURCE = 1_000_000  # as max_tokens: 2 · S + 20 for a source of S tokens, `</s>` counted
BEAM = Decoding(strategy="beam", beam_size=5, length_penalty=1.0, max_tokens=BY_SOURCE)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Translator:
    """A trained model of p(target | source)."""

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
        """Weights that were learnt; a shared matrix counts once."""
        return sum(p.numel() for p in self.network.parameters())

    @property
    def validation(self) -> dict[str, float]:
        """What the held-out pairs said when it was trained; empty without such pairs."""
        names = ("nats_per_token", "perplexity")
        return {name: self.metrics[f"valid_{name}"] for name in names if f"valid_{name}" in self.metrics}

    def given(self, source: str) -> Conditional:
        """The language model of what this source becomes; its tokenizer is `target`."""
        return conditional.given(self.network, self.target.vocabulary, [self._read(source, 1)])[0]

    def translate(self, source: str, **chosen: Any) -> Translation:
        """The best translation; `chosen` are settings of decoding (strategy, beam_size, temperature)."""
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
        """The `num` best, or so many samples, of each source; an empty source becomes an empty translation.

        `chosen` are settings of decoding over `BEAM`; a whole Decoding is taken as it is, with its own defaults.
        A translation has at most `max_tokens` tokens, by default 2 · S + 20 for a source of S; `<unk>` is
        never one of them. Samples follow from the seed and the source's place in the list, of which these
        sources are the part from `first` on.
        """
        progress = as_progress(progress)
        decoding = translation.decoding_of(decoding, chosen, num)
        translation.check_texts(sources, "sources")
        ids = [self._read(text, first + i) for i, text in enumerate(sources, start=1)]
        p = decoding.length_penalty
        found: list[list[Translation]] = [[Translation(text, "", [], [], [], p, True)] for text in sources]
        order = sorted((i for i, text in enumerate(sources) if text.strip()), key=lambda i: len(ids[i]))
        without_unk = dataclasses.replace(self.target.vocabulary, closed=True)
        for begin in range(0, len(order), SIDE_BY_SIDE):
            rows = order[begin : begin + SIDE_BY_SIDE]
            progress("translating", begin, len(order))
            models = conditional.given(self.network, without_unk, [ids[i] for i in rows])
            settings_ = [self._for_source(decoding, first + i, len(ids[i])) for i in rows]
            ways = self._samples if decoding.strategy == "sample" else self._searches
            for i, made in zip(rows, ways(models, [sources[i] for i in rows], settings_, num), strict=True):
                found[i] = made
        return found

    def _for_source(self, decoding: Decoding, number: int, length: int) -> Decoding:
        """The same with a seed and a length of this source's own; no more than can be read."""
        most = 2 * length + 20 if decoding.max_tokens == BY_SOURCE else decoding.max_tokens
        most = min(most, self.config.longest) if self.config.family == "transformer" else most
        return dataclasses.replace(decoding, max_tokens=most, seed=translation.seed_of(decoding.seed, number))

    def _searches(
        self, models: list[Conditional], texts: list[str], chosen: list[Decoding], num: int
    ) -> Iterator[list[Translation]]:
        continuation = Continuation(self.target, "", chosen[0].stop)
        prompt = Prompt((), models[0].vocabulary, continuation.is_stopped)
        if chosen[0].strategy == "greedy":
            chosen = [dataclasses.replace(one, strategy="beam", beam_size=1) for one in chosen]
        searches = [
            beam.steps(*read(lm, prompt), prompt, one, num=num) for lm, one in zip(models, chosen, strict=True)
        ]
        p = chosen[0].length_penalty
        for text, hypotheses in zip(texts, beam.together(models[0], models[0].join, searches), strict=True):
            made = [
                Translation.of(self.target, text, continuation.text(h.ids), h.ids, h.log_probs, p, h.is_finished)
                for h in hypotheses
            ]
            yield translation.ranked(made)

    def _samples(
        self, models: list[Conditional], texts: list[str], chosen: list[Decoding], num: int
    ) -> Iterator[list[Translation]]:
        for lm, text, one in zip(models, texts, chosen, strict=True):
            drawn, p = generate(lm, self.target, "", one, num=num), one.length_penalty
            yield [
                Translation.of(self.target, text, g.text, g.ids, g.log_probs, p, g.finish_reason == "stop")
                for g in drawn
            ]

    def score(self, sources: Sequence[str], targets: Sequence[str], progress: Progress | bool = silent) -> Floats:
        """(N,) log p(target | source) in nats, `</s>` included: for re-ranking, or to find what does not belong.

        An empty target is `</s>` alone; an empty source has no translations to compare, and its score is NaN.
        """
        progress = as_progress(progress)
        translation.check_aligned(sources, targets)
        data = self._collate(sources, targets)
        scores, done = np.zeros(len(sources)), 0
        for rows in conditional.batches([len(t) for t in data.targets]):
            progress("scoring", done, len(sources))
            scores[rows] = -conditional.nats(self.network, data(rows))
            done += len(rows)
        scores[[not text.strip() for text in sources]] = np.nan
        return scores

    def evaluate(
        self,
        pairs: str | Path | Sequence[str | Path] | Pairs,
        decoding: Decoding = BEAM,
        *,
        other: Sequence[str] | None = None,
        progress: Progress | bool = silent,
        **chosen: Any,
    ) -> "TranslationReport":
        """Translate as `translate_all` does and compare; `other` are another system's translations."""
        progress = as_progress(progress)
        from chainrule.tasks.translation_report import evaluate

        decoding = translation.decoding_of(decoding, chosen)
        data = pairs if isinstance(pairs, Pairs) else read_pairs(pairs)
        return evaluate(self, data, decoding, other=other, progress=progress)

    def align(self, source: str, target: str | None = None) -> Alignment:
        """Where a translation, its own where none is given, looked."""
        if self.config.attention == "none":
            raise ConfigError(
                "this model has no attention: it translates from the last state of its encoder and looks nowhere; "
                "train one with --attention additive"
            )
        ids = self._read(source, 1)
        own = self.translate(source).ids if target is None else []
        out = np.array(own, dtype=np.int64) if own else self._written(target or "", 1)
        found = conditional.alignment(self.network, ids, out, self.target.vocabulary)
        return Alignment(self.source.tokens(ids.tolist()), self.target.tokens(out.tolist()), found)

    def ids_of(self, source: str, target: str, line: int = 1) -> tuple[Ids, Ids]:
        """A pair as it is read, each part with its `</s>`; refused where a Transformer has no positions for it."""
        return self._read(source, line), self._written(target, line)

    def _collate(self, sources: Sequence[str], targets: Sequence[str]) -> Collate:
        ids = [self._read(text, i) for i, text in enumerate(sources, start=1)]
        out = [self._written(text, i) for i, text in enumerate(targets, start=1)]
        return Collate(ids, out, self.target.vocabulary, device_of(self.network))

    def _read(self, text: str, line: int) -> Ids:
        return readable(with_end(self.source, text), self.config, f"source {line}")

    def _written(self, text: str, line: int) -> Ids:
        return readable(with_end(self.target, text), self.config, f"target {line}")

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model folder; another model or an unfinished run there is replaced only with `force`."""
        tokenizers = {"text": self.source} if self.config.joint else {"source": self.source, "target": self.target}
        parts = store.Parts(
            task="translate",
            config=self.config,
            tokenizers=tokenizers,
            more={},
            origin=self.origin,
            metrics=self.metrics,
        )
        files = {weights.FILE: weights.to_bytes(self.network)}
        store.save(path, parts, files | ({store.LOG: self.log} if self.log else {}), force=force)


def load(path: str | Path, device: str = "auto") -> Translator:
    """The translator of a folder, every file verified first."""
    sealed, parts = store.load(path, "translate", PairConfig, _roles)
    config, tokenizers = parts.config, parts.tokenizers
    source, target = (tokenizers["text" if config.joint else role] for role in ("source", "target"))
    network = weights.restore(
        sealed, lambda: conditional.build(config, source.vocab_size, target.vocabulary), config.layers
    )
    return Translator(
        network=network.to(choose(device)).eval(),
        config=config,
        source=source,
        target=target,
        origin=parts.origin,
        metrics=dict(parts.metrics),
        log=sealed.bytes(store.LOG) if store.LOG in sealed.files else b"",
    )


def _roles(config: PairConfig) -> tuple[str, ...]:
    return ("text",) if config.joint else ("source", "target")


def train(
    family: str,
    pairs: Sequence[str | Path] | Pairs,
    *,
    valid: Sequence[str | Path] | Pairs | None = None,
    tokenizer: str | Path = "bpe",
    running: Running | None = None,
    **chosen: Any,
) -> Translator:
    """Learn from pairs: two files, or one table; `chosen` are settings of the tokenizer and of the model."""
    running = Running.of(running, chosen)
    wanted, own = split_settings(chosen)
    config = settings.make(PairConfig, {"family": family, **own}, "model")
    data, held_out = (_pairs(texts) for texts in (pairs, valid))
    assert data is not None
    source, target = translation.make_tokenizers(data, config.joint, tokenizer, wanted, running.progress)
    kept = translation.encoded(data, source, target, config.longest)
    watched = None if held_out is None else translation.encoded(held_out, source, target, config.longest)
    texts = [text for each in (data, held_out) if each is not None for text in (each.sources, each.targets)]
    job = running.job("translate", config, texts, {"source": source, "target": target})
    origin = running.origin("translate", data.name, digest([*data.sources, *data.targets]))

    def plan(network: PairNetwork, device: Any) -> Plan:
        collate = Collate(*kept, target.vocabulary, device)
        lengths = np.array([len(s) + len(t) for s, t in zip(*kept, strict=True)])
        validate = None
        if watched is not None:
            held = Collate(*watched, target.vocabulary, device)
            validate = lambda: mean_nats(network, held)  # noqa: E731
        source_ = Examples(lengths, collate, config, job.seed)
        return Plan(source=source_, objective=pair_loss, validate=validate)

    start = time.perf_counter()
    network, log = learn(job, config, lambda: conditional.build(config, source.vocab_size, target.vocabulary), plan)
    metrics: dict[str, Any] = {"train_pairs": len(kept[0]), "train_seconds": round(time.perf_counter() - start, 3)}
    metrics |= job.summary
    if watched is not None:
        nats = mean_nats(network, Collate(*watched, target.vocabulary, device_of(network)))
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


def _pairs(texts: Sequence[str | Path] | Pairs | None) -> Pairs | None:
    return texts if texts is None or isinstance(texts, Pairs) else read_pairs(texts)
