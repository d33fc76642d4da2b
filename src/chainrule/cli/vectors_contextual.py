"""`chainrule vectors contextual` and `vectors senses`: contextual word vectors and word-sense separation."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import dumps, emit, progress, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainrule.analysis.senses import Separation
    from chainrule.neural.probes.contextual import Layers

LINES_AT_ONCE = 1024
DIGITS = 6  # significant digits in text and JSON


def register(app: typer.Typer) -> None:
    """Add both commands to the `chainrule vectors` group."""
    app.command("contextual")(contextual)
    app.command("senses")(senses)


def contextual(
    model: options.ModelFolder,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Sentences, one per line; - for stdin.")] = "-",
    layer: Annotated[
        int | None,
        typer.Option(help="Layer to print; 0 is the embedding layer.  [default: all; in text output, the last]"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the vectors to this .npz file.")] = None,
    column: options.Column = None,
    errors: options.Errors = "strict",
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Print the contextual vector of each word.

    MODEL is a neural language model or a pre-trained encoder.

    Text output has one word per line, a tab and its vector, with a blank line between sentences; JSON output has
    one sentence per line. The .npz file of --out contains the arrays words and sentence (its index, from 0), and
    layer0, layer1, … with one row per word.

    Example: echo "we sat on the bank of the river" | chainrule vectors contextual runs/encoder --layer 1 --json
    """
    from chainrule.errors import UsageError
    from chainrule.text.corpus import Corpus

    if out is not None and out.suffix.lower() != ".npz":
        raise UsageError(f"vectors are written as NumPy's .npz, and {out} does not end so; choose such a name")
    if out is not None and json:
        raise UsageError("--json prints and --out writes a file; choose one of them")
    loaded = _load(model, device)
    from chainrule.neural.probes.contextual import contextual as read

    lines = iter(Corpus.of(file, **options.corpus_options(column, errors, False)))
    if out is not None:
        with progress() as bar:
            _write(out, read(loaded, list(lines), layer, bar))
        return
    is_first = True
    while batch := list(islice(lines, LINES_AT_ONCE)):
        for sentence in read(loaded, batch, layer):
            if json:
                vectors = {str(k): [_numbers(row) for row in x] for k, x in sentence.vectors.items()}
                print(dumps({"words": list(sentence.words), "layers": vectors}, None))
                continue
            rows = zip(sentence.words, sentence.vectors[max(sentence.vectors)], strict=True)
            print("\n".join([""] * (not is_first) + [f"{word}\t{_text(row)}" for word, row in rows]))
            is_first = False


def senses(
    model: options.ModelFolder,
    word: Annotated[str, typer.Argument(metavar="WORD", help="An ambiguous word.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Lines of sense<TAB>sentence; every sentence contains the word.")
    ],
    out: Annotated[Path | None, typer.Option(help="Write a figure to this .svg or .html file.")] = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Measure how well contextual vectors separate a word's senses.

    Prints, for every layer, the leave-one-out accuracy of a nearest-centroid classifier (cosine similarity), the
    majority baseline, and the mean cosine similarity of sentence pairs within and across senses.

    Example: chainrule vectors senses runs/encoder bank bank.tsv --out senses.html
    """
    from chainrule.errors import UsageError
    from chainrule.text.labelled import read_labelled

    if out is not None and out.suffix.lower() not in (".svg", ".html"):
        raise UsageError(f"senses are drawn as .svg or .html, and {out} ends in neither; choose such a name")
    labelled = read_labelled(file)
    loaded = _load(model, device)
    from chainrule.analysis.senses import best_layer, check_senses, majority_sense, measure_separation
    from chainrule.neural.probes.contextual import occurrences

    check_senses(labelled.labels)
    with progress() as bar:
        uses = occurrences(loaded, word, labelled.texts, labelled.name, bar)
    layers = measure_separation(uses.vectors, labelled.labels)
    if out is not None:
        from chainrule.analysis.senses import SensePlot, draw, render_page
        from chainrule.plots.base import standalone
        from chainrule.storage.atomic import atomic_file

        vectors = uses.vectors[best_layer(layers).layer]
        picture = SensePlot(word, model.name, labelled.labels, uses.sentences, uses.positions, layers, vectors)
        drawn = render_page(picture) if out.suffix.lower() == ".html" else standalone(draw(picture))
        with atomic_file(out) as stream:
            stream.write(drawn.encode())
    _, rate = majority_sense(labelled.labels)
    if json:
        counts = {sense: list(labelled.labels).count(sense) for sense in dict.fromkeys(labelled.labels)}
        document = {"model": str(model), "word": word, "senses": counts, "majority": rate}
        rows = [_document(layer) for layer in layers]
        emit(document | {"layers": rows, "best_layer": best_layer(layers).layer})
    else:
        _print(layers, rate, len(labelled))
    if out is not None:
        say(f"wrote {out}")


def _load(model: Path, device: str) -> Any:
    """Load the model; raise MissingExtra if torch is not installed."""
    from importlib import import_module

    from chainrule import api
    from chainrule.errors import MissingExtra

    loaded = api.load(model, device=options.check_device(device))
    try:
        import_module("torch")
    except ModuleNotFoundError as error:
        raise MissingExtra("contextual vectors need torch: pip install 'chainrule[neural]'") from error
    return loaded


def _document(separation: "Separation") -> dict[str, Any]:
    return {
        "layer": separation.layer,
        "is_static": separation.different == 1,
        "accuracy": separation.accuracy,
        "cosine_within": separation.within,
        "cosine_across": separation.across,
        "separation": separation.gap,
    }


def _print(measured: "Sequence[Separation]", rate: float, sentences: int) -> None:
    print(f"{'layer':<12}{'accuracy':>10}{'majority':>10}{'within':>10}{'across':>10}{'separation':>12}")
    for layer in measured:
        name = f"{layer.layer} (static)" if layer.layer == 0 else str(layer.layer)
        figures = f"{layer.within:>10.4f}{layer.across:>10.4f}{layer.gap:>12.4f}"
        print(f"{name:<12}{layer.accuracy:>10.4f}{rate:>10.4f}{figures}")
    static = measured[0]
    if static.different == 1:
        print(
            f"layer 0 has the same vector in all {sentences} sentences: it cannot separate the senses, and its "
            "accuracy equals that of the majority baseline"
        )
    else:
        print(
            f"layer 0 has {static.different} different vectors in {sentences} sentences: the word is tokenized or "
            "written differently in some of them"
        )


def _write(out: Path, read: "list[Layers]") -> None:
    """Write all sentences concatenated: `words`, `sentence` and one matrix per layer."""
    import numpy as np

    from chainrule.errors import InputError
    from chainrule.storage.atomic import atomic_file

    if not read:
        raise InputError("the text is empty; give one with at least one line")
    arrays: dict[str, Any] = {
        f"layer{k}": np.concatenate([sentence_layers.vectors[k] for sentence_layers in read])
        for k in read[0].vectors
    }
    sentence = np.repeat(np.arange(len(read)), [len(sentence_layers.words) for sentence_layers in read])
    words = np.array([word for sentence_layers in read for word in sentence_layers.words], dtype=np.str_)
    with atomic_file(out) as stream:
        np.savez(stream, words=words, sentence=sentence, **arrays)
    say(f"wrote {out}: {len(words):,} words of {len(read):,} sentences, {', '.join(arrays)}")


def _numbers(row: Any) -> list[float]:
    return [float(f"{x:.{DIGITS}g}") for x in row.tolist()]


def _text(row: Any) -> str:
    return " ".join(f"{x:.{DIGITS}g}" for x in row.tolist())
