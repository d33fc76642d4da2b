"""`chainrule tag`: learn tags of words, tag sentences, measure."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import learning, options
from chainrule.cli.console import dumps, emit, flush, progress, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainrule.evaluation.tags import Confusion
    from chainrule.tasks.tag import TagReport
    from chainrule.text.sheets import Sheet

app = typer.Typer(help="Tag words: parts of speech, names, chunks.", no_args_is_help=True)

SETTINGS = ("characters",)  # options of this command alone that are settings
VALIDATED = ("f1", "accuracy")  # figures of a validation, that by which the best epoch is kept first
MOST_CONFUSED = 10
File = Annotated[str, typer.Argument(metavar="FILE", help="Columns (CoNLL, CoNLL-U), packed or not; - for stdin.")]
WHERE = "Where the tag is: a number from 1; CoNLL-U also upos, xpos."
Column = Annotated[str | None, typer.Option(help=f"{WHERE}  [default: the last; of CoNLL-U upos]")]
LearntColumn = Annotated[str | None, typer.Option(help=f"{WHERE}  [default: as in training]")]


@app.command()
def train(
    call: typer.Context,
    family: Annotated[str, typer.Argument(metavar="FAMILY", help="rnn, lstm, gru or transformer.")],
    file: File,
    out: learning.Out,
    valid: Annotated[str | None, typer.Option(help="Held-out sentences to measure on while training.")] = None,
    column: Column = None,
    crf: Annotated[
        bool | None, typer.Option("--crf/--no-crf", help="Choose a sentence's tags together.  [default: crf]")
    ] = None,
    characters: Annotated[
        int | None, typer.Option(help="Features of a word's spelling; 0: none.  [default: 50]")
    ] = None,
    pretrained: Annotated[str | None, typer.Option(help="Start from this folder of chainrule pretrain.")] = None,
    vectors: Annotated[
        str | None, typer.Option(help="Start from these word vectors (text, as of GloVe or word2vec).")
    ] = None,
    recipe: learning.Recipe = None,
    config: learning.Config = None,
    set_: learning.Set = None,
    resume: learning.Resume = False,
    force: options.Force = False,
    tensorboard: learning.Tensorboard = False,
    tokenizer: Annotated[str | None, typer.Option(help="The folder of a word tokenizer, for its words.")] = None,
    vocab_size: options.VocabSize = None,
    min_count: options.MinCount = None,
    lowercase: Annotated[
        bool | None, typer.Option("--lowercase/--cased", help="How words are looked up.  [default: lowercase]")
    ] = None,
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
    json: options.Json = False,
) -> None:
    """Train a tagger on sentences of tagged words.

    A word and its tags a line, a blank line between sentences.

    Names and chunks (B-PER, I-PER, O) are learnt and measured as spans.

    Examples: chainrule tag train lstm train.conllu --valid dev.conllu --out runs/upos

    chainrule tag train lstm eng.train --valid eng.testa --recipe conll2003-lstm --out runs/names
    """
    options.use_threads(threads)
    from chainrule import tasks

    task = tasks.get("tag")
    start = time.perf_counter()
    finished = tokenizer if pretrained is None else pretrained  # then a recipe's settings of the words do not count
    chosen = learning.choices("tag", family, task.Config, {**call.params, "tokenizer": finished}, SETTINGS)
    chosen.model.update({} if crf is None else {"crf": crf})
    chosen.tokenizer.update({} if lowercase is None else {"lowercase": lowercase})
    kind = chosen.tokenizer.pop("kind", None)
    with learning.run(call.params, chosen, kind) as running:
        model = task.train(
            family,
            file,
            valid=valid,
            column=column,
            tokenizer=kind if tokenizer is None else tokenizer,
            pretrained=pretrained,
            vectors=vectors,
            running=running,
            **chosen.tokenizer,
            **chosen.model,
        )
        model.save(out, force=force)
    validation = {name: model.metrics[f"valid_{name}"] for name in VALIDATED if f"valid_{name}" in model.metrics}
    if json:
        document = {"model": str(out), "family": family, "parameters": model.parameters, **model.metrics}
        emit(document | ({"validation": validation} if validation else {}))
    found = "".join(f", validation {name} {_readable(value)}" for name, value in list(validation.items())[:1])
    say(f"saved {out}: {model.parameters:,} parameters{found}, {time.perf_counter() - start:.1f} s in all")


@app.command()
def predict(
    model: options.ModelFolder,
    file: Annotated[
        str,
        typer.Argument(metavar="[FILE]", help='Lines of words, columns, or JSON Lines with "words"; - for stdin.'),
    ] = "-",
    plain: Annotated[
        bool | None,
        typer.Option(
            "--plain/--columns",
            help="Lines of words, or columns.  [default: .txt and stdin are lines, CoNLL-U is not]",
        ),
    ] = None,
    column: LearntColumn = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also how probable each tag is, spans as they are learnt.")
    ] = False,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Tag the words of sentences.

    A word and its tag a line, a blank line between sentences; JSON has a sentence a line.

    Of columns all lines are kept, and the tag takes the place of the one in --column; a number that the file does
    not have adds a column. Without --column, a column with none of the model's tags is kept, and the tag stands
    behind the others (CoNLL-U: in MISC). A blank line among lines of words is a sentence without words.

    Example: echo "the saw saw wood" | chainrule tag predict runs/upos
    """
    from chainrule import tasks
    from chainrule.text.sheets import read_sheet_batches

    loaded = tasks.get("tag").load(model, options.device(device))
    if column is None:
        batches = read_sheet_batches(file, plain=plain, column=loaded.column, is_known=loaded.tags.is_known)
    else:
        batches = read_sheet_batches(file, plain=plain, column=column)
    is_first = True
    for sheets in batches:
        sentences = [words for sheet in sheets for words in sheet.sentences]
        with progress() as bar:
            found = loaded.tag_all(sentences, bar)
            sure = loaded.confidences(sentences, bar) if probabilities else None
        if json:
            for i, (words, tags) in enumerate(zip(sentences, found, strict=True)):
                shares = {} if sure is None else {"probabilities": sure[i]}
                print(dumps({"words": list(words), "tags": tags} | shares, None))
        else:
            _print_tagged(sheets, found, sure, is_first)
        flush()
        is_first = False


def _print_tagged(
    sheets: "list[Sheet]", tags: list[list[str]], probabilities: list[list[float]] | None, is_first: bool
) -> None:
    """The lines of some files; a blank line parts them from those before."""
    done, is_open = 0, not is_first
    for sheet in sheets:
        part = slice(done, done + len(sheet.rows))
        lines = sheet.with_tags(tags[part], None if probabilities is None else probabilities[part])
        if lines or is_open:
            print("\n".join([""] * is_open + lines))  # a file ends a sentence
        done, is_open = part.stop, bool(lines and lines[-1].strip())


@app.command()
def evaluate(
    model: options.ModelFolder,
    file: File,
    column: LearntColumn = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Measure a tagger: accuracy, and F1 of spans or of each tag.

    Example: chainrule tag evaluate runs/names eng.testb
    """
    from chainrule import tasks

    loaded = tasks.get("tag").load(model, options.device(device))
    with progress() as bar:
        found = loaded.evaluate(file, column=column, progress=bar)
    if json:
        emit({"model": str(model), "family": loaded.config.family, **_document(found)})
        return
    _print(found)


def _document(found: "TagReport") -> dict[str, Any]:
    document: dict[str, Any] = {
        "sentences": found.sentences,
        "words": found.words,
        "unknown_words": found.unknown_words,
        "accuracy": found.accuracy,
        "unknown_accuracy": found.unknown_accuracy if found.unknown_words else None,
    }
    if found.spans is not None:
        document |= _scores(found.spans)
    confused = [mistake._asdict() for mistake in found.confusion.most_confused(MOST_CONFUSED)]
    return document | {
        "by_label": {label: _scores(scores) for label, scores in found.by_label.items()},
        "most_confused": confused,
        "confusion": _table(found.confusion),
        "seconds": found.seconds,
        "words_per_second": found.words_per_second,
    }


def _table(confusion: "Confusion") -> dict[str, dict[str, int]]:
    """How often each right tag was found as each tag, what never happened left out."""
    rows = zip(confusion.labels, confusion.counts.tolist(), strict=True)
    table = {right: dict(zip(confusion.labels, counts, strict=True)) for right, counts in rows}
    return {right: {tag: n for tag, n in row.items() if n} for right, row in table.items() if any(row.values())}


def _scores(scores: Any) -> dict[str, Any]:
    names = ("gold", "found", "correct", "precision", "recall", "f1")
    return {name: getattr(scores, name) for name in names}


def _print(found: "TagReport") -> None:
    document = _document(found)
    labels, confused, _ = (document.pop(name) for name in ("by_label", "most_confused", "confusion"))
    for name, value in document.items():
        if value is not None:
            print(f"{name:<26}{_readable(value)}")
    print()
    header = ("label", "gold", "found", "correct", "precision", "recall", "f1")
    _print_table(1, header, [(label, *map(_readable, scores.values())) for label, scores in labels.items()])
    if confused:
        print()
        rows = [(each["gold"], each["found"], _readable(each["times"])) for each in confused]
        _print_table(2, ("right", "found", "times"), rows)


def _print_table(names: int, header: tuple[str, ...], rows: "Sequence[tuple[str, ...]]") -> None:
    """Columns as wide as they need to be, the first `names` to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = [f"{cell:{'<' if i < names else '>'}{widths[i]}}" for i, cell in enumerate(row)]
        print("  ".join(cells).rstrip())


def _readable(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if value < 1000 else f"{value:,.0f}"
