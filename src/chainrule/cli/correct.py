"""`chainrule correct`: mend the spelling of a text."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, flush, say
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.applications.channel import Channel
    from chainrule.applications.correct import Correction, Corrector

DEFAULT_RATE = 0.02


def correct(
    model: options.ModelFolder,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Lines to correct; - for stdin.")] = "-",
    pairs: Annotated[
        list[str] | None,
        typer.Option(help="Misspellings to learn from: wrong<TAB>right, right: wrong wrong, or $right."),
    ] = None,
    channel: Annotated[
        Path | None, typer.Option(help="The learnt edit model: written with --pairs, else read.")
    ] = None,
    candidates: Annotated[
        int, typer.Option(min=0, max=1000, help="Show so many candidates of the words in doubt.")
    ] = 0,
    lines: Annotated[
        bool, typer.Option("--lines", help="Only lines that change: number, as it was, as corrected.")
    ] = False,
    error_rate: Annotated[float, typer.Option(help="How many words are taken to be wrong.")] = DEFAULT_RATE,
    weight: Annotated[float, typer.Option(help="Of the language model beside the edit model.")] = 1.0,
    beam: Annotated[int, typer.Option(help="Readings of a line that are kept.")] = 8,
    real_words: Annotated[
        bool, typer.Option("--real-words/--no-real-words", help="Words of the vocabulary may be wrong, too.")
    ] = True,
    column: options.Column = None,
    errors: options.Errors = "strict",
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Correct the spelling of each line by the noisy channel.

    Example: echo "i recieved teh letter" | chainrule correct runs/ngram3 --pairs pairs.tsv
    """
    from chainrule import api
    from chainrule.applications.candidates import Settings
    from chainrule.applications.correct import Corrector
    from chainrule.text.corpus import Corpus, read_batches

    distance = {} if real_words else {"real_word_distance": 0}
    settings = Settings(error_rate=error_rate, weight=weight, beam=beam, **distance)
    corrector = Corrector(api.load(model, device=options.device(device)), _channel(pairs or [], channel), settings)
    text = Corpus.of(file, **options.text_rules(column, errors, False), reads_once=True)
    corrections = (found for batch in read_batches(text) for found in _flushed(corrector, batch, candidates))
    for number, found in enumerate(corrections, start=1):
        if json:
            emit(_document(found, number), indent=None)
        elif lines:
            if found.changes:
                print(f"{number}\t{found.text}\t{found.corrected}")
        else:
            print(found.corrected)
        if candidates and not json:
            _show(found)


def _flushed(corrector: "Corrector", lines: list[str], top: int) -> Iterator["Correction"]:
    """The corrections of some lines; when all are printed, they are handed over."""
    yield from corrector.corrections(lines, top=top)
    flush()


def _channel(pairs: list[str], path: Path | None) -> "Channel | None":
    """What was learnt; nothing where no file says anything."""
    from chainrule.applications.channel import Channel
    from chainrule.applications.misspellings import read_misspellings
    from chainrule.replacement import replacing_file

    if not pairs:
        return None if path is None else Channel.read(path)
    if "-" in pairs:
        raise UsageError("pairs are read from files, as stdin may be the text; write them to one")
    found = read_misspellings(pairs)
    learnt = Channel.learn(found)
    if path is not None:
        with replacing_file(path) as out:
            out.write(learnt.to_json().encode())
        say(f"{len(found):,} pairs learnt: {path}")
    return learnt


def _document(found: "Correction", number: int) -> dict[str, object]:
    """A line as JSON; of its words those that change or, with candidates, those that might."""
    shown = [word for word in found.words if word.is_changed or len(word.candidates) > 1]
    words = [
        {
            "start": word.start,
            "end": word.end,
            "written": word.written,
            "corrected": word.corrected,
            "candidates": [{"text": c.text, "probability": c.probability} for c in word.candidates],
        }
        for word in shown
    ]
    keys: dict[str, object] = {"line": number, "text": found.text, "corrected": found.corrected}
    return keys | {"score": found.score, "words": words}


def _show(found: "Correction") -> None:
    """The candidates of words that change, below their line."""
    for word in found.words:
        if word.is_changed:
            shares = "  ".join(f"{c.text} {c.probability:.3f}" for c in word.candidates)
            print(f"  {word.written} -> {word.corrected}:  {shares}")
