"""`chainrule tag`: train, apply and evaluate sequence taggers."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options, training_options
from chainrule.cli.console import dumps, emit, flush, print_table, progress

if TYPE_CHECKING:
    from chainrule.evaluation.tagging import Confusion
    from chainrule.tasks.tag import TagReport
    from chainrule.text.conll import TaggingInput

app = typer.Typer(help="Sequence tagging: parts of speech, named entities, chunks.", no_args_is_help=True)

VALIDATED = ("f1", "accuracy")  # validation metrics; the first available one selects the best epoch
MOST_CONFUSED = 10
File = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="Tagged sentences in CoNLL or CoNLL-U format, optionally compressed; - for stdin."
    ),
]
TAG_COLUMN = "Tag column: a number from 1, or upos or xpos for CoNLL-U."
Column = Annotated[str | None, typer.Option(help=f"{TAG_COLUMN}  [default: the last; upos for CoNLL-U]")]
LearntColumn = Annotated[str | None, typer.Option(help=f"{TAG_COLUMN}  [default: as in training]")]


SETTINGS = training_options.TASK_SETTINGS | {
    "kind": options.option(str, "Folder of a word tokenizer whose vocabulary is used.", "--tokenizer"),
    "lowercase": options.option(
        bool, "Lowercase words for the embedding lookup, or keep case.  [default: lowercase]", "--lowercase/--cased"
    ),
    "crf": options.option(
        bool, "CRF output layer: decode the tags of a sentence jointly.  [default: crf]", "--crf/--no-crf"
    ),
    "characters": options.option(int, "Character-CNN features per word; 0 disables them.  [default: 50]"),
}


@app.command()
@options.expand_option_groups(SETTINGS)
def train(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help=training_options.FAMILIES)],
    file: File,
    *,
    run: training_options.Run,
    valid: Annotated[str | None, typer.Option(help="Validation sentences, evaluated during training.")] = None,
    column: Column = None,
    pretrained: Annotated[
        str | None, typer.Option(help="Initialize from an encoder trained by chainrule pretrain.")
    ] = None,
    vectors: Annotated[
        str | None,
        typer.Option(help="Initialize embeddings from word vectors (text file in GloVe or word2vec format)."),
    ] = None,
    settings: dict[str, object],
    json: options.Json = False,
) -> None:
    """Train a tagger on tagged sentences.

    FILE has one word and its tags per line, with a blank line between sentences.

    Span tags (B-PER, I-PER, O) are recognized and evaluated as spans.

    Examples: chainrule tag train lstm train.conllu --valid dev.conllu --out runs/upos

    chainrule tag train lstm eng.train --valid eng.testa --recipe conll2003-lstm --out runs/names
    """
    options.limit_threads(run.threads)
    model, seconds = training_options.train_task(
        "tag",
        family,
        file,
        run,
        settings,
        inputs=(valid, pretrained, vectors),
        valid=valid,
        column=column,
        pretrained=pretrained,
        vectors=vectors,
    )
    validation = {name: model.metrics[f"valid_{name}"] for name in VALIDATED if f"valid_{name}" in model.metrics}
    quality = "".join(f", validation {name} {_readable(value)}" for name, value in list(validation.items())[:1])
    training_options.report_training(run, model, seconds, {"family": family}, validation, quality, json)


@app.command()
def predict(
    model: options.ModelFolder,
    file: Annotated[
        str,
        typer.Argument(
            metavar="[FILE]", help='Sentences: lines of words, columns, or JSON Lines with "words"; - for stdin.'
        ),
    ] = "-",
    plain: Annotated[
        bool | None,
        typer.Option(
            "--plain/--columns",
            help="Input format: lines of words, or columns.  [default: lines for .txt and stdin, unless CoNLL-U]",
        ),
    ] = None,
    column: LearntColumn = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also print the probability of each tag.")
    ] = False,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Tag the words of sentences.

    Prints one word and its tag per line, with a blank line between sentences; JSON output has one sentence per
    line.

    Column input is printed unchanged except for the tag, which replaces --column or, if the file has fewer
    columns, is appended. Without --column, a column that contains none of the model's tags is left unchanged and
    the tag is appended (CoNLL-U: in MISC). A blank line in line input is a sentence without words.

    Example: echo "the saw saw wood" | chainrule tag predict runs/upos
    """
    from chainrule import api
    from chainrule.text.conll import read_tagging_input_batches

    loaded = api.load(model, kind="tag", device=options.check_device(device))
    if column is None:
        batches = read_tagging_input_batches(file, plain=plain, column=loaded.column, is_known=loaded.tags.is_known)
    else:
        batches = read_tagging_input_batches(file, plain=plain, column=column)
    is_first = True
    for sheets in batches:
        sentences = [words for sheet in sheets for words in sheet.sentences]
        with progress() as bar:
            tagged = loaded.tag_all(sentences, bar)
            confidences = loaded.confidences(sentences, bar) if probabilities else None
        if json:
            for i, (words, tags) in enumerate(zip(sentences, tagged, strict=True)):
                extra = {} if confidences is None else {"probabilities": confidences[i]}
                print(dumps({"words": list(words), "tags": tags} | extra, None))
        else:
            _print_tagged(sheets, tagged, confidences, is_first)
        flush()
        is_first = False


def _print_tagged(
    sheets: "list[TaggingInput]", tags: list[list[str]], probabilities: list[list[float]] | None, is_first: bool
) -> None:
    """Print the tagged lines of some files, separated by a blank line from earlier output."""
    done, is_open = 0, not is_first
    for sheet in sheets:
        part = slice(done, done + len(sheet.rows))
        lines = sheet.with_tags(tags[part], None if probabilities is None else probabilities[part])
        if lines or is_open:
            print("\n".join([""] * is_open + lines))  # the end of a file ends a sentence
        done, is_open = part.stop, bool(lines and lines[-1].strip())


@app.command()
def evaluate(
    model: options.ModelFolder,
    file: File,
    column: LearntColumn = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Evaluate a tagger: accuracy, and F1 of spans or of each tag.

    Example: chainrule tag evaluate runs/names eng.testb
    """
    from chainrule import api

    loaded = api.load(model, kind="tag", device=options.check_device(device))
    with progress() as bar:
        report = loaded.evaluate(file, column=column, progress=bar)
    if json:
        emit({"model": str(model), "family": loaded.config.family, **_document(report)})
        return
    _print(report)


def _document(report: "TagReport") -> dict[str, Any]:
    document: dict[str, Any] = {
        "sentences": report.sentences,
        "words": report.words,
        "unknown_words": report.unknown_words,
        "accuracy": report.accuracy,
        "unknown_accuracy": report.unknown_accuracy if report.unknown_words else None,
    }
    if report.spans is not None:
        document |= _scores(report.spans)
    mistakes = report.confusion.most_confused(MOST_CONFUSED)
    return document | {
        "by_label": {label: _scores(scores) for label, scores in report.by_label.items()},
        "most_confused": [{"gold": m.gold, "found": m.predicted, "times": m.frequency} for m in mistakes],
        "confusion": _table(report.confusion),
        "seconds": report.seconds,
        "words_per_second": report.words_per_second,
    }


def _table(confusion: "Confusion") -> dict[str, dict[str, int]]:
    """Return the nonzero confusion counts: gold tag -> predicted tag -> count."""
    rows = zip(confusion.labels, confusion.counts.tolist(), strict=True)
    table = {gold: dict(zip(confusion.labels, counts, strict=True)) for gold, counts in rows}
    return {gold: {tag: n for tag, n in row.items() if n} for gold, row in table.items() if any(row.values())}


def _scores(scores: Any) -> dict[str, Any]:
    return {
        "gold": scores.gold,
        "found": scores.predicted,
        "correct": scores.correct,
        "precision": scores.precision,
        "recall": scores.recall,
        "f1": scores.f1,
    }


def _print(report: "TagReport") -> None:
    document = _document(report)
    labels, confused, _ = (document.pop(name) for name in ("by_label", "most_confused", "confusion"))
    for name, value in document.items():
        if value is not None:
            print(f"{name:<26}{_readable(value)}")
    print()
    header = ("label", "gold", "found", "correct", "precision", "recall", "f1")
    print_table(header, [(label, *map(_readable, scores.values())) for label, scores in labels.items()])
    if confused:
        print()
        rows = [(pair["gold"], pair["found"], _readable(pair["times"])) for pair in confused]
        print_table(("right", "found", "times"), rows, names=2)


def _readable(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if value < 1000 else f"{value:,.0f}"
