"""`chainrule rerank`: the best of each list of hypotheses, by language models and the list's own scores."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.applications.rerank import Judged, Scored
    from chainrule.lm import Floats, Ids


@dataclass(frozen=True)
class _Choice:
    """What was chosen, and by which weights."""

    rows: "Ids"  # (U,)
    totals: "Floats"  # (U,)
    weights: "Floats"  # (F,)
    folds: "list[Floats]"  # of a cross-validation


def rerank(
    model: options.ModelFolder,
    nbest: Annotated[str, typer.Argument(metavar="NBEST.tsv", help="Hypotheses by utterance; - for stdin.")],
    more: Annotated[list[Path] | None, typer.Option("--model", help="Another model; may be repeated.")] = None,
    reference: Annotated[str | None, typer.Option(help="What was said: a table of utterance, reference.")] = None,
    scores: Annotated[
        str | None, typer.Option(help="Columns of other scores: acoustic,lm; '' for none.  [default: all numbers]")
    ] = None,
    text: Annotated[str | None, typer.Option(help="The column the models read.  [default: the hypothesis]")] = None,
    utterance: Annotated[str | None, typer.Option(help="The column of utterance ids.  [default: by name]")] = None,
    hypothesis: Annotated[str | None, typer.Option(help="The column of hypotheses.  [default: by name]")] = None,
    lengths: Annotated[str, typer.Option(help="Lengths to weigh: words,characters; '' for none.")] = "words",
    weights: Annotated[str | None, typer.Option(help="Weights by score: acoustic=1,lm=16; others 0.")] = None,
    tune: Annotated[str | None, typer.Option(help="A list with references to tune the weights on.")] = None,
    tune_reference: Annotated[
        str | None, typer.Option(help="References of --tune.  [default: --reference]")
    ] = None,
    cross_validate: Annotated[
        int | None, typer.Option(min=2, max=1000, help="Tune on K−1 of K parts, choose in the other.")
    ] = None,
    tuning: Annotated[str, typer.Option(help="Fewest 'expected' errors, or 'exact' ones.")] = "expected",
    bootstrap: Annotated[int, typer.Option(min=1, max=100_000, help="Test sets drawn for the interval.")] = 1000,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    out: Annotated[Path | None, typer.Option(help="The table to write.  [default: stdout]")] = None,
    json: options.Json = False,
) -> None:
    """Choose the best hypothesis of each utterance.

    Example: chainrule rerank runs/lstm nbest.tsv --reference ref.tsv --cross-validate 10 --out chosen.tsv
    """
    from chainrule import api
    from chainrule.applications.nbest import Columns, read_nbest, read_references
    from chainrule.applications.rerank import count_errors, judge, score

    _check(weights, tune, cross_validate, tuning, reference, tune_reference)
    columns = Columns(utterance, hypothesis, text, None if scores is None else _names(scores))
    given = read_nbest(nbest, columns)
    references = None if reference is None else read_references(reference)
    errors = None if references is None else count_errors(given, references)
    paths = [model, *(more or [])]
    models = {_name(path, paths): api.load(path, device=options.device(device)) for path in paths}
    with progress() as draw:
        scored = score(given, models, _names(lengths), draw)
        if tune is not None:
            tuned = _tuned(
                tune, str(tune_reference or reference), scored, columns, models, _names(lengths), tuning, seed
            )
            choice = _by(scored, tuned)
        elif cross_validate is not None and errors is not None:
            choice = _cross_validated(scored, errors[0], cross_validate, tuning, seed)
        else:
            choice = _by(scored, _given_weights(scored, weights))
    judged = None if errors is None else judge(given, choice.rows, *errors)
    document = _document(scored, choice, judged, bootstrap, seed)
    out = None if str(out) == "-" else out
    if out is not None or not json:
        _write(scored, choice, out)
    if json:
        emit(document)
    else:
        for line in _summary(document):
            (say if out is None else print)(line)


def _check(
    weights: str | None,
    tune: str | None,
    parts: int | None,
    tuning: str,
    reference: str | None,
    tune_reference: str | None,
) -> None:
    """Refuse options that do not go together."""
    from chainrule.applications.weights import TUNINGS

    if sum(option is not None for option in (weights, tune, parts)) > 1:
        raise UsageError("weights come from one place: --weights, --tune or --cross-validate")
    if tuning not in TUNINGS:
        raise UsageError(f"tuning is '{tuning}'; choose one of {', '.join(TUNINGS)}")
    if parts is not None and reference is None:
        raise UsageError("--cross-validate tunes on references; give them with --reference")
    if tune is not None and reference is None and tune_reference is None:
        raise UsageError("--tune needs to know what was said; give --tune-reference, or --reference for both")
    if tune_reference is not None and tune is None:
        raise UsageError("--tune-reference is for --tune; give the list it belongs to")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _name(path: Path, paths: list[Path]) -> str:
    """The folder's own name, or all of its path where two have the same."""
    if paths.count(path) > 1:
        raise UsageError(f"{path} is given twice; give it once")
    own = path.resolve().name
    return own if sum(other.resolve().name == own for other in paths) == 1 else str(path)


def _given_weights(scored: "Scored", text: str | None) -> "Floats":
    """Weights as they were typed, or 1 for all but the lengths."""
    from chainrule.applications.rerank import LENGTHS

    if text is None:
        names = [name for name in scored.names if name not in LENGTHS]
        if len(names) > 1:
            say("all scores have weight 1; choose others with --weights, --tune or --cross-validate")
        return scored.weights(dict.fromkeys(names, 1.0))
    found: dict[str, float] = {}
    for part in _names(text):
        name, _, value = part.rpartition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            found[name.strip()] = math.nan
        if not name.strip() or not math.isfinite(found[name.strip()]):
            raise UsageError(f"weights has '{part}'; write NAME=NUMBER, as in acoustic=1,lm=16")
    return scored.weights(found)


def _tuned(
    file: str, reference: str, scored: "Scored", columns: Any, models: Any, lengths: Any, tuning: Any, seed: int
) -> "Floats":
    """Weights tuned on another list, which must have the same scores."""
    from chainrule.applications.nbest import read_nbest, read_references
    from chainrule.applications.rerank import count_errors, score
    from chainrule.applications.weights import tune

    development = read_nbest(file, columns)
    shared = set(development.utterances) & set(scored.nbest.utterances)
    if shared:
        say(f"warning: {len(shared)} utterances of {file} are in {scored.nbest.name}, too: use --cross-validate")
    errors, _ = count_errors(development, read_references(reference))
    known = score(development, models, lengths)
    if known.names != scored.names:
        raise UsageError(
            f"{file} has the scores {', '.join(known.names)} but {scored.nbest.name} has "
            f"{', '.join(scored.names)}; name those to use with --scores"
        )
    return tune(known.lists(errors), tuning, seed)


def _by(scored: "Scored", weights: "Floats") -> _Choice:
    rows = scored.choose(weights)
    return _Choice(rows, scored.totals(weights)[rows], weights, [])


def _cross_validated(scored: "Scored", errors: "Ids", parts: int, tuning: Any, seed: int) -> _Choice:
    """The choice of each part by the others' weights; the weights themselves are those of all."""
    from chainrule.applications.rerank import cross_validate
    from chainrule.applications.weights import tune

    found = cross_validate(scored, errors, parts, tuning, seed)
    return _Choice(found.rows, found.totals, tune(scored.lists(errors), tuning, seed), found.weights)


def _document(
    scored: "Scored", choice: _Choice, judged: "Judged | None", samples: int, seed: int
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
        found = judged.compare(samples, seed)
        document["words"] = int(judged.words.sum())
        document["word_error_rate"] = judged.rates
        document["difference"] = {
            "reranked_minus_first": found.difference,
            "low": found.low,
            "high": found.high,
            "p_value": found.p_value,
            "samples": found.samples,
        }
        for entry, errors in zip(chosen, judged.chosen.tolist(), strict=True):
            entry["errors"] = errors
    return document | {"chosen": chosen}


def _write(scored: "Scored", choice: _Choice, out: Path | None) -> None:
    """The chosen hypotheses as a table."""
    nbest = scored.nbest
    lines = ["\t".join([*nbest.head, "rank", "score"])]
    for u, row in enumerate(choice.rows.tolist()):
        place = row - int(nbest.starts[u]) + 1
        lines.append(f"{nbest.utterances[u]}\t{nbest.hypotheses[row]}\t{place}\t{choice.totals[u]:.6f}")
    text = "\n".join([*lines, ""])
    if out is None:
        print(text, end="")
        return
    from chainrule.replacement import replacing_file

    with replacing_file(out) as file:
        file.write(text.encode())


def _summary(document: dict[str, Any]) -> list[str]:
    """What a person wants to know of the whole."""
    weights = ",".join(f"{name}={weight:.6g}" for name, weight in document["weights"].items())
    folds = document["cross_validation"]
    origin = f"tuned on all, for other lists; the choice is by those of {len(folds)} parts" if folds else "used"
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
