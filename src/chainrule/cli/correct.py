"""`chainrule correct`: noisy-channel spelling correction."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, flush, say
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.applications.spelling.corrector import Correction, Corrector
    from chainrule.applications.spelling.noisy_channel import Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOptions:
    """Options of the noisy-channel model."""

    error_rate: Annotated[float, typer.Option(help="Prior probability that a word is misspelled.")] = 0.02
    weight: Annotated[float, typer.Option(help="Weight of the language model relative to the error model.")] = 1.0
    beam: Annotated[int, typer.Option(help="Beam size.")] = 8
    real_words: Annotated[
        bool, typer.Option("--real-words/--no-real-words", help="Also correct words that are in the vocabulary.")
    ] = True


@options.expand_option_groups()
def correct(
    model: options.ModelFolder,
    *,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Lines to correct; - for stdin.")] = "-",
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            help="File of misspellings, in one of three formats: lines wrong<TAB>right; lines right: wrong wrong; "
            "or a line $right followed by its misspellings. Repeatable."
        ),
    ] = None,
    channel: Annotated[
        Path | None, typer.Option(help="Error-model file: written if --pairs is given, read otherwise.")
    ] = None,
    candidates: Annotated[
        int, typer.Option(min=0, max=1000, help="Number of candidates to print for each uncertain word.")
    ] = 0,
    lines: Annotated[
        bool, typer.Option("--lines", help="Print only changed lines: number, original, correction.")
    ] = False,
    noisy_channel: ChannelOptions,
    text_format: options.TextFormat,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Correct spelling with a noisy-channel model.

    Example: echo "i recieved teh letter" | chainrule correct runs/ngram3 --pairs pairs.tsv
    """
    from chainrule import api
    from chainrule.applications.spelling.candidates import Settings
    from chainrule.applications.spelling.corrector import Corrector
    from chainrule.text.corpus import read_batches

    distance = {} if noisy_channel.real_words else {"real_word_distance": 0}
    settings = Settings(
        error_rate=noisy_channel.error_rate, weight=noisy_channel.weight, beam=noisy_channel.beam, **distance
    )
    corrector = Corrector(
        api.load(model, kind="language model", device=options.check_device(device)),
        _error_model(pairs or [], channel),
        settings,
    )
    text = text_format.corpus(file, reads_once=True)
    corrections = (line for batch in read_batches(text) for line in _flushed(corrector, batch, candidates))
    for number, correction in enumerate(corrections, start=1):
        if json:
            emit(_document(correction, number), indent=None)
        elif lines:
            if correction.changes:
                print(f"{number}\t{correction.text}\t{correction.corrected}")
        else:
            print(correction.corrected)
        if candidates and not json:
            _show(correction)


def _flushed(corrector: "Corrector", lines: list[str], top: int) -> Iterator["Correction"]:
    """Yield the corrections of a batch of lines, then flush stdout."""
    yield from corrector.corrections(lines, top=top)
    flush()


def _error_model(pairs: list[str], path: Path | None) -> "Channel | None":
    """Train or load the error model; None selects the default one."""
    from chainrule.applications.spelling.noisy_channel import Channel, read_misspellings
    from chainrule.storage.atomic import atomic_file

    if not pairs:
        return None if path is None else Channel.read(path)
    if "-" in pairs:
        raise UsageError(
            "--pairs cannot be read from stdin, which may be the text to correct; write the pairs to a file"
        )
    examples = read_misspellings(pairs)
    trained = Channel.learn(examples)
    if path is not None:
        with atomic_file(path) as out:
            out.write(trained.to_json().encode())
        say(f"{len(examples):,} pairs learned: {path}")
    return trained


def _document(correction: "Correction", number: int) -> dict[str, object]:
    """Return a correction as JSON, with the words that change or have several candidates."""
    uncertain = [word for word in correction.words if word.is_changed or len(word.candidates) > 1]
    words = [
        {
            "start": word.start,
            "end": word.end,
            "written": word.written,
            "corrected": word.corrected,
            "candidates": [{"text": c.text, "probability": c.probability} for c in word.candidates],
        }
        for word in uncertain
    ]
    keys: dict[str, object] = {"line": number, "text": correction.text, "corrected": correction.corrected}
    return keys | {"score": correction.score, "words": words}


def _show(correction: "Correction") -> None:
    """Print the candidates of the changed words."""
    for word in correction.words:
        if word.is_changed:
            listing = "  ".join(f"{c.text} {c.probability:.3f}" for c in word.candidates)
            print(f"  {word.written} -> {word.corrected}:  {listing}")
