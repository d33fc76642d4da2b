"""`chainrule classify`: train, apply and evaluate text classifiers."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options, training_options
from chainrule.cli.console import dumps, emit, flush, print_table, progress, say
from chainrule.neural.cells import CELLS
from chainrule.ngram.config import Config as NgramConfig

if TYPE_CHECKING:
    from chainrule.tasks.classify import Classifier
    from chainrule.tasks.classify_report import ClassifierReport, Explanation

app = typer.Typer(help="Text classification: train, predict, evaluate.", no_args_is_help=True)
FAMILIES = f"Model family: ngram (naive Bayes), {', '.join(CELLS)} or transformer."
MAX_LABELS = 10  # labels for which the whole confusion matrix is printed; else the most frequent confusions
STRONG, MEDIUM, WEAK = 0.7, 0.4, 0.1  # thresholds of the highlight styles, relative to the largest weight

Labelled = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="Labelled texts: label<TAB>text, label<SPACE>text or JSON Lines; - for stdin."
    ),
]
Label = Annotated[
    str, typer.Option("--label", help="Name of the label column in JSON Lines or a table with a header.")
]
Column = Annotated[
    str, typer.Option("--column", help="Name of the text column in JSON Lines or a table with a header.")
]
SETTINGS = training_options.TASK_SETTINGS | {
    "lowercase": options.option(bool, "Lowercase the text.  [default: yes]", "--lowercase/--no-lowercase"),
    "pooling": options.option(str, "Pooling over token states (neural models): last, mean, max or attention."),
    "class_weights": options.option(
        str, "Loss weights of the labels (neural models): balanced (inverse frequency) or none."
    ),
    "order": options.option(int, "ngram: order of the class models.  [default: 1]"),
    **options.options_from_fields(NgramConfig, "smoothing"),
}


@app.command()
@options.expand_option_groups(SETTINGS)
def train(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help=FAMILIES)],
    file: Labelled,
    *,
    run: training_options.Run,
    valid: Annotated[str | None, typer.Option(help="Labelled validation texts, evaluated during training.")] = None,
    pretrained: Annotated[
        Path | None, typer.Option(help="Neural models: initialize from an encoder trained by chainrule pretrain.")
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="Neural models: initialize embeddings from this file of word vectors.")
    ] = None,
    settings: dict[str, object],
    column: Column = "text",
    label: Label = "label",
    json: options.Json = False,
) -> None:
    """Train a text classifier.

    With --valid, the best epoch is kept and the probabilities are calibrated by temperature scaling.

    Examples: chainrule classify train ngram spam.tsv --out runs/bayes

    chainrule classify train lstm train.tsv --valid dev.tsv --pooling attention --out runs/lstm
    """
    options.limit_threads(run.threads)
    from chainrule import families

    families.get_task("classify").check_family(family, pretrained=pretrained, vectors=vectors)
    model, seconds = training_options.train_task(
        "classify",
        family,
        file,
        run,
        settings,
        inputs=(valid, pretrained, vectors),
        valid=valid,
        column=column,
        label=label,
        pretrained=pretrained,
        vectors=vectors,
    )
    validation = {name.removeprefix("valid_"): x for name, x in model.metrics.items() if name.startswith("valid_")}
    quality = ""
    if validation:
        quality = f", validation accuracy {validation['accuracy']:.1%}, macro F1 {validation['macro_f1']:.1%}"
    about = {"family": family, "labels": model.counts}
    training_options.report_training(run, model, seconds, about, validation, quality, json)


@app.command()
def predict(
    model: options.ModelFolder,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Texts, one per line, or JSON Lines; - for stdin.")
    ] = "-",
    explain: Annotated[
        bool, typer.Option("--explain", help="Also print the weight of every token in the decision.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write the explanations to this HTML file.")] = None,
    column: Column = "text",
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Predict the label of each text, with its probability.

    Label, probability and text are separated by tabs.

    A neural classifier reads at most the first `longest` tokens of a text and warns if it truncates. If the first
    or last column of a table contains labels of the model, the other columns are the text.

    Example: echo "a gorgeous film" | chainrule classify predict runs/lstm --explain
    """
    from chainrule import api
    from chainrule.errors import UsageError
    from chainrule.tasks.classify_report import LEGENDS, Explanation, render_page
    from chainrule.text.labelled import read_text_batches

    if html is not None and (html.is_dir() or not html.absolute().parent.is_dir()):
        what = "is a folder" if html.is_dir() else "is in a folder that does not exist"
        raise UsageError(f"--html {html} {what}; give a file to write, such as explained.html")
    loaded: Classifier = api.load(model, kind="classify", device=options.check_device(device))
    method = loaded.posterior.default_explanation
    predictions: list[Explanation] = []
    for texts in read_text_batches(file, column=column, labels=loaded.labels):
        with progress() as bar:
            p = loaded.probabilities(texts, bar)
        for text, row in zip(texts, p, strict=True):
            pieces = loaded.weighted_spans(text) if explain or html is not None else []
            prediction = Explanation(text, loaded.labels[row.argmax()], float(row.max()), pieces, method)
            if html is not None:
                predictions.append(prediction)
            if json:
                _emit(prediction, dict(zip(loaded.labels, row.tolist(), strict=True)), explain)
            else:
                _show(prediction, explain)
        flush()
    if explain and not json:
        is_colored = html is not None or sys.stdout.isatty()
        say(LEGENDS[method].colored if is_colored else LEGENDS[method].plain)
    if html is not None:
        html.write_text(render_page(predictions), encoding="utf-8")
        say(f"wrote {html}")


@app.command()
def evaluate(
    model: options.ModelFolder,
    file: Labelled,
    bins: Annotated[int, typer.Option(min=1, max=1000, help="Number of bins in the calibration table.")] = 10,
    column: Column = "text",
    label: Label = "label",
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Evaluate a classifier on labelled texts.

    Prints accuracy, precision and recall per label, the confusion matrix and calibration.

    A label that did not occur in training counts as an error; a warning names it.

    Example: chainrule classify evaluate runs/lstm test.tsv
    """
    from chainrule import api

    loaded: Classifier = api.load(model, kind="classify", device=options.check_device(device))
    with progress() as bar:
        report = loaded.evaluate(file, bins=bins, column=column, label=label, progress=bar)
    if json:
        about = {"model": str(model), "family": loaded.config.family, "temperature": loaded.temperature}
        emit(about | report.as_json())
        return
    _print_report(report)


def _emit(prediction: "Explanation", probabilities: dict[str, float], explain: bool) -> None:
    """Print one prediction as a line of JSON."""
    document: dict[str, Any] = {
        "text": prediction.text,
        "label": prediction.label,
        "probability": prediction.probability,
    }
    document["probabilities"] = probabilities
    if explain:
        names = ("token", "weight", "start", "end", "is_known")
        document["explained_by"] = prediction.method
        document["tokens"] = [dict(zip(names, piece, strict=True)) for piece in prediction.spans]
    print(dumps(document, None))


def _show(prediction: "Explanation", explain: bool) -> None:
    """Print a prediction and, with `explain`, its tokens: coloured on a terminal, otherwise one per line."""
    print(f"{prediction.label}\t{prediction.probability:.6f}\t{' '.join(prediction.text.splitlines())}")
    if not explain:
        return
    if not sys.stdout.isatty():
        for piece, (shown, _) in zip(prediction.spans, prediction.shades, strict=True):
            print(f"{piece.weight:+.6f}\t  {shown}" + ("" if piece.is_known else "\tunknown"))
        return
    from rich.console import Console
    from rich.text import Text

    line, position = Text("  "), 0
    for piece, (shown, shade) in zip(prediction.spans, prediction.shades, strict=True):
        colour = "bright_blue" if shade > 0 else "dark_orange"
        strengths = ((STRONG, f"reverse {colour}"), (MEDIUM, f"bold {colour}"), (WEAK, colour))
        style = next((style for threshold, style in strengths if abs(shade) >= threshold), "")
        line.append(" " * (piece.start - position + (piece.start == piece.end)))
        line.append(shown, style=style if piece.is_known else f"underline {style}".strip())
        position = piece.end
    Console(file=sys.stdout).print(line, soft_wrap=True)


def _print_report(report: "ClassifierReport") -> None:
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
    print()
    print_table(("label", "precision", "recall", "f1", "texts"), rows)
    if len(c.labels) <= MAX_LABELS:
        counts = c.confusion.tolist()
        print()
        print_table(
            ("true, found:", *c.labels), [(n, *map(str, row)) for n, row in zip(c.labels, counts, strict=True)]
        )
    else:
        mistakes = [
            (c.confusion[i, j], a, b) for i, a in enumerate(c.labels) for j, b in enumerate(c.labels) if i != j
        ]
        worst = sorted(mistakes, key=lambda mistake: -mistake[0])[:MAX_LABELS]
        print()
        print_table(("true", "found", "texts"), [(a, b, str(n)) for n, a, b in worst if n])
    bins = [
        (f"{b.low:.3g} to {b.high:.3g}", f"{b.confidence:.4f}", f"{b.accuracy:.4f}", f"{b.count:,}") for b in k.bins
    ]
    print()
    print_table(("probability", "mean", "accuracy", "texts"), bins)
