"""`chainrule vectors contextual` and `senses`: words in their sentences, and the senses these tell apart."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import dumps, emit, progress, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainrule.inspection.senses import Separation
    from chainrule.neural.contextual import Layers

LINES_AT_ONCE = 1024
DIGITS = 6  # of a number in text and JSON


def register(app: typer.Typer) -> None:
    """Add both commands to those of `chainrule vectors`."""
    app.command("contextual")(contextual)
    app.command("senses")(senses)


def contextual(
    model: options.ModelFolder,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Sentences, one a line; - for stdin.")] = "-",
    layer: Annotated[
        int | None, typer.Option(help="One layer; 0: the words' own vectors.  [default: all; as text the last]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write all numbers to this file, which ends in .npz.")] = None,
    column: options.Column = None,
    errors: options.Errors = "strict",
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Show the contextual vector of each word in a sentence.

    By a neural language model or by an encoder.

    As text a word a line, a tab and its numbers, a blank line between sentences; JSON has a sentence a line. The
    file of --out holds the arrays words and sentence (its number, from 0), and layer0, layer1, … with a row a word.

    Example: echo "we sat on the bank of the river" | chainrule vectors contextual runs/encoder --layer 1 --json
    """
    from chainrule.errors import UsageError
    from chainrule.text.corpus import Corpus

    if out is not None and out.suffix.lower() != ".npz":
        raise UsageError(f"vectors are written as NumPy's .npz, and {out} does not end so; choose such a name")
    if out is not None and json:
        raise UsageError("--json prints and --out writes a file; choose one of them")
    loaded = _load(model, device)
    from chainrule.neural.contextual import contextual as read

    lines = iter(Corpus.of(file, **options.text_rules(column, errors, False)))
    if out is not None:
        with progress() as bar:
            _write(out, read(loaded, list(lines), layer, bar))
        return
    is_first = True
    while batch := list(islice(lines, LINES_AT_ONCE)):
        for found in read(loaded, batch, layer):
            if json:
                vectors = {str(k): [_numbers(row) for row in x] for k, x in found.vectors.items()}
                print(dumps({"words": list(found.words), "layers": vectors}, None))
                continue
            rows = zip(found.words, found.vectors[max(found.vectors)], strict=True)
            print("\n".join([""] * (not is_first) + [f"{word}\t{_text(row)}" for word, row in rows]))
            is_first = False


def senses(
    model: options.ModelFolder,
    word: Annotated[str, typer.Argument(metavar="WORD", help="A word of more than one sense.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="sense<TAB>sentence lines; each holds the word.")],
    out: Annotated[Path | None, typer.Option(help="Draw it: a file that ends in .svg or .html.")] = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Measure how a word's contextual vectors tell its senses apart.

    Accuracy is that of naming each sentence's sense by the nearest centroid, by cosine, of all other sentences;
    beside it stand the rate of the most frequent sense, and how much larger the mean cosine of two sentences is
    within senses than across.

    Example: chainrule vectors senses runs/encoder bank bank.tsv --out senses.html
    """
    from chainrule.errors import UsageError
    from chainrule.text.labelled import read_labelled

    if out is not None and out.suffix.lower() not in (".svg", ".html"):
        raise UsageError(f"senses are drawn as .svg or .html, and {out} ends in neither; choose such a name")
    given = read_labelled(file)
    loaded = _load(model, device)
    from chainrule.inspection.senses import best, check, majority, measure
    from chainrule.neural.occurrences import occurrences

    check(given.labels)
    with progress() as bar:
        found = occurrences(loaded, word, given.texts, given.name, bar)
    measured = measure(found.vectors, given.labels)
    if out is not None:
        from chainrule.inspection.senses_picture import Picture, draw, page
        from chainrule.inspection.svg import standalone
        from chainrule.replacement import replacing_file

        vectors = found.vectors[best(measured).layer]
        shown = Picture(word, model.name, given.labels, found.sentences, found.places, measured, vectors)
        drawn = page(shown) if out.suffix.lower() == ".html" else standalone(draw(shown))
        with replacing_file(out) as stream:
            stream.write(drawn.encode())
    _, rate = majority(given.labels)
    if json:
        counts = {sense: list(given.labels).count(sense) for sense in dict.fromkeys(given.labels)}
        document = {"model": str(model), "word": word, "senses": counts, "majority": rate}
        rows = [_document(each) for each in measured]
        emit(document | {"layers": rows, "best_layer": best(measured).layer})
    else:
        _print(measured, rate, len(given))
    if out is not None:
        say(f"wrote {out}")


def _load(model: Path, device: str) -> Any:
    """The model; without torch there is none that has such vectors."""
    from importlib import import_module

    from chainrule import loading
    from chainrule.errors import MissingExtra

    loaded = loading.load(model, device=options.device(device))
    try:
        import_module("torch")
    except ModuleNotFoundError as error:
        raise MissingExtra("contextual vectors need torch: pip install 'chainrule[neural]'") from error
    return loaded


def _document(each: "Separation") -> dict[str, Any]:
    return {
        "layer": each.layer,
        "is_static": each.different == 1,
        "accuracy": each.accuracy,
        "cosine_within": each.within,
        "cosine_across": each.across,
        "separation": each.gap,
    }


def _print(measured: "Sequence[Separation]", rate: float, sentences: int) -> None:
    print(f"{'layer':<12}{'accuracy':>10}{'majority':>10}{'within':>10}{'across':>10}{'separation':>12}")
    for each in measured:
        name = f"{each.layer} (static)" if each.layer == 0 else str(each.layer)
        figures = f"{each.within:>10.4f}{each.across:>10.4f}{each.gap:>12.4f}"
        print(f"{name:<12}{each.accuracy:>10.4f}{rate:>10.4f}{figures}")
    static = measured[0]
    if static.different == 1:
        print(
            f"layer 0 has the same vector in all {sentences} sentences: it can name no sense, and is right as "
            "often as always saying the most frequent one"
        )
    else:
        print(
            f"layer 0 has {static.different} different vectors in {sentences} sentences: the word is cut into "
            "other pieces, or written otherwise, in some of them"
        )


def _write(out: Path, found: "list[Layers]") -> None:
    """All sentences end to end: `words`, `sentence` and a matrix a layer."""
    import numpy as np

    from chainrule.errors import InputError
    from chainrule.replacement import replacing_file

    if not found:
        raise InputError("the text is empty; give one with at least one line")
    arrays: dict[str, Any] = {
        f"layer{k}": np.concatenate([each.vectors[k] for each in found]) for k in found[0].vectors
    }
    sentence = np.repeat(np.arange(len(found)), [len(each.words) for each in found])
    words = np.array([word for each in found for word in each.words], dtype=np.str_)
    with replacing_file(out) as stream:
        np.savez(stream, words=words, sentence=sentence, **arrays)
    say(f"wrote {out}: {len(words):,} words of {len(found):,} sentences, {', '.join(arrays)}")


def _numbers(row: Any) -> list[float]:
    return [float(f"{x:.{DIGITS}g}") for x in row.tolist()]


def _text(row: Any) -> str:
    return " ".join(f"{x:.{DIGITS}g}" for x in row.tolist())
