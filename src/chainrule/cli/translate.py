"""`chainrule translate`: train, apply and evaluate translation models, score and align sentence pairs."""

import re
import warnings
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options, training_options
from chainrule.cli.console import dumps, emit, flush, progress
from chainrule.neural.cells import CELLS, ENCODER_FAMILIES

if TYPE_CHECKING:
    from chainrule.decoding.settings import Decoding
    from chainrule.tasks.translate import Translation, TranslationReport

app = typer.Typer(help="Translation: train, predict, score, align, evaluate.", no_args_is_help=True)
Pairs = Annotated[
    list[str], typer.Argument(metavar="PAIRS...", help="Sentence pairs: a source and a target file, or one TSV.")
]
BREAKS = re.compile(r"\r\n|[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """Options of the decoder."""

    strategy: Annotated[str, typer.Option(help="Decoding strategy: beam, greedy or sample.")] = "beam"
    beam_size: Annotated[int, typer.Option(min=1, max=1000, help="Beam size.")] = 5
    length_penalty: Annotated[
        float, typer.Option(help="Length penalty a: hypotheses are ranked by log p / length^a.")
    ] = 1.0
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = 1.0
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="Maximum length of a translation in tokens.  [default: twice the source length + 20]",
        ),
    ] = None
    seed: options.Seed = 0

    def settings(self) -> "Decoding":
        """Return the decoding settings; `max_tokens` has the default of translation models."""
        from chainrule import families

        defaults: Decoding = families.get_task("translate").BEAM
        return replace(defaults, **{name: value for name, value in asdict(self).items() if value is not None})


SETTINGS = training_options.TASK_SETTINGS | {
    "kind": options.option(
        str,
        "Tokenizer: word, char, byte, bpe, wordpiece, unigram (training is not reproducible), or a tokenizer "
        "folder.  [default: bpe]",
        "--tokenizer",
    ),
    "joint": options.option(
        bool, "Share one vocabulary between source and target, or train two.", "--joint/--separate"
    ),
    "attention": options.option(
        str, f"Attention over the source ({', '.join(CELLS)}): none, dot, scaled-dot, general or additive."
    ),
    "label_smoothing": options.option(float, "Label smoothing: probability mass spread over all tokens."),
}


@app.command()
@options.expand_option_groups(SETTINGS)
def train(
    family: Annotated[str, typer.Argument(metavar="FAMILY", help=training_options.FAMILIES)],
    pairs: Pairs,
    *,
    run: training_options.Run,
    valid: Annotated[
        list[str] | None,
        typer.Option(help="Validation pairs: one TSV file, or repeat the option: source file, then target file."),
    ] = None,
    settings: dict[str, object],
    json: options.Json = False,
) -> None:
    """Train a translation model and save it.

    Examples: chainrule translate train gru train.de train.en --valid val.de --valid val.en --out runs/de-en

    chainrule translate train transformer pairs.tsv --out runs/de-en
    """
    options.limit_threads(run.threads)
    from chainrule.errors import UsageError

    if family not in ENCODER_FAMILIES:
        raise UsageError(
            f"there is no family '{family}' to translate with; choose {', '.join(CELLS)} or transformer"
        )
    model, seconds = training_options.train_task(
        "translate", family, pairs, run, settings, inputs=valid or (), valid=valid
    )
    validation = model.validation
    quality = f", validation perplexity {validation['perplexity']:.2f}" if validation else ""
    about = {"task": "translate", "family": family}
    training_options.report_training(run, model, seconds, about, validation, quality, json)


@app.command()
@options.expand_option_groups()
def predict(
    model: options.ModelFolder,
    *,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Source sentences, one per line; - for stdin.")
    ] = "-",
    decoding: DecodingOptions,
    num: Annotated[
        int, typer.Option(min=1, max=1000, help="Translations per sentence: an n-best list, or samples.")
    ] = 1,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Translate lines.

    With --num N, prints n-best lists: rank, score and translation, separated by tabs.

    A line break or tab within a translation is printed as a blank; --json keeps it.

    Example: echo "ein mann geht" | chainrule translate predict runs/de-en
    """
    from chainrule import api
    from chainrule.text.parallel import read_source_batches

    decoder = decoding.settings()
    loaded = api.load(model, kind="translate", device=options.check_device(device))
    done = 0
    for sources in read_source_batches(file):
        with progress() as bar:
            translations = loaded.translate_all(sources, decoder, num=num, progress=bar, first=done)
        done += len(sources)
        for candidates in translations:
            _print_translations(candidates, num, json)
        flush()


def _print_translations(candidates: "list[Translation]", num: int, json: bool) -> None:
    """Print the translations of one sentence."""
    if json:
        print(dumps({"source": candidates[0].source, "translations": [_as_json(t) for t in candidates]}, None))
    elif num == 1:
        print(_in_one_line(candidates[0].text))
    else:
        for rank, translation in enumerate(candidates, start=1):
            print(f"{rank}\t{translation.score:.4f}\t{_in_one_line(translation.text)}")


@app.command()
def score(
    model: options.ModelFolder,
    pairs: Pairs,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Print log p(target | source) of each pair, in nats.

    Use it to rerank candidates or to find mismatched pairs.

    Prints one line per pair. An empty target is scored as </s> alone; an empty source gets no score.

    Example: chainrule translate score runs/de-en candidates.tsv
    """
    from chainrule import api
    from chainrule.errors import ChainruleWarning
    from chainrule.text.parallel import read_pairs

    loaded = api.load(model, kind="translate", device=options.check_device(device))
    read = read_pairs(pairs, keeps_empty=True)
    if empty := [str(n) for n, source in zip(read.numbers, read.sources, strict=True) if not source.strip()]:
        lines = ", ".join(empty[:10]) + (f" and {len(empty) - 10} more" if len(empty) > 10 else "")
        warnings.warn(f"{read.name}: empty sources get no score: line {lines}", ChainruleWarning, stacklevel=1)
    with progress() as bar:
        scores = loaded.score(read.sources, read.targets, bar).tolist()
    for source, target, log_prob in zip(read.sources, read.targets, scores, strict=True):
        if json:
            print(dumps({"source": source, "target": target, "log_prob": log_prob, "unit": "nats"}, None))
        else:
            shown = f"{log_prob:.4f}" if source.strip() else ""
            print(f"{shown}\t{_in_one_line(source)}\t{_in_one_line(target)}")


@app.command()
def align(
    model: options.ModelFolder,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Source sentence.")],
    target: Annotated[str | None, typer.Option(help="Target sentence.  [default: the model's translation]")] = None,
    out: Annotated[Path | None, typer.Option(help="Write a figure to this .svg file.")] = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Print the attention alignment of a sentence pair.

    Example: chainrule translate align runs/de-en "ein mann geht" --out alignment.svg
    """
    from chainrule import api
    from chainrule.errors import UsageError
    from chainrule.inspection.attention_heads import draw_alignment

    if out is not None and out.suffix.lower() != ".svg":
        raise UsageError(f"the alignment is written as SVG, but {out} does not end in .svg; rename it")
    translator = api.load(model, kind="translate", device=options.check_device(device))
    alignment = translator.align(source, target)
    source_texts = [translator.source.display_text(token) for token in alignment.source]
    target_texts = [translator.target.display_text(token) for token in alignment.target]
    if out is not None:
        from chainrule.storage.atomic import atomic_file

        with atomic_file(out) as stream:
            stream.write(
                draw_alignment(source_texts, target_texts, alignment.weights.tolist(), title=source).encode()
            )
    if json:
        emit({"source": alignment.source, "target": alignment.target, "weights": alignment.weights.tolist()})
    else:
        for text, row in zip(target_texts, alignment.weights.tolist(), strict=True):
            best = max(range(len(row)), key=row.__getitem__)
            print(f"{_in_one_line(text)}\t{_in_one_line(source_texts[best])}\t{row[best]:.3f}")


@app.command()
@options.expand_option_groups()
def evaluate(
    model: options.ModelFolder,
    pairs: Pairs,
    *,
    decoding: DecodingOptions,
    against: Annotated[
        Path | None, typer.Option(help="Other model, or a file of its translations, for a significance test.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the translations to this file, one per line.")] = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Evaluate a translation model: BLEU, chrF and perplexity.

    BLEU and chrF are computed by sacrebleu; BLEU is also reported by source length.

    Example: chainrule translate evaluate runs/de-en test.de test.en
    """
    from chainrule import api
    from chainrule.storage.atomic import atomic_file
    from chainrule.text.parallel import read_aligned_lines, read_pairs

    decoder = decoding.settings()
    loaded = api.load(model, kind="translate", device=options.check_device(device))
    read = read_pairs(pairs)
    output = nullcontext() if out is None else atomic_file(out)  # fails now if the file cannot be written
    with output as stream, progress() as bar:
        other = None
        if against is not None and against.is_dir():
            other_model = api.load(against, kind="translate", device=options.check_device(device))
            other = [
                candidates[0].text for candidates in other_model.translate_all(read.sources, decoder, progress=bar)
            ]
        elif against is not None:
            other = read_aligned_lines(against, read)
        report = loaded.evaluate(read, decoder, other=other, progress=bar)
        if stream is not None:
            stream.write("".join(f"{_in_one_line(text)}\n" for text in report.by_line).encode())
    if json:
        emit({"model": str(model), "task": "translate", **report.as_json()})
    else:
        _show(report)


def _in_one_line(text: str) -> str:
    """Replace every line break and tab with a space, so that the text stays one field of one line."""
    return BREAKS.sub(" ", text)


def _as_json(translation: Any) -> dict[str, Any]:
    names = ("text", "tokens", "log_prob", "score", "is_finished")
    return {name: getattr(translation, name) for name in names}


def _show(report: "TranslationReport") -> None:
    print(f"bleu          {report.bleu.score:.2f}   {report.bleu.signature}")
    print(f"chrf          {report.chrf.score:.2f}   {report.chrf.signature}")
    print(f"exact match   {report.exact_match:.1%}   of the translations are identical to the reference")
    print(f"perplexity    {report.perplexity:.3f}   per token of the references")
    print(f"sentences     {len(report.translations):,}   {report.seconds:.1f} s, {report.unfinished} cut off")
    if report.left_out:
        print(f"left out      {report.left_out:,}   pairs with an empty side")
    for bucket in report.by_length:
        if bucket.score is not None:
            upper = "and more" if bucket.high == float("inf") else f"to {bucket.high - 1:.0f}"
            length = f"{bucket.low:>3.0f} {upper:<9} source words"
            print(f"  {length}   bleu {bucket.score:6.2f}   {bucket.sentences:,} sentences")
    if report.against is not None:
        comparison = report.against
        interval = f"({comparison.low:+.2f} to {comparison.high:+.2f})"
        p = f"p {comparison.p_value:.3f} (two-sided, {comparison.samples:,} resamples)"
        print(f"other's bleu  {comparison.b:.2f}")
        print(f"bleu, this minus the other: {comparison.difference:+.2f} {interval}, {p}")
