"""The attention section: head statistics, score variance and computational cost."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from chainrule.errors import ChainruleWarning, InputError
from chainrule.inspection import attention_heads, attention_scaling
from chainrule.inspection.attention_heads import Head
from chainrule.inspection.attention_scaling import Costs, HeadScores
from chainrule.inspection.report import Figure, Finding, Section
from chainrule.inspection.text_excerpt import Sample
from chainrule.lm import Floats, Ids
from chainrule.neural.probes.measurements import AttentionRecord
from chainrule.plots.html import escape
from chainrule.progress import Progress, silent
from chainrule.text.parallel import SentencePairs

LARGE: Final = 2  # enlarged heads
SELF_ATTENTION: Final = {"encoder": "Encoder self-attention heads", "self": "Decoder self-attention heads"}
MAX_CELLS: Final = 900  # larger alignments are drawn last
PICTURES: Final = 4  # plotted pairs
MEASURED: Final = 64  # measured pairs
HOW_TO_READ: Final = (
    "Rows are queries and columns are keys, the first at the top and on the left; a stronger colour means more "
    "weight (square-root scale)."
)


class Excerpt(NamedTuple):
    """The beginning of a segment."""

    positions: Ids  # (T,)
    weights: tuple[Floats, ...]  # (H, T, T) per layer


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionResult:
    """Attention statistics of one model on its sample."""

    name: str
    tokens: int
    heads: list[Head]
    even: Floats  # (K,) uniform attention by distance
    scores: list[HeadScores]  # empty if scores are not dot products
    divisor: float  # divisor of qᵀk in the model
    excerpt: tuple[Floats, ...]  # (H, T, T) per layer, the beginning of a segment
    labels: list[str]  # of the excerpt's tokens
    costs: Costs

    @property
    def by_layer(self) -> dict[int, Floats]:
        """(K,) mean weight by distance over the heads of each layer."""
        layers = sorted({head.layer for head in self.heads})
        return {k: np.mean([head.by_distance for head in self.heads if head.layer == k], axis=0) for k in layers}


def section(samples: Sequence[Sample], *, excerpt: int = 32, progress: Progress = silent) -> Section | None:
    """Return heads, scores and costs of every model with attention; None without such models."""
    attentive = [sample for sample in samples if _has_attention(sample)]
    if not attentive:
        return None
    results = [_measure(sample, excerpt, progress) for sample in attentive]
    return Section(
        name="attention",
        title="Attention",
        findings=tuple(Finding(result.name, f"{clause}.") for result in results for clause in _describe(result)),
        figures=(_by_distance(results), *(figure for result in results for figure in _figures(result))),
        data={result.name: _data(result) for result in results},
        arrays={name: values for result in results for name, values in _arrays(result)},
    )


def _has_attention(sample: Sample) -> bool:
    network = sample.model.lm.network
    if network is None:
        return False
    from chainrule.neural.probes.attention_weights import has_attention

    return has_attention(network)


def _measure(sample: Sample, excerpt: int, progress: Progress) -> AttentionResult:
    """Measure the sample in one pass, accumulating sums segment by segment."""
    from chainrule.neural.probes.attention_weights import iter_attention

    lm: Any = sample.model.lm
    sums: dict[int, attention_heads.AttentionSums] = {}
    scores: dict[int, attention_scaling.ScoreSums] = {}
    longest, divisor = Excerpt(np.zeros(0, dtype=np.int64), ()), 1.0
    for record in iter_attention(lm, sample.text):
        k, head_sums, score_sums = (
            record.layer,
            attention_heads.accumulate(record),
            attention_scaling.accumulate(record),
        )
        sums[k] = sums[k] + head_sums if k in sums else head_sums
        if score_sums is not None:
            scores[k] = scores[k] + score_sums if k in scores else score_sums
            divisor = record.divisor
        longest = _longer_excerpt(longest, record, max(excerpt, 1))
        progress("reading attention", int(record.query_positions[-1]) + 1, sample.text.tokens)
    ids = lm.shift_inputs(sample.text.ids)[longest.positions]
    return AttentionResult(
        name=sample.name,
        tokens=sample.text.tokens,
        heads=[
            head
            for k, layer_sums in sorted(sums.items())
            for head in attention_heads.head_statistics(layer_sums, k)
        ],
        even=attention_heads.uniform_curve(sums[0]),
        scores=[
            head for k, layer_sums in sorted(scores.items()) for head in attention_scaling.summarize(layer_sums, k)
        ],
        divisor=divisor,
        excerpt=longest.weights,
        labels=sample.model.tokenizer.display_texts(ids.tolist()),
        costs=_costs(sample),
    )


def _longer_excerpt(best: Excerpt, record: AttentionRecord, most: int) -> Excerpt:
    """Return the longer of `best` and the beginning of this segment, at most `most` tokens, layer by layer."""
    n = min(most, len(record.query_positions))
    alpha = record.weights[:, :n, :n].copy()
    if record.layer == 0 and record.query_positions[0] == record.first and n > len(best.positions):
        return Excerpt(record.query_positions[:n], (alpha,))
    if record.layer and record.query_positions[0] == record.first == best.positions[0]:
        return Excerpt(best.positions, (*best.weights, alpha))
    return best


def _figures(result: AttentionResult) -> Iterator[Figure]:
    name = escape(result.name)
    if len(result.heads) > 1:
        yield Figure(
            name=f"{result.name}: maps",
            drawing=attention_heads.draw_grid(result.excerpt, model=result.name),
            caption=f"{name}: all {len(result.heads)} heads over {len(result.labels)} tokens. {HOW_TO_READ}",
            is_wide=max(map(len, result.excerpt)) > 6,
        )
    for head in attention_heads.select_representative(result.heads, LARGE):
        title = f"head {head.head + 1} of layer {head.layer + 1}"
        alpha = result.excerpt[head.layer][head.head]
        yield Figure(
            name=f"{result.name}: {title}",
            drawing=attention_heads.draw_head(alpha, result.labels, result.labels, title=f"{result.name}, {title}"),
            caption=f"{name}: {title}, {head.name}. {HOW_TO_READ} Labels are the tokens the model has just read.",
        )
    prefix = f"{name}: each head over {result.tokens:,} tokens"
    yield attention_heads.heads_figure(result.heads, f"{result.name}: heads", prefix)
    if result.scores:
        yield from attention_heads.score_figures(result.scores, result.name)
    yield result.costs.figure(f"{result.name}: cost", name)


def _by_distance(results: Sequence[AttentionResult]) -> Figure:
    """Plot one line per layer for one model, one line per model for several."""
    if len(results) == 1:
        curves = {f"layer {k + 1}": curve for k, curve in results[0].by_layer.items()}
        return attention_heads.distance_figure(
            curves, results[0].even, f"{escape(results[0].name)}: one line per layer"
        )
    curves = {result.name: np.mean(list(result.by_layer.values()), axis=0) for result in results}
    return attention_heads.distance_figure(curves, None, "One line per model, averaged over its heads")


def _costs(sample: Sample) -> Costs:
    config = sample.model.config
    if sample.model.family == "transformer":
        return attention_scaling.transformer_costs(
            config.hidden, config.feedforward or 4 * config.hidden, config.window
        )
    return attention_scaling.memory_costs(config.widths[-1], config.memory, config.attention)


def _describe(result: AttentionResult) -> Iterator[str]:
    """Yield the findings without model name and full stop."""
    yield from attention_heads.describe(result.heads)
    yield from attention_scaling.describe(result.scores, result.divisor)
    yield from result.costs.words


def _data(result: AttentionResult) -> dict[str, Any]:
    return {
        "tokens": result.tokens,
        "heads": [head.as_json() for head in result.heads],
        "scores": [attention_heads.scores_json(scores) for scores in result.scores],
        "cost": result.costs.as_json(),
        "by_distance": {
            f"layer {k + 1}": curve[: attention_heads.FARTHEST + 1].tolist() for k, curve in result.by_layer.items()
        },
    }


def _arrays(result: AttentionResult) -> Iterator[tuple[str, Floats]]:
    for k, weights in enumerate(result.excerpt):
        yield f"{result.name}/layer {k + 1}/weights", weights  # (H, T, T) of the excerpt
        curves = [head.by_distance for head in result.heads if head.layer == k]
        yield f"{result.name}/layer {k + 1}/by distance", np.stack(curves)  # (H, K)


def translator_section(
    model: Any, pairs: SentencePairs | Sequence[tuple[str, str]], *, progress: Progress = silent
) -> Section | None:
    """Return the cross-attention of a translation model on given pairs; None if it has no attention.

    Measures the first 64 pairs that can be encoded, and plots a few of them.
    """
    if model.config.attention == "none":
        return None
    all_pairs = (
        list(zip(pairs.sources, pairs.targets, strict=True)) if isinstance(pairs, SentencePairs) else list(pairs)
    )
    aligned = _aligned(model, all_pairs[:MEASURED], progress)
    cross_heads = attention_heads.summarize_cross([pair.by_head for pair, _ in aligned])
    records = [record for _, pair_records in aligned for record in pair_records]
    scores = _scores([record for record in records if record.kind == "cross"])
    divisor = next(record.divisor for record in records if record.kind == "cross")
    self_attention = {
        kind: attention_heads.summarize([record for record in records if record.kind == kind])
        for kind in SELF_ATTENTION
    }
    plotted = sorted(aligned, key=lambda item: item[0].weights.size > MAX_CELLS)[:PICTURES]
    return Section(
        name="attention",
        title="Attention",
        findings=tuple(
            Finding(None, sentence)
            for sentence in (
                *attention_heads.describe_cross(cross_heads),
                *(f"{clause[:1].upper()}{clause[1:]}." for clause in attention_scaling.describe(scores, divisor)),
            )
        ),
        figures=(
            *(
                attention_heads.alignment_figure(i, pair.source, pair.target, pair.weights)
                for i, (pair, _) in enumerate(plotted, 1)
            ),
            *_head_maps(plotted[0][0]),
            *_translator_figures(model, cross_heads, scores, self_attention),
        ),
        data={
            "pairs": len(aligned),
            "across": [head.as_json() for head in cross_heads],
            "scores": [attention_heads.scores_json(head) for head in scores],
            **{kind: [head.as_json() for head in heads] for kind, heads in self_attention.items() if heads},
        },
        arrays={f"pair {i}/weights": pair.by_head for i, (pair, _) in enumerate(aligned, start=1)},
    )


def _aligned(
    model: Any, pairs: Sequence[tuple[str, str]], progress: Progress
) -> list[tuple[Any, list[AttentionRecord]]]:
    """Return an `Alignment` per pair with its attention records; raise if no pair can be encoded."""
    from chainrule.neural.probes.attention_weights import translation_attention
    from chainrule.tasks.translate import Alignment

    errors: list[InputError] = []
    aligned: list[tuple[Any, list[AttentionRecord]]] = []
    for done, pair in enumerate(pairs, start=1):
        try:
            source, target = model.encode_pair(*pair, done)
        except InputError as error:
            errors.append(error)
            continue
        records = translation_attention(model.network, source, target, model.target.vocabulary)
        by_head = np.stack([record.weights for record in records if record.kind == "cross"])  # (L, H, T, S)
        names = model.source.display_texts(source.tolist()), model.target.display_texts(target.tolist())
        aligned.append((Alignment(*names, by_head), records))
        progress("reading attention", done, len(pairs))
    if not aligned:
        raise (*errors, InputError("there are no pairs; give at least one source and its target"))[0]
    if errors:
        skipped = f"{len(errors)} of the first {len(pairs)} pairs"
        warnings.warn(f"{skipped} cannot be encoded and are skipped: {errors[0]}", ChainruleWarning, stacklevel=3)
    return aligned


def _scores(records: Sequence[AttentionRecord]) -> list[HeadScores]:
    """Return the score statistics by layer; empty if scores are not dot products."""
    totals: dict[int, attention_scaling.ScoreSums] = {}
    for record in records:
        segment_sums = attention_scaling.accumulate(record)
        if segment_sums is not None:
            totals[record.layer] = totals[record.layer] + segment_sums if record.layer in totals else segment_sums
    return [head for k, sums in sorted(totals.items()) for head in attention_scaling.summarize(sums, k)]


def _head_maps(pair: Any) -> list[Figure]:
    """Plot every head of every layer on one pair, if there is more than one head."""
    if pair.by_head.shape[0] * pair.by_head.shape[1] == 1:
        return []
    drawing = attention_heads.draw_grid(list(pair.by_head), model="the translation model")
    caption = (
        "The first of these pairs, head by head: one row of maps per layer, the first at the top. In each map "
        "the rows are target tokens and the columns source tokens."
    )
    return [Figure(name="heads of pair 1", drawing=drawing, caption=caption, is_wide=True)]


def _translator_figures(
    model: Any,
    cross_heads: Sequence[attention_heads.CrossHead],
    scores: Sequence[HeadScores],
    self_attention: Mapping[str, Sequence[Head]],
) -> Iterator[Figure]:
    yield Figure(
        name="across",
        drawing=attention_heads.cross_table(cross_heads),
        caption=(
            "Cross-attention of each head: entropy and its maximum, the largest weight, and the distance of the "
            "weights from the diagonal in source tokens."
        ),
        is_wide=True,
    )
    if scores:
        yield from attention_heads.score_figures(scores, "across")
    for kind, heads in self_attention.items():
        if heads:
            yield attention_heads.heads_figure(heads, kind, SELF_ATTENTION[kind])
    score = None if model.config.family == "transformer" else model.config.attention
    yield attention_scaling.translator_figure(model.config.hidden, score)
