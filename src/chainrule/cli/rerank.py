"""`chainrule rerank`: rerank n-best lists with language models and the scores in the lists."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.applications.rerank import ScoredNBest, WordErrorReport
    from chainrule.lm import Floats, Ids


@dataclass(frozen=True)
class _Choice:
    """Chosen hypotheses and the weights used. U utterances, F features."""

    rows: "Ids"  # (U,) index of the chosen hypothesis
    totals: "Floats"  # (U,) its weighted score
    weights: "Floats"  # (F,)
    folds: "list[Floats]"  # weights of the cross-validation folds


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """Columns of the n-best lists."""

    scores: Annotated[
        str | None,
        typer.Option(help="Score columns to use, e.g. acoustic,lm; '' for none.  [default: all numeric columns]"),
    ] = None
    text: Annotated[str | None, typer.Option(help="Column scored by the models.  [default: the hypothesis]")] = None
    utterance: Annotated[
        str | None, typer.Option(help="Column of utterance ids.  [default: detected from the header]")
    ] = None
    hypothesis: Annotated[
        str | None, typer.Option(help="Column of hypotheses.  [default: detected from the header]")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighting:
    """How the weights of the features are chosen."""

    reference: Annotated[
        str | None, typer.Option(help="Reference transcripts: a table of utterance and reference.")
    ] = None
    weights: Annotated[
        str | None, typer.Option(help="Feature weights, e.g. acoustic=1,lm=16; all others are 0.")
    ] = None
    tune: Annotated[str | None, typer.Option(help="Development n-best lists to tune the weights on.")] = None
    tune_reference: Annotated[
        str | None, typer.Option(help="Reference transcripts for --tune.  [default: --reference]")
    ] = None
    cross_validate: Annotated[
        int | None,
        typer.Option(min=2, max=1000, help="K-fold cross-validation: tune on K−1 folds, rerank the other."),
    ] = None
    tuning: Annotated[str, typer.Option(help="Tuning objective: 'expected' (smoothed) or 'exact' word errors.")] = (
        "expected"
    )
    seed: options.Seed = 0


@options.expand_option_groups()
def rerank(
    model: options.ModelFolder,
    nbest: Annotated[
        str,
        typer.Argument(
            metavar="NBEST.tsv", help="N-best lists: a table with utterance, hypothesis and scores; - for stdin."
        ),
    ],
    table: TableColumns,
    weighting: Weighting,
    more: Annotated[
        list[Path] | None, typer.Option("--model", help="Additional language model. Repeatable.")
    ] = None,
    lengths: Annotated[str, typer.Option(help="Length features: words,characters; '' for none.")] = "words",
    bootstrap: Annotated[
        int, typer.Option(min=1, max=100_000, help="Number of bootstrap samples for the confidence interval.")
    ] = 1000,
    device: options.Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Output table.  [default: stdout]")] = None,
    json: options.Json = False,
) -> None:
    """Rerank n-best lists and print the best hypotheses.

    Example: chainrule rerank runs/lstm nbest.tsv --reference ref.tsv --cross-validate 10 --out chosen.tsv
    """
    from chainrule import api
    from chainrule.applications.nbest import Columns, read_nbest, read_references
    from chainrule.applications.rerank import count_errors, evaluate_choice, score

    _check(weighting)
    scores = None if table.scores is None else _names(table.scores)
    columns = Columns(table.utterance, table.hypothesis, table.text, scores)
    lists = read_nbest(nbest, columns)
    references = None if weighting.reference is None else read_references(weighting.reference)
    errors = None if references is None else count_errors(lists, references)
    paths = [model, *(more or [])]
    models = {
        _name(path, paths): api.load(path, kind="language model", device=options.check_device(device))
        for path in paths
    }
    with progress() as draw:
        scored = score(lists, models, _names(lengths), draw)
        if weighting.tune is not None:
            choice = _choose_by(scored, _tuned(weighting, scored, columns, models, _names(lengths)))
        elif weighting.cross_validate is not None and errors is not None:
            choice = _cross_validated(scored, errors[0], weighting)
        else:
            choice = _choose_by(scored, _parse_weights(scored, weighting.weights))
    judged = None if errors is None else evaluate_choice(lists, choice.rows, *errors)
    document = _document(scored, choice, judged, bootstrap, weighting.seed)
    out = None if str(out) == "-" else out
    if out is not None or not json:
        _write(scored, choice, out)
    if json:
        emit(document)
    else:
        for line in _summary(document):
            (say if out is None else print)(line)


def _check(weighting: Weighting) -> None:
    """Raise UsageError for incompatible options."""
    from chainrule.applications.rerank import TUNINGS

    tune, parts = weighting.tune, weighting.cross_validate
    if sum(option is not None for option in (weighting.weights, tune, parts)) > 1:
        raise UsageError("--weights, --tune and --cross-validate exclude each other; give one of them")
    if weighting.tuning not in TUNINGS:
        raise UsageError(f"tuning is '{weighting.tuning}'; choose one of {', '.join(TUNINGS)}")
    if parts is not None and weighting.reference is None:
        raise UsageError("--cross-validate tunes on references; give them with --reference")
    if tune is not None and weighting.reference is None and weighting.tune_reference is None:
        raise UsageError("--tune needs reference transcripts; give --tune-reference, or --reference for both")
    if weighting.tune_reference is not None and tune is None:
        raise UsageError("--tune-reference is for --tune; give the list it belongs to")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _name(path: Path, paths: list[Path]) -> str:
    """Return the folder name, or the whole path if two folders share a name."""
    if paths.count(path) > 1:
        raise UsageError(f"{path} is given twice; give it once")
    name = path.resolve().name
    return name if sum(other.resolve().name == name for other in paths) == 1 else str(path)


def _parse_weights(scored: "ScoredNBest", text: str | None) -> "Floats":
    """Parse --weights; without it, all features but the lengths have weight 1."""
    from chainrule.applications.rerank import LENGTH_FEATURES

    if text is None:
        names = [name for name in scored.names if name not in LENGTH_FEATURES]
        if len(names) > 1:
            say("all scores have weight 1; choose others with --weights, --tune or --cross-validate")
        return scored.weights(dict.fromkeys(names, 1.0))
    parsed: dict[str, float] = {}
    for part in _names(text):
        name, _, value = part.rpartition("=")
        try:
            parsed[name.strip()] = float(value)
        except ValueError:
            parsed[name.strip()] = math.nan
        if not name.strip() or not math.isfinite(parsed[name.strip()]):
            raise UsageError(f"weights has '{part}'; write NAME=NUMBER, as in acoustic=1,lm=16")
    return scored.weights(parsed)


def _tuned(weighting: Weighting, scored: "ScoredNBest", columns: Any, models: Any, lengths: Any) -> "Floats":
    """Tune the weights on another n-best list, which must have the same features."""
    from chainrule.applications.nbest import read_nbest, read_references
    from chainrule.applications.rerank import count_errors, score, tune

    file, reference = str(weighting.tune), str(weighting.tune_reference or weighting.reference)
    development = read_nbest(file, columns)
    shared = set(development.utterances) & set(scored.nbest.utterances)
    if shared:
        say(f"warning: {len(shared)} utterances of {file} are in {scored.nbest.name}, too: use --cross-validate")
    errors, _ = count_errors(development, read_references(reference))
    features = score(development, models, lengths)
    if features.names != scored.names:
        raise UsageError(
            f"{file} has the scores {', '.join(features.names)} but {scored.nbest.name} has "
            f"{', '.join(scored.names)}; specify those to use with --scores"
        )
    return tune(features.lists(errors), weighting.tuning, weighting.seed)  # type: ignore[arg-type]


def _choose_by(scored: "ScoredNBest", weights: "Floats") -> _Choice:
    rows = scored.choose(weights)
    return _Choice(rows, scored.totals(weights)[rows], weights, [])


def _cross_validated(scored: "ScoredNBest", errors: "Ids", weighting: Weighting) -> _Choice:
    """Rerank every fold with weights tuned on the others; report weights tuned on all folds."""
    from chainrule.applications.rerank import cross_validate, tune

    tuning: Any = weighting.tuning
    result = cross_validate(scored, errors, weighting.cross_validate or 0, tuning, weighting.seed)
    return _Choice(result.rows, result.totals, tune(scored.lists(errors), tuning, weighting.seed), result.weights)


def _document(
    scored: "ScoredNBest", choice: _Choice, judged: "WordErrorReport | None", samples: int, seed: int
) -> dict[str, Any]:
    nbest = scored.nbest

    def named(weights: "Floats") -> dict[str, float]:
        return dict(zip(scored.names, weights.tolist(), strict=True))

    chosen = [
        {"utterance": id_, "hypothesis": nbest.hypotheses[row], "rank": row - first + 1, "score": total}
        for id_, row, first, total in zip(
            nbest.utterances, choice.rows.tolist(), nbest.starts.tolist(), choice.totals.tolist(), strict=False
        )
    ]
    document: dict[str, Any] = {
        "list": nbest.name,
        "utterances": len(nbest.utterances),
        "hypotheses": len(nbest.hypotheses),
        "weights": named(choice.weights),
        "cross_validation": [named(weights) for weights in choice.folds] or None,
        "words": None,
        "word_error_rate": None,
        "difference": None,
    }
    if judged is not None:
        difference = judged.compare(samples, seed)
        document["words"] = int(judged.words.sum())
        document["word_error_rate"] = judged.rates
        document["difference"] = {
            "reranked_minus_first": difference.difference,
            "low": difference.low,
            "high": difference.high,
            "p_value": difference.p_value,
            "samples": difference.samples,
        }
        for entry, errors in zip(chosen, judged.chosen.tolist(), strict=True):
            entry["errors"] = errors
    return document | {"chosen": chosen}


def _write(scored: "ScoredNBest", choice: _Choice, out: Path | None) -> None:
    """Write the chosen hypotheses as a table."""
    nbest = scored.nbest
    lines = ["\t".join([*nbest.head, "rank", "score"])]
    for u, row in enumerate(choice.rows.tolist()):
        rank = row - int(nbest.starts[u]) + 1
        lines.append(f"{nbest.utterances[u]}\t{nbest.hypotheses[row]}\t{rank}\t{choice.totals[u]:.6f}")
    text = "\n".join([*lines, ""])
    if out is None:
        print(text, end="")
        return
    from chainrule.storage.atomic import atomic_file

    with atomic_file(out) as file:
        file.write(text.encode())


def _summary(document: dict[str, Any]) -> list[str]:
    """Return the summary lines: weights and word error rates."""
    weights = ",".join(f"{name}={weight:.6g}" for name, weight in document["weights"].items())
    folds = document["cross_validation"]
    origin = f"tuned on all lists; reranking used {len(folds)}-fold cross-validation" if folds else "used"
    lines = [f"weights ({origin}): {weights}"]
    rates, difference = document["word_error_rate"], document["difference"]
    if rates is not None:
        lines += [
            f"word error rate, {document['utterances']} utterances, {document['words']} words:",
            f"  first of the list  {rates['first']:6.2f} %",
            f"  reranked           {rates['reranked']:6.2f} %",
            f"  best in the list   {rates['oracle']:6.2f} %",
            f"  reranked − first   {difference['reranked_minus_first']:+6.2f}, "
            f"95 % from {difference['low']:+.2f} to {difference['high']:+.2f}, p = {difference['p_value']:.3g}",
        ]
    return lines
