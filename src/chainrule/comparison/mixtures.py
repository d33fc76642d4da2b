"""Mixtures of the best models of a tokenizer, as further rows of the table."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from chainrule import mixture
from chainrule.comparison.measurement import Measured, make_row
from chainrule.comparison.settings import Settings
from chainrule.comparison.tokenized import Tokenized
from chainrule.evaluation.scores import token_log_probs
from chainrule.lm import Floats
from chainrule.model import Model, Origin
from chainrule.report.results import Row, is_contender

MOST_NAMED: Final = 2
"""More networks than this are counted in the name of a mixture, not named."""
WORTHWHILE: Final = 0.001
"""A mixture is shown where it needs fewer bits of the validation text, by this part, than its best component and
than a mixture of fewer models."""


def choose_components(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Names of the models to mix, of rows of one tokenizer; chosen by the validation text, never by the test text.

    The best n-gram with the best network, and with the best network of every family; without networks, the best two
    n-grams of different smoothings. Families come in alphabetical order, so that the name of a mixture does not
    depend on which network was best.
    """
    ordered = by_validation(rows)
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


def by_validation(rows: Sequence[Row]) -> list[Row]:
    """The rows that can be ranked, best on the validation text first; on the test text where there is none."""
    return sorted(filter(is_contender, rows), key=_validation_bits)


def mix_best(
    tokenized: Tokenized,
    rows: Sequence[Row],
    models: Mapping[str, Model],
    settings: Settings,
    text: str,
    is_labelled: bool,
) -> Iterator[Measured]:
    """Fit and measure the mixtures of one tokenizer; those that do not help on the validation text are left out."""
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
        if bits > (1 - WORTHWHILE) * min(best_mixture, *map(_validation_bits, components)):
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
    """`mixture-ngram-lstm`, `mixture-ngram-5-networks`; with the smoothings where several n-grams are mixed."""
    kinds = [row.family for row in components]
    networks = [kind for kind in kinds if kind != "ngram"]
    if len(networks) > MOST_NAMED:
        kinds = [*(["ngram"] if "ngram" in kinds else []), f"{len(networks)}-networks"]
    elif len(set(kinds)) == 1:
        kinds = [kinds[0], *(str(row.facets.get("smoothing", row.name)) for row in components)]
    return "-".join(filter(None, ["mixture", label, *kinds]))


def _describe(row: Row, components: Sequence[Row], weights: Sequence[float]) -> Row:
    """The row with the weights of its components; it is still improving where one of them is."""
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
    """The mixture with the best weights for the validation text, on which the models give `log_probs`."""
    prepared = tokenized.prepared
    weights = tuple(mixture.em_weights(np.stack(log_probs)).tolist())
    components = tuple(mixture.Component(model.family, model.config, model.lm) for model in models)
    lm = mixture.Mixture(components, weights, prepared.tokenizer.vocabulary)
    config = mixture.config_of(lm)
    model = Model(lm=lm, tokenizer=prepared.tokenizer, family="mixture", config=config, speller=prepared.speller)
    return model, weights


def _interpolate(weights: Sequence[float], log_probs: Sequence[Floats]) -> Floats:
    """log Σ λᵢ pᵢ of each token."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp.reduce(np.log(weights)[:, None] + np.stack(log_probs), axis=0))


def _validation_bits(row: Row) -> float:
    return row.bits_per_byte if row.valid_bits_per_byte is None else row.valid_bits_per_byte
