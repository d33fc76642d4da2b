"""Mixtures of the best models of each tokenizer, as additional rows of the table."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from chainrule import mixture
from chainrule.comparison.measurement import Measured, make_row
from chainrule.comparison.results import Row, is_rankable
from chainrule.comparison.settings import Settings
from chainrule.comparison.tokenized_text import Tokenized
from chainrule.evaluation.perplexity import token_log_probs
from chainrule.lm import Floats
from chainrule.model import Model
from chainrule.storage.provenance import Origin

MAX_NAMED_NETWORKS: Final = 2
"""A mixture of more networks than this is named by their number."""
MIN_IMPROVEMENT: Final = 0.001
"""A mixture is shown if its validation bits are lower by this fraction than those of its best component and of
smaller mixtures."""


def choose_components(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the names of the models to mix, chosen from the rows of one tokenizer by the validation text.

    Mixes the best n-gram with the best network and with the best network of every family; without networks, the two
    best n-grams of different smoothings. Families are in alphabetical order, so that the name of a mixture does not
    depend on their ranking.
    """
    ordered = rank_by_validation(rows)
    ngrams = [row for row in ordered if row.family == "ngram"]
    networks: dict[str, Row] = {}
    for row in ordered:
        if row.family not in ("ngram", "mixture"):
            networks.setdefault(row.family, row)
    best = list(networks.values())
    if not ngrams:
        return [tuple(networks[family].name for family in sorted(networks))] if len(best) > 1 else []
    if not best:
        other = next((row for row in ngrams if row.facets["smoothing"] != ngrams[0].facets["smoothing"]), None)
        return [] if other is None else [(ngrams[0].name, other.name)]
    pair = (ngrams[0].name, best[0].name)
    several = (ngrams[0].name, *(networks[family].name for family in sorted(networks)))
    return [pair] if len(several) == 2 else [pair, several]


def rank_by_validation(rows: Sequence[Row]) -> list[Row]:
    """Rankable rows sorted by validation bits per byte, or by test bits if there is no validation result."""
    return sorted(filter(is_rankable, rows), key=_validation_bits)


def mix_best(
    tokenized: Tokenized,
    rows: Sequence[Row],
    models: Mapping[str, Model],
    settings: Settings,
    text: str,
    is_labelled: bool,
) -> Iterator[Measured]:
    """Fit and evaluate the mixtures of one tokenizer; omit those that do not improve validation bits."""
    valid = tokenized.prepared.valid
    if valid is None or not valid.tokens:
        return
    by_name = {row.name: row for row in rows}
    on_valid = {name: token_log_probs(model.lm, valid) for name, model in models.items()}
    on_test = {name: token_log_probs(model.lm, tokenized.test) for name, model in models.items()}
    best_mixture = np.inf
    for names in choose_components(rows):
        components = [by_name[name] for name in names]
        model, weights = _mix([models[name] for name in names], [on_valid[name] for name in names], tokenized)
        held_out, _ = model.evaluate_lines(valid, _interpolate(weights, [on_valid[name] for name in names]))
        bits = held_out.bits_per_byte
        if bits > (1 - MIN_IMPROVEMENT) * min(best_mixture, *map(_validation_bits, components)):
            continue
        best_mixture = min(best_mixture, bits)
        metrics = {
            "train_seconds": round(sum(row.train_seconds for row in components), 3),
            "train_tokens": tokenized.prepared.train.tokens,
            "valid_perplexity": held_out.perplexity,
            "valid_bits_per_byte": bits,
        }
        origin = Origin.now(
            text=text,
            fingerprint=tokenized.prepared.fingerprint,
            command=settings.command,
            seed=settings.seed,
        )
        model = dataclasses.replace(model, origin=origin, metrics=metrics)
        figures, line_nats = model.evaluate_lines(
            tokenized.test, _interpolate(weights, [on_test[name] for name in names])
        )
        name = _name(components, tokenized.label if is_labelled else "")
        row = make_row(name, tokenized.title, model, figures, settings)
        yield Measured(_describe(row, components, weights), line_nats, model)


def _name(components: Sequence[Row], label: str) -> str:
    """Name such as `mixture-ngram-lstm` or `mixture-ngram-5-networks`; mixtures of n-grams list smoothings."""
    kinds = [row.family for row in components]
    networks = [kind for kind in kinds if kind != "ngram"]
    if len(networks) > MAX_NAMED_NETWORKS:
        kinds = [*(["ngram"] if "ngram" in kinds else []), f"{len(networks)}-networks"]
    elif len(set(kinds)) == 1:
        kinds = [kinds[0], *(str(row.facets.get("smoothing", row.name)) for row in components)]
    return "-".join(filter(None, ["mixture", label, *kinds]))


def _describe(row: Row, components: Sequence[Row], weights: Sequence[float]) -> Row:
    """Add component weights to the row; it is still improving if a component is."""
    is_unfinished = any(component.is_still_falling for component in components)
    return dataclasses.replace(
        row,
        note=", ".join(f"{w:.2f} {one.name}" for w, one in zip(weights, components, strict=True)),
        components=tuple(component.name for component in components),
        is_still_falling=is_unfinished,
        status="a component was still improving" if is_unfinished else "complete",
    )


def _mix(
    models: Sequence[Model], log_probs: Sequence[Floats], tokenized: Tokenized
) -> tuple[Model, tuple[float, ...]]:
    """Mixture with EM weights fitted to `log_probs`, the token log-probabilities on the validation text."""
    prepared = tokenized.prepared
    weights = tuple(mixture.em_weights(np.stack(log_probs)).tolist())
    components = tuple(mixture.Component(model.family, model.config, model.lm) for model in models)
    lm = mixture.Mixture(components, weights, prepared.tokenizer.vocabulary)
    config = mixture.mixture_config(lm)
    model = Model(lm=lm, tokenizer=prepared.tokenizer, family="mixture", config=config, speller=prepared.speller)
    return model, weights


def _interpolate(weights: Sequence[float], log_probs: Sequence[Floats]) -> Floats:
    """log Σ λᵢ pᵢ per token."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp.reduce(np.log(weights)[:, None] + np.stack(log_probs), axis=0))


def _validation_bits(row: Row) -> float:
    return row.bits_per_byte if row.valid_bits_per_byte is None else row.valid_bits_per_byte
