"""`chainrule classify`: train, predict, evaluate."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import learning, options
from chainrule.cli.console import dumps, emit, flush, progress, say

if TYPE_CHECKING:
    from chainrule.tasks.classify import Classifier
    from chainrule.tasks.classify_page import Explained
    from chainrule.tasks.classify_report import Report

app = typer.Typer(help="Learn labels of texts, label new ones.", no_args_is_help=True)
FAMILIES = "ngram (Bayes' rule), rnn, lstm, gru or transformer."  # in words: the table itself is slow to load
OWN = ("pooling", "class_weights", "order", "smoothing")
WIDEST = 10  # labels of which every pair is shown
LOUD, CLEAR, FAINT = 0.7, 0.4, 0.1  # parts of the largest weight from where a piece is shown so

Labelled = Annotated[
    str, typer.Argument(metavar="FILE", help="label<TAB>text, label<SPACE>text or JSON Lines; - for stdin.")
]
Label = Annotated[str, typer.Option("--label", help="The label column, of JSON Lines or a table with a header.")]
Column = Annotated[str, typer.Option("--column", help="The text column, of JSON Lines or a table with a header.")]
Lowercase = Annotated[
    bool | None, typer.Option("--lowercase/--no-lowercase", help="Lower-case the text.  [default: yes]")
]


@app.command()
def train(
    call: typer.Context,
    family: Annotated[str, typer.Argument(metavar="FAMILY", help=FAMILIES)],
    file: Labelled,
    out: learning.Out,
    valid: Annotated[str | None, typer.Option(help="Held-out labelled texts to measure on while training.")] = None,
    recipe: learning.Recipe = None,
    config: learning.Config = None,
    set_: learning.Set = None,
    resume: learning.Resume = False,
    force: options.Force = False,
    tensorboard: learning.Tensorboard = False,
    pretrained: Annotated[Path | None, typer.Option(help="Networks: a folder of chainrule pretrain.")] = None,
    vectors: Annotated[Path | None, typer.Option(help="Networks: a file of word vectors to begin with.")] = None,
    tokenizer: options.Tokenizer = None,
    vocab_size: options.VocabSize = None,
    min_count: options.MinCount = None,
    lowercase: Lowercase = None,
    pooling: Annotated[str | None, typer.Option(help="Networks: last, mean, max or attention.")] = None,
    class_weights: Annotated[
        str | None, typer.Option(help="Networks: balanced where rare labels shall weigh more; or none.")
    ] = None,
    order: Annotated[int | None, typer.Option(help="ngram: words per n-gram.  [default: 1]")] = None,
    smoothing: options.Smoothing = None,
    hidden: options.Hidden = None,
    layers: options.Layers = None,
    embedding: options.Embedding = None,
    dropout: options.Dropout = None,
    batch_size: options.BatchSize = None,
    epochs: options.Epochs = None,
    max_seconds: options.MaxSeconds = None,
    optimizer: options.Optimizer = None,
    learning_rate: options.LearningRate = None,
    clip: options.Clip = None,
    precision: options.Precision = None,
    seed: options.RunSeed = None,
    threads: options.Threads = None,
    device: options.Device = "auto",
    column: Column = "text",
    label: Label = "label",
    json: options.Json = False,
) -> None:
    """Learn from labelled texts.

    With --valid the best epoch is kept, and the temperature of the probabilities is fitted.

    Examples: chainrule classify train ngram spam.tsv --out runs/bayes

    chainrule classify train lstm train.tsv --valid dev.tsv --pooling attention --out runs/lstm
    """
    options.use_threads(threads)
    from chainrule import tasks

    start = time.perf_counter()
    classify = tasks.get("classify")
    classify.check_family(family, pretrained=pretrained, vectors=vectors)
    given = dict(call.params)
    if lowercase is False:  # which is a choice, too
        given["set_"] = [*(set_ or []), "lowercase=false"]
    if pretrained is not None and tokenizer is None:
        given["tokenizer"] = str(pretrained)  # a recipe's tokenizer gives way to the encoder's own
    chosen = learning.choices("classify", family, classify.config_of(family), given, OWN)
    kind = chosen.tokenizer.pop("kind", None)
    with learning.run(given, chosen, kind) as running:
        model = classify.train(
            family,
            file,
            valid=valid,
            column=column,
            label=label,
            tokenizer=tokenizer or kind,
            pretrained=pretrained,
            vectors=vectors,
            running=running,
            **chosen.tokenizer,
            **chosen.model,
        )
        model.save(out, force=force)
    found = {name.removeprefix("valid_"): x for name, x in model.metrics.items() if name.startswith("valid_")}
    if json:
        about = {"model": str(out), "family": family, "labels": model.counts, "parameters": model.parameters}
        emit(about | model.metrics | ({"validation": found} if found else {}))
    said = f", validation accuracy {found['accuracy']:.1%}, macro F1 {found['macro_f1']:.1%}" if found else ""
    say(f"saved {out}: {model.parameters:,} parameters{said}, {time.perf_counter() - start:.1f} s in all")


@app.command()
def predict(
    model: options.ModelFolder,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Texts, one a line, or JSON Lines; - for stdin.")
    ] = "-",
    explain: Annotated[bool, typer.Option("--explain", help="Also the weight of each piece of the text.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the explanations to this file, as a page.")] = None,
    column: Column = "text",
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Print the label of each text and its probability.

    Label, probability and text are separated by tabs.

    A network reads the first tokens of a long text, up to its setting `longest`, and warns where it cuts. Of a
    table whose first or last column holds labels of the model, the other columns are the text.

    Example: echo "a gorgeous film" | chainrule classify predict runs/lstm --explain
    """
    from chainrule import tasks
    from chainrule.errors import UsageError
    from chainrule.tasks.classify_page import Explained, page
    from chainrule.text.labelled import read_text_batches

    if html is not None and (html.is_dir() or not html.absolute().parent.is_dir()):
        what = "is a folder" if html.is_dir() else "would stand in a folder that does not exist"
        raise UsageError(f"--html {html} {what}; name a file to write, such as explained.html")
    loaded: Classifier = tasks.get("classify").load(model, options.device(device))
    way = loaded.posterior.way
    pages: list[Explained] = []
    for texts in read_text_batches(file, column=column, labels=loaded.labels):
        with progress() as bar:
            p = loaded.probabilities(texts, bar)
        for text, row in zip(texts, p, strict=True):
            pieces = loaded.pieces(text) if explain or html is not None else []
            found = Explained(text, loaded.labels[row.argmax()], float(row.max()), pieces, way)
            if html is not None:
                pages.append(found)
            if json:
                _emit(found, dict(zip(loaded.labels, row.tolist(), strict=True)), explain)
            else:
                _show(found, explain)
        flush()
    if explain and not json:
        say(_legend(way, html is not None or sys.stdout.isatty()))
    if html is not None:
        html.write_text(page(pages), encoding="utf-8")
        say(f"wrote {html}")


@app.command()
def evaluate(
    model: options.ModelFolder,
    file: Labelled,
    bins: Annotated[int, typer.Option(min=1, max=1000, help="Rows of the reliability table.")] = 10,
    column: Column = "text",
    label: Label = "label",
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Measure a classifier on labelled texts.

    Accuracy, precision and recall by label, the confusion matrix, calibration.

    A label the model never met counts as an error, and a warning names it.

    Example: chainrule classify evaluate runs/lstm test.tsv
    """
    from chainrule import tasks

    loaded: Classifier = tasks.get("classify").load(model, options.device(device))
    with progress() as bar:
        report = loaded.evaluate(file, bins=bins, column=column, label=label, progress=bar)
    if json:
        about = {"model": str(model), "family": loaded.config.family, "temperature": loaded.temperature}
        emit(about | report.as_json())
        return
    _print_report(report)


def _legend(way: str, is_coloured: bool) -> str:
    """What weights mean; nothing of colours where there are none."""
    from chainrule.tasks.classify_page import LEGENDS

    if is_coloured:
        return LEGENDS[way]
    if way == "attention":
        sign = "that speaks neither for the label nor against it."
    else:
        sign = "above 0 it speaks for the label found, below 0 for the next most probable one."
    words = LEGENDS[way]
    return f"{words[words.index('A number') :].removesuffix('.')}; {sign}"


def _emit(found: "Explained", probabilities: dict[str, float], explain: bool) -> None:
    """One line of JSON."""
    document: dict[str, Any] = {"text": found.text, "label": found.label, "probability": found.probability}
    document["probabilities"] = probabilities
    if explain:
        names = ("token", "weight", "start", "end", "is_known")
        document["explained_by"] = found.way
        document["tokens"] = [dict(zip(names, piece, strict=True)) for piece in found.pieces]
    print(dumps(document, None))


def _show(found: "Explained", explain: bool) -> None:
    """A line, then the pieces coloured on a terminal, unknown ones underlined; a line for each piece elsewhere."""
    print(f"{found.label}\t{found.probability:.6f}\t{' '.join(found.text.splitlines())}")
    if not explain:
        return
    if not sys.stdout.isatty():
        for piece, (shown, _) in zip(found.pieces, found.shades, strict=True):
            print(f"{piece.weight:+.6f}\t  {shown}" + ("" if piece.is_known else "\tunknown"))
        return
    from rich.console import Console
    from rich.text import Text

    line, at = Text("  "), 0
    for piece, (shown, shade) in zip(found.pieces, found.shades, strict=True):
        colour = "bright_blue" if shade > 0 else "dark_orange"
        strengths = ((LOUD, f"reverse {colour}"), (CLEAR, f"bold {colour}"), (FAINT, colour))
        style = next((style for least, style in strengths if abs(shade) >= least), "")
        line.append(" " * (piece.start - at + (piece.start == piece.end)))
        line.append(shown, style=style if piece.is_known else f"underline {style}".strip())
        at = piece.end
    Console(file=sys.stdout).print(line, soft_wrap=True)


def _print_report(report: "Report") -> None:
    document = report.as_json()
    for name, value in document.items():
        if isinstance(value, float):
            print(f"{name:<28}{value:.6g}")
        elif isinstance(value, int):
            print(f"{name:<28}{value:,}")
    print(f"{'majority':<28}{report.majority_accuracy:.6g} ({report.majority})")
    c, k = report.classes, report.calibration
    rows = [
        (label, *(f"{x[i]:.4f}" for x in (c.precision, c.recall, c.f1)), f"{c.support[i]:,}")
        for i, label in enumerate(c.labels)
    ]
    _print_table(("label", "precision", "recall", "f1", "texts"), rows)
    if len(c.labels) <= WIDEST:
        counts = c.confusion.tolist()
        _print_table(
            ("true, found:", *c.labels), [(n, *map(str, row)) for n, row in zip(c.labels, counts, strict=True)]
        )
    else:
        mistakes = [
            (c.confusion[i, j], a, b) for i, a in enumerate(c.labels) for j, b in enumerate(c.labels) if i != j
        ]
        worst = sorted(mistakes, key=lambda mistake: -mistake[0])[:WIDEST]
        _print_table(("true", "found", "texts"), [(a, b, str(n)) for n, a, b in worst if n])
    bins = [
        (f"{b.low:.3g} to {b.high:.3g}", f"{b.confidence:.4f}", f"{b.accuracy:.4f}", f"{b.count:,}") for b in k.bins
    ]
    _print_table(("probability", "mean", "accuracy", "texts"), bins)


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A blank line, then columns as wide as they must be, all but the first to the right."""
    print()
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    sides = "<" + ">" * (len(header) - 1)
    for row in (header, *rows):
        cells = (f"{cell:{side}{width}}" for cell, width, side in zip(row, widths, sides, strict=True))
        print("  ".join(cells).rstrip())
