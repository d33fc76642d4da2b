"""Linear interpolation of models: p(w | h) = Σ_i λ_i p_i(w | h), with λ fitted by EM on held-out text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from chainrule import config as settings
from chainrule import families
from chainrule.data.encoded import EncodedText
from chainrule.data.training_data import TrainingData
from chainrule.errors import ConfigError, InputError
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import AnyModel, Batch, Context, Floats, Ids, State, Vocabulary
from chainrule.progress import Progress, silent
from chainrule.storage.verified_dir import Content, VerifiedDir

MAX_DEPTH = 8  # nesting depth of mixtures


@dataclass(frozen=True, slots=True)
class Component:
    """One component model, with its family and config for saving."""

    family: str
    config: Any
    lm: AnyModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Interpolation weights, and the family, config and context of each component as in `config.json`."""

    weights: tuple[float, ...]
    components: tuple[dict[str, Any], ...]

    def __post_init__(self) -> None:
        is_distribution = all(w >= 0 for w in self.weights) and abs(sum(self.weights) - 1) < 1e-6
        if len(self.weights) != len(self.components) or not self.weights or not is_distribution:
            raise ConfigError(
                f"a mixture needs one weight per component, and the weights must sum to 1; got {self.weights}"
            )
        for component in self.components:
            _check_component(component)


def _check_component(component: Any, depth: int = 1) -> None:
    """Raise unless a saved component has a family, a context and a config, and is not nested too deeply."""
    if depth > MAX_DEPTH:
        raise ConfigError(f"mixtures of mixtures are nested deeper than {MAX_DEPTH}")
    match component:
        case {"family": str(family), "context": "line" | "stream", "model": dict(model)} if len(component) == 3:
            inner = model.get("components") if family == "mixture" else ()
            for part in inner if isinstance(inner, list | tuple) else ():
                _check_component(part, depth + 1)
        case _:
            raise ConfigError("a component of a mixture needs a family, a context (line or stream) and a config")


@dataclass(frozen=True, slots=True)
class MixtureState:
    """States of the components."""

    parts: tuple[State, ...]

    def select(self, rows: Ids) -> Self:
        """Return the states of these rows."""
        return type(self)(tuple(part.select(rows) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Mixture:
    """Linear interpolation; each component keeps its own context rule."""

    components: tuple[Component, ...]
    weights: tuple[float, ...]
    vocabulary: Vocabulary
    engine: ClassVar[None] = None
    network: ClassVar[None] = None

    @property
    def context(self) -> Context:
        """`stream` if any component is; `line` components reset themselves at `</s>`."""
        return "stream" if any(c.lm.context == "stream" for c in self.components) else "line"

    @property
    def is_normalized(self) -> bool:
        """Whether all components are normalized."""
        return all(c.lm.is_normalized for c in self.components)

    def start(self, rows: int) -> MixtureState:
        """Return the initial states of all components."""
        return MixtureState(tuple(c.lm.start(rows) for c in self.components))

    def join(self, states: Sequence[MixtureState]) -> MixtureState:
        """Concatenate the rows of several states."""
        parts = zip(self.components, zip(*(state.parts for state in states), strict=True), strict=True)
        return MixtureState(tuple(c.lm.join(part_states) for c, part_states in parts))

    def step(self, state: MixtureState, ids: Ids) -> tuple[Floats, MixtureState]:
        """(K,) -> (K, V)."""
        return self._mix_pairs(c.lm.step(part, ids) for c, part in self._parts(state))

    def score(self, batch: Batch, state: MixtureState) -> tuple[Floats, MixtureState]:
        """(B, T) -> (B, T)."""
        return self._mix_pairs(c.lm.score(batch, part) for c, part in self._parts(state))

    def score_lines(self, ids: Ids) -> Floats | None:
        """(N,) -> (N,); None unless all components score whole lines."""
        log_probs = []
        for component in self.components:
            scores = component.lm.score_lines(ids)
            if scores is None:
                return None
            log_probs.append(scores)
        return self._mix(log_probs)

    def distributions(self, batch: Batch, state: MixtureState) -> tuple[Floats, MixtureState]:
        """(B, T) -> (B, T, V)."""
        return self._mix_pairs(c.lm.distributions(batch, part) for c, part in self._parts(state))

    def advance(self, batch: Batch, state: MixtureState) -> MixtureState:
        """Return the states of all components after a batch."""
        return MixtureState(tuple(c.lm.advance(batch, part) for c, part in self._parts(state)))

    def _parts(self, state: MixtureState) -> Iterator[tuple[Component, State]]:
        return zip(self.components, state.parts, strict=True)

    def _mix_pairs(self, pairs: Iterable[tuple[Floats, State]]) -> tuple[Floats, MixtureState]:
        log_probs, states = zip(*pairs, strict=True)
        return self._mix(log_probs), MixtureState(states)

    def _mix(self, log_probs: Sequence[Floats]) -> Floats:
        with np.errstate(divide="ignore"):
            weighted = np.stack([np.log(w) + p for w, p in zip(self.weights, log_probs, strict=True)])
        return np.asarray(np.logaddexp.reduce(weighted, axis=0))


def fit_to_log_probs(components: Sequence[Component], log_probs: Floats, vocabulary: Vocabulary) -> Mixture:
    """Fit the interpolation weights to the (M, N) token log-probabilities of a held-out text."""
    return Mixture(tuple(components), tuple(em_weights(log_probs).tolist()), vocabulary)


def component_log_probs(components: Sequence[Component], text: EncodedText, progress: Progress = silent) -> Floats:
    """Return (M, N) log-probabilities of N tokens under M components."""
    total = len(components) * len(text.ids)

    def after(done_before: int) -> Progress:
        return lambda what, done, _: progress(what, done_before + done, total)

    scored = [token_log_probs(c.lm, text, after(i * len(text.ids))) for i, c in enumerate(components)]
    return np.stack(scored)


def em_weights(log_probs: Floats, iterations: int = 1000) -> Floats:
    """Return the λ that maximize Σ_t log Σ_i λ_i p_i(t), from (M, N) log-probabilities.

    λ_i ← mean over t of λ_i p_i(t) / Σ_j λ_j p_j(t); the likelihood never decreases. EM converges slowly to a
    corner of the simplex, so the best single model is returned if it is better than the EM result.
    """
    best = log_probs.max(axis=0)
    if np.isneginf(best).all():
        raise InputError("all models give every token of the held-out text probability 0; use another text")
    p = np.exp(log_probs[:, ~np.isneginf(best)] - best[~np.isneginf(best)])  # (M, N)
    weights = np.full(len(p), 1 / len(p))
    for _ in range(iterations):
        posterior = weights[:, None] * p
        updated = (posterior / posterior.sum(axis=0)).mean(axis=1)
        if np.abs(updated - weights).max() < 1e-7:
            break
        weights = updated
    single_best = np.eye(len(p))[np.log(np.maximum(p, np.finfo(float).tiny)).sum(axis=1).argmax()]
    return max(weights / weights.sum(), single_best, key=lambda w: float(np.log(np.maximum(w @ p, 1e-300)).sum()))


def mixture_config(mixture: Mixture) -> Config:
    """Return the config to save."""
    return Config(
        weights=mixture.weights,
        components=tuple(
            {"family": c.family, "context": c.lm.context, "model": settings.to_json(c.config)}
            for c in mixture.components
        ),
    )


def train(data: TrainingData, config: Config) -> Mixture:
    """Raise: a mixture is built from trained models, not from text."""
    raise ConfigError("a mixture is made from models: chainrule mix MODEL MODEL --held-out FILE --out DIR")


def files(lm: Mixture) -> dict[str, Content]:
    """Return the files of all components, in one folder per component."""
    return {
        f"components/{i}/{name}": content
        for i, c in enumerate(lm.components)
        for name, content in families.get(c.family).files(c.lm).items()
    }


def load(
    files: VerifiedDir, config: Config, vocabulary: Vocabulary, context: Context, device: str = "auto"
) -> Mixture:
    """Load a mixture from the files of its components."""
    components = []
    for i, saved in enumerate(config.components):
        family = families.get(saved["family"])
        component_config = settings.build_config(family.Config, saved["model"], "model", is_saved=True)
        lm = family.load(files.subfolder(f"components/{i}"), component_config, vocabulary, saved["context"], device)
        components.append(Component(saved["family"], component_config, lm))
    return Mixture(tuple(components), config.weights, vocabulary)


def parameters(lm: Mixture) -> int:
    """Return the number of parameters of the components plus the weights."""
    return len(lm.weights) + sum(families.get(c.family).parameters(c.lm) for c in lm.components)


def candidates() -> list[Config]:
    """Return no candidates: `compare` does not train mixtures."""
    return []


def facets(config: Config) -> dict[str, str | int]:
    """Return the number of components."""
    return {"components": len(config.components)}
