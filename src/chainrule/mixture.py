"""Models of any families mixed: p(w | h) = Σ_i λ_i p_i(w | h), λ by expectation maximisation on held-out text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np

from chainrule import config as settings
from chainrule import families
from chainrule.data.encoded import Encoded
from chainrule.data.training import TrainingData
from chainrule.errors import ConfigError, InputError
from chainrule.evaluation.scores import token_log_probs
from chainrule.folder import Content, Sealed
from chainrule.lm import Advancing, AnyModel, Batch, Context, Distributing, Floats, Ids, Joining, State, Vocabulary
from chainrule.progress import Progress, silent

DEEPEST = 8  # mixtures within mixtures


@dataclass(frozen=True, slots=True)
class Component:
    """One of the models mixed, with what is needed to save it."""

    family: str
    config: Any
    lm: AnyModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The weights, and each component's family, config and context as they stand in its own config.json."""

    weights: tuple[float, ...]
    components: tuple[dict[str, Any], ...]

    def __post_init__(self) -> None:
        is_distribution = all(w >= 0 for w in self.weights) and abs(sum(self.weights) - 1) < 1e-6
        if len(self.weights) != len(self.components) or not self.weights or not is_distribution:
            raise ConfigError(f"a mixture needs one weight a component, summing to 1, not {self.weights}")
        for component in self.components:
            _check_component(component)


def _check_component(component: Any, depth: int = 1) -> None:
    """Refuse what is not a component's family, context and config, and mixtures nested too deep."""
    if depth > DEEPEST:
        raise ConfigError(f"mixtures of mixtures are nested deeper than {DEEPEST}")
    match component:
        case {"family": str(family), "context": "line" | "stream", "model": dict(model)} if len(component) == 3:
            inner = model.get("components") if family == "mixture" else ()
            for part in inner if isinstance(inner, list | tuple) else ():
                _check_component(part, depth + 1)
        case _:
            raise ConfigError("a component of a mixture is its family, its context, line or stream, and its config")


@dataclass(frozen=True, slots=True)
class MixtureState:
    """Every component's own state."""

    parts: tuple[State, ...]

    def select(self, rows: Ids) -> Self:
        """The states of these rows."""
        return type(self)(tuple(part.select(rows) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Mixture:
    """A linear interpolation; each component keeps its own context rule."""

    components: tuple[Component, ...]
    weights: tuple[float, ...]
    vocabulary: Vocabulary

    @property
    def context(self) -> Context:
        """`stream` where any component reads so: the others begin anew at `</s>` by themselves."""
        return "stream" if any(c.lm.context == "stream" for c in self.components) else "line"

    @property
    def is_normalized(self) -> bool:
        """Whether all components are distributions."""
        return all(c.lm.is_normalized for c in self.components)

    def start(self, rows: int) -> MixtureState:
        """Every component at its start."""
        return MixtureState(tuple(c.lm.start(rows) for c in self.components))

    def join(self, states: Sequence[MixtureState]) -> MixtureState:
        """The rows of several states in one, in their order; each component joins its own."""
        parts = zip(self.components, zip(*(state.parts for state in states), strict=True), strict=True)
        return MixtureState(tuple(cast("Joining[Any]", c.lm).join(own) for c, own in parts))

    def step(self, state: MixtureState, ids: Ids) -> tuple[Floats, MixtureState]:
        """(K,) -> (K, V)."""
        stepped = [c.lm.step(part, ids) for c, part in zip(self.components, state.parts, strict=True)]
        return self._mix([log_p for log_p, _ in stepped]), MixtureState(tuple(s for _, s in stepped))

    def score(self, batch: Batch, state: MixtureState) -> tuple[Floats, MixtureState]:
        """(B, T) -> (B, T)."""
        scored = [c.lm.score(batch, part) for c, part in zip(self.components, state.parts, strict=True)]
        return self._mix([log_p for log_p, _ in scored]), MixtureState(tuple(s for _, s in scored))

    def distributions(self, batch: Batch, state: MixtureState) -> tuple[Floats, MixtureState]:
        """(B, T) -> (B, T, V)."""
        asked = zip(self.components, state.parts, strict=True)
        found = [cast("Distributing[Any]", c.lm).distributions(batch, part) for c, part in asked]
        return self._mix([log_p for log_p, _ in found]), MixtureState(tuple(s for _, s in found))

    def advance(self, batch: Batch, state: MixtureState) -> MixtureState:
        """Every component reads."""
        asked = zip(self.components, state.parts, strict=True)
        return MixtureState(tuple(cast("Advancing[Any]", c.lm).advance(batch, part) for c, part in asked))

    def _mix(self, log_probs: Sequence[Floats]) -> Floats:
        with np.errstate(divide="ignore"):
            weighted = np.stack([np.log(w) + p for w, p in zip(self.weights, log_probs, strict=True)])
        return np.asarray(np.logaddexp.reduce(weighted, axis=0))


def fit(
    components: Sequence[Component], held_out: Encoded, vocabulary: Vocabulary, progress: Progress = silent
) -> Mixture:
    """Mix with the weights that make `held_out` most probable."""
    return fit_scored(components, component_log_probs(components, held_out, progress), vocabulary)


def fit_scored(components: Sequence[Component], log_probs: Floats, vocabulary: Vocabulary) -> Mixture:
    """Mix with the weights that are best for a text whose (M, N) log-probabilities are given."""
    return Mixture(tuple(components), tuple(em_weights(log_probs).tolist()), vocabulary)


def component_log_probs(components: Sequence[Component], text: Encoded, progress: Progress = silent) -> Floats:
    """(M, N) log p of each token by each component; progress is in tokens over all components."""
    total = len(components) * len(text.ids)

    def after(done_before: int) -> Progress:
        return lambda what, done, _: progress(what, done_before + done, total)

    scored = [token_log_probs(c.lm, text, after(i * len(text.ids))) for i, c in enumerate(components)]
    return np.stack(scored)


def em_weights(log_probs: Floats, iterations: int = 1000) -> Floats:
    """λ maximising Σ_t log Σ_i λ_i p_i(t), from (M, N) log-probabilities.

    λ_i ← mean over t of λ_i p_i(t) / Σ_j λ_j p_j(t); the likelihood never falls. The best model alone is taken
    where EM, which nears a corner ever more slowly, has not come as far.
    """
    best = log_probs.max(axis=0)
    if np.isneginf(best).all():
        raise InputError("no model gives any token of the held-out text a probability; take another text")
    p = np.exp(log_probs[:, ~np.isneginf(best)] - best[~np.isneginf(best)])  # (M, N)
    weights = np.full(len(p), 1 / len(p))
    for _ in range(iterations):
        share = weights[:, None] * p
        better = (share / share.sum(axis=0)).mean(axis=1)
        if np.abs(better - weights).max() < 1e-7:
            break
        weights = better
    alone = np.eye(len(p))[np.log(np.maximum(p, np.finfo(float).tiny)).sum(axis=1).argmax()]
    return max(weights / weights.sum(), alone, key=lambda w: float(np.log(np.maximum(w @ p, 1e-300)).sum()))


def config_of(mixture: Mixture) -> Config:
    """The config that is saved."""
    return Config(
        weights=mixture.weights,
        components=tuple(
            {"family": c.family, "context": c.lm.context, "model": settings.to_json(c.config)}
            for c in mixture.components
        ),
    )


def train(data: TrainingData, config: Config) -> Mixture:
    """A mixture is made of trained models, not of text."""
    raise ConfigError("a mixture is made from models: chainrule mix MODEL MODEL --held-out FILE --out DIR")


def files(lm: Mixture) -> dict[str, Content]:
    """Every component's files, each under its number."""
    return {
        f"components/{i}/{name}": content
        for i, c in enumerate(lm.components)
        for name, content in families.get(c.family).files(c.lm).items()
    }


def load(files: Sealed, config: Config, vocabulary: Vocabulary, context: Context, device: str = "auto") -> Mixture:
    """The mixture of saved components."""
    components = []
    for i, saved in enumerate(config.components):
        family = families.get(saved["family"])
        own = settings.make(family.Config, saved["model"], "model", is_saved=True)
        lm = family.load(files.subfolder(f"components/{i}"), own, vocabulary, saved["context"], device)
        components.append(Component(saved["family"], own, lm))
    return Mixture(tuple(components), config.weights, vocabulary)


def parameters(lm: Mixture) -> int:
    """Those of the components and the weights."""
    return len(lm.weights) + sum(families.get(c.family).parameters(c.lm) for c in lm.components)


def candidates() -> list[Config]:
    """`compare` trains families alone."""
    return []


def facets(config: Config) -> dict[str, str | int]:
    """How many models are mixed."""
    return {"components": len(config.components)}
