"""Attention: where heads look, how the scores behind it vary with the width, and what it costs.

Lives here: the section of an inspection, of language models and of a translator. Not here: weights, queries and
keys (neural/attending.py), what is counted over them and drawn (inspection/attention.py and its neighbours).
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from chainrule.errors import ChainruleWarning, InputError
from chainrule.inspection import alignment, attention_cost, attention_map, score_law
from chainrule.inspection import attention as looking
from chainrule.inspection.attention import Attended, Head
from chainrule.inspection.attention_cost import Costs
from chainrule.inspection.foreign import isolated
from chainrule.inspection.score_law import HeadScores
from chainrule.inspection.section import Figure, Section
from chainrule.lm import Floats, Ids
from chainrule.microscope.sample import Sample
from chainrule.progress import Progress, as_progress, silent
from chainrule.text.pairs import Pairs

LARGE: Final = 2  # heads that are shown large
OWN: Final = {"encoder": "Heads of the encoder, which see all of a source", "self": "Heads of the decoder"}
CELLS: Final = 900  # of an alignment, above which others are drawn first
PICTURES: Final = 4  # pairs whose alignment is drawn
MEASURED: Final = 64  # pairs that are counted
HOW_TO_READ: Final = (
    "Each row is a token that looks, each column a token looked at, the first at the top and on the left; the "
    "stronger the colour the more weight (its square root, so that faint weights can be seen)."
)


class Excerpt(NamedTuple):
    """The beginning of a stretch."""

    places: Ids  # (T,)
    weights: tuple[Floats, ...]  # (H, T, T) a layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one model's attention does on its sample."""

    name: str
    tokens: int
    heads: list[Head]
    even: Floats  # (K,) equal shares by distance
    scores: list[HeadScores]  # none where scores are no dot products
    divisor: float  # what the model itself divides qᵀk by
    excerpt: tuple[Floats, ...]  # (H, T, T) a layer, of the beginning of a stretch
    labels: list[str]  # of its tokens
    costs: Costs

    @property
    def by_layer(self) -> dict[int, Floats]:
        """(K,) the mean weight at each distance over the heads of a layer."""
        layers = sorted({head.layer for head in self.heads})
        return {k: np.mean([head.by_distance for head in self.heads if head.layer == k], axis=0) for k in layers}


def section(samples: Sequence[Sample], *, excerpt: int = 32, progress: Progress | bool = silent) -> Section | None:
    """Heads, scores and costs of every model with attention; None where there is none."""
    progress = as_progress(progress)
    chosen = [sample for sample in samples if _is_attentive(sample)]
    if not chosen:
        return None
    found = [_look(sample, excerpt, progress) for sample in chosen]
    return Section(
        name="attention",
        title="Attention",
        findings=tuple(f"{each.name}: {words}." for each in found for words in _words(each)),
        figures=(_by_distance(found), *(figure for each in found for figure in _figures(each))),
        data={each.name: _data(each) for each in found},
        arrays={name: values for each in found for name, values in _arrays(each)},
    )


def _is_attentive(sample: Sample) -> bool:
    network = getattr(sample.model.lm, "network", None)
    if network is None:
        return False
    from chainrule.neural.attending import is_attentive

    return is_attentive(network)


def _look(sample: Sample, excerpt: int, progress: Progress) -> Found:
    """One pass over the sample: what is counted is added up stretch by stretch, so that memory stays small."""
    from chainrule.neural.attending import attended

    lm: Any = sample.model.lm
    sums: dict[int, looking.Sums] = {}
    scores: dict[int, score_law.Sums] = {}
    best, divisor = Excerpt(np.zeros(0, dtype=np.int64), ()), 1.0
    for part in attended(lm, sample.text):
        k, counted, scored = part.layer, looking.count(part), score_law.count(part)
        sums[k] = sums[k] + counted if k in sums else counted
        if scored is not None:
            scores[k] = scores[k] + scored if k in scores else scored
            divisor = part.divisor
        best = _longer(best, part, max(excerpt, 1))
        progress("looking at attention", int(part.queries_at[-1]) + 1, sample.text.tokens)
    ids = lm.read_before(sample.text.ids)[best.places]
    return Found(
        name=sample.name,
        tokens=sample.text.tokens,
        heads=[head for k, each in sorted(sums.items()) for head in looking.heads(each, k)],
        even=looking.even_curve(sums[0]),
        scores=[head for k, each in sorted(scores.items()) for head in score_law.summarize(each, k)],
        divisor=divisor,
        excerpt=best.weights,
        labels=sample.model.tokenizer.texts(ids.tolist()),
        costs=_costs(sample),
    )


def _longer(best: Excerpt, part: Attended, most: int) -> Excerpt:
    """The layers of the first stretch that has `most` tokens, or else of the longest; its beginning is kept."""
    n = min(most, len(part.queries_at))
    alpha = part.weights[:, :n, :n].copy()
    if part.layer == 0 and part.queries_at[0] == part.first and n > len(best.places):
        return Excerpt(part.queries_at[:n], (alpha,))
    if part.layer and part.queries_at[0] == part.first == best.places[0]:
        return Excerpt(best.places, (*best.weights, alpha))
    return best


def _figures(found: Found) -> Iterator[Figure]:
    name = isolated(found.name)
    if len(found.heads) > 1:
        yield Figure(
            name=f"{found.name}: maps",
            drawing=attention_map.draw_grid(found.excerpt, model=found.name),
            caption=f"{name}: all {len(found.heads)} heads over {len(found.labels)} tokens. {HOW_TO_READ}",
            is_wide=max(map(len, found.excerpt)) > 6,
        )
    for head in looking.telling(found.heads, LARGE):
        title = f"head {head.head + 1} of layer {head.layer + 1}"
        alpha = found.excerpt[head.layer][head.head]
        yield Figure(
            name=f"{found.name}: {title}",
            drawing=attention_map.draw_head(alpha, found.labels, found.labels, title=f"{found.name}, {title}"),
            caption=f"{name}: {title}, {head.name}. {HOW_TO_READ} Labels are the tokens the model has just read.",
        )
    whose = f"{name}: each head over {found.tokens} tokens"
    yield attention_map.heads_figure(found.heads, f"{found.name}: heads", whose)
    if found.scores:
        yield from attention_map.score_figures(found.scores, found.name)
    yield found.costs.figure(f"{found.name}: cost", name)


def _by_distance(found: Sequence[Found]) -> Figure:
    """One line a layer of one model, one line a model of several."""
    if len(found) == 1:
        curves = {f"layer {k + 1}": curve for k, curve in found[0].by_layer.items()}
        return attention_map.distance_figure(curves, found[0].even, f"{isolated(found[0].name)}: one line a layer")
    curves = {each.name: np.mean(list(each.by_layer.values()), axis=0) for each in found}
    return attention_map.distance_figure(curves, None, "One line a model, the mean of all its heads")


def _costs(sample: Sample) -> Costs:
    config = sample.model.config
    if sample.model.family == "transformer":
        return attention_cost.of_transformer(config.hidden, config.feedforward or 4 * config.hidden, config.window)
    return attention_cost.of_past(config.widths[-1], config.memory, config.attention)


def _words(found: Found) -> Iterator[str]:
    """What is worth saying, without name and full stop."""
    yield from looking.in_words(found.heads)
    yield from score_law.in_words(found.scores, found.divisor)
    yield from found.costs.words


def _data(found: Found) -> dict[str, Any]:
    return {
        "tokens": found.tokens,
        "heads": [head.as_json() for head in found.heads],
        "scores": [attention_map.score_data(each) for each in found.scores],
        "cost": found.costs.as_json(),
        "by_distance": {
            f"layer {k + 1}": curve[: attention_map.FARTHEST + 1].tolist() for k, curve in found.by_layer.items()
        },
    }


def _arrays(found: Found) -> Iterator[tuple[str, Floats]]:
    for k, weights in enumerate(found.excerpt):
        yield f"{found.name}/layer {k + 1}/weights", weights  # (H, T, T) of the excerpt
        curves = [head.by_distance for head in found.heads if head.layer == k]
        yield f"{found.name}/layer {k + 1}/by distance", np.stack(curves)  # (H, K)


def of_translator(
    model: Any, pairs: Pairs | Sequence[tuple[str, str]], *, progress: Progress | bool = silent
) -> Section | None:
    """Where a translator looks while it writes the targets of pairs; None where it has no attention.

    The first 64 pairs are counted, but for those that it cannot read, and a few of them drawn.
    """
    progress = as_progress(progress)
    if model.config.attention == "none":
        return None
    chosen = list(zip(pairs.sources, pairs.targets, strict=True)) if isinstance(pairs, Pairs) else list(pairs)
    read = _aligned(model, chosen[:MEASURED], progress)
    across = looking.summarize_across([found.by_head for found, _ in read])
    parts = [part for _, several in read for part in several]
    scores = _scores([part for part in parts if part.kind == "cross"])
    divisor = next(part.divisor for part in parts if part.kind == "cross")
    own = {kind: looking.summarize([part for part in parts if part.kind == kind]) for kind in OWN}
    drawn = sorted(read, key=lambda each: each[0].weights.size > CELLS)[:PICTURES]
    return Section(
        name="attention",
        title="Attention",
        findings=(
            *looking.across_in_words(across),
            *(f"{words[:1].upper()}{words[1:]}." for words in score_law.in_words(scores, divisor)),
        ),
        figures=(
            *(alignment.figure(i, pair.source, pair.target, pair.weights) for i, (pair, _) in enumerate(drawn, 1)),
            *_head_maps(drawn[0][0]),
            *_translator_figures(model, across, scores, own),
        ),
        data={
            "pairs": len(read),
            "across": [each.as_json() for each in across],
            "scores": [attention_map.score_data(each) for each in scores],
            **{kind: [head.as_json() for head in heads] for kind, heads in own.items() if heads},
        },
        arrays={f"pair {i}/weights": found.by_head for i, (found, _) in enumerate(read, start=1)},
    )


def _aligned(model: Any, pairs: Sequence[tuple[str, str]], progress: Progress) -> list[tuple[Any, list[Attended]]]:
    """An `Alignment` a pair and all attention it is part of; refused where no pair can be read."""
    from chainrule.neural.attending import of_pair
    from chainrule.tasks.translation import Alignment

    refused: list[InputError] = []
    read: list[tuple[Any, list[Attended]]] = []
    for done, pair in enumerate(pairs, start=1):
        try:
            source, target = model.ids_of(*pair, done)
        except InputError as error:
            refused.append(error)
            continue
        parts = of_pair(model.network, source, target, model.target.vocabulary)
        by_head = np.stack([part.weights for part in parts if part.kind == "cross"])  # (L, H, T, S)
        names = model.source.texts(source.tolist()), model.target.texts(target.tolist())
        read.append((Alignment(*names, by_head), parts))
        progress("looking at attention", done, len(pairs))
    if not read:
        raise (*refused, InputError("there are no pairs; give at least one source and its target"))[0]
    if refused:
        left_out = f"{len(refused)} of the first {len(pairs)} pairs"
        warnings.warn(f"{left_out} cannot be read and are left out: {refused[0]}", ChainruleWarning, stacklevel=3)
    return read


def _scores(parts: Sequence[Attended]) -> list[HeadScores]:
    """Over all parts, layer by layer; none where scores are no dot products."""
    total: dict[int, score_law.Sums] = {}
    for part in parts:
        counted = score_law.count(part)
        if counted is not None:
            total[part.layer] = total[part.layer] + counted if part.layer in total else counted
    return [head for k, sums in sorted(total.items()) for head in score_law.summarize(sums, k)]


def _head_maps(pair: Any) -> list[Figure]:
    """Every head of every layer over one pair, where there are several."""
    if pair.by_head.shape[0] * pair.by_head.shape[1] == 1:
        return []
    drawing = attention_map.draw_grid(list(pair.by_head), model="the translator")
    caption = (
        "The first of these pairs, head by head: a row of maps is a layer, from the first at the top. In each map "
        "the rows are the tokens of the translation, the columns those of the source."
    )
    return [Figure(name="heads of pair 1", drawing=drawing, caption=caption, is_wide=True)]


def _translator_figures(
    model: Any, across: Sequence[looking.Across], scores: Sequence[HeadScores], own: Mapping[str, Sequence[Head]]
) -> Iterator[Figure]:
    yield Figure(
        name="across",
        drawing=attention_map.across_table(across),
        caption=(
            "How each head looks at the source: its entropy and the most that is possible, the weight on the token "
            "most looked at, and how many tokens of the source lie between its weights and the diagonal."
        ),
        is_wide=True,
    )
    if scores:
        yield from attention_map.score_figures(scores, "across")
    for kind, heads in own.items():
        if heads:
            yield attention_map.heads_figure(heads, kind, OWN[kind])
    score = None if model.config.family == "transformer" else model.config.attention
    yield attention_cost.of_translator(model.config.hidden, score)
