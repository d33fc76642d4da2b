"""`chainrule translate`: learn from pairs, translate, measure, show where a translation looked."""

import re
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import learning, options
from chainrule.cli.console import dumps, emit, flush, progress, say

if TYPE_CHECKING:
    from chainrule.decoding.settings import Decoding
    from chainrule.tasks.translation import Translation
    from chainrule.tasks.translation_report import TranslationReport

app = typer.Typer(help="Turn one text into another.", no_args_is_help=True)
Pairs = Annotated[list[str], typer.Argument(metavar="PAIRS...", help="Source and target file, or one TSV.")]
Strategy = Annotated[str, typer.Option(help="beam, greedy or sample.")]
BeamSize = Annotated[int, typer.Option(min=1, max=1000, help="Hypotheses kept at each length.")]
LengthPenalty = Annotated[float, typer.Option(help="p: a translation's score is log p over length^p.")]
Temperature = Annotated[float, typer.Option(help="Of sampling.")]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, max=10_000, help="Of a translation.  [default: 2 S + 20, S the source's]")
]
BREAKS = re.compile(r"\r\n|[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


@app.command()
def train(
    call: typer.Context,
    family: Annotated[str, typer.Argument(metavar="FAMILY", help="rnn, lstm, gru or transformer.")],
    pairs: Pairs,
    out: learning.Out,
    valid: Annotated[
        list[str] | None, typer.Option(help="Held-out pairs: once for a TSV, twice for two files.")
    ] = None,
    recipe: learning.Recipe = None,
    config: learning.Config = None,
    set_: learning.Set = None,
    resume: learning.Resume = False,
    force: options.Force = False,
    tensorboard: learning.Tensorboard = False,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="word, char, byte, bpe, wordpiece, unigram (differs from run to run), or a folder.  [default: bpe]"
        ),
    ] = None,
    vocab_size: options.VocabSize = None,
    min_count: options.MinCount = None,
    lowercase: options.Lowercase = False,
    joint: Annotated[
        bool | None, typer.Option("--joint/--separate", help="One vocabulary for both texts, or two.")
    ] = None,
    attention: Annotated[
        str | None, typer.Option(help="rnn, lstm, gru: none, dot, scaled-dot, general or additive.")
    ] = None,
    label_smoothing: Annotated[float | None, typer.Option(help="Part of the loss spread over all words.")] = None,
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
    """Learn to turn sources into targets and save the model.

    Examples: chainrule translate train gru train.de train.en --valid val.de --valid val.en --out runs/de-en

    chainrule translate train transformer pairs.tsv --out runs/de-en
    """
    options.use_threads(threads)
    from chainrule import tasks
    from chainrule.errors import UsageError

    start = time.perf_counter()
    if family not in ("rnn", "lstm", "gru", "transformer"):
        raise UsageError(f"there is no family '{family}' to translate with; choose rnn, lstm, gru or transformer")
    task = tasks.get("translate")
    given = dict(call.params)
    switches = {"joint": joint, "label_smoothing": label_smoothing}
    chosen = learning.choices("translate", family, task.PairConfig, given, ("attention",))
    chosen.model.update({name: value for name, value in switches.items() if value is not None})
    kind = str(chosen.tokenizer.pop("kind", "bpe"))
    with learning.run(given, chosen, kind) as running:
        made = task.train(
            family,
            pairs,
            valid=valid,
            tokenizer=tokenizer or kind,
            running=running,
            **chosen.tokenizer,
            **chosen.model,
        )
        made.save(out, force=force)
    measured = made.validation
    if json:
        about = {"model": str(out), "task": "translate", "family": family, "parameters": made.parameters}
        emit(about | made.metrics | ({"validation": measured} if measured else {}))
    quality = f"validation perplexity {measured['perplexity']:.2f}, " if measured else ""
    say(f"saved {out}: {made.parameters:,} parameters, {quality}{time.perf_counter() - start:.1f} s in all")


@app.command()
def predict(
    model: options.ModelFolder,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Sources, one a line; - for stdin.")] = "-",
    strategy: Strategy = "beam",
    beam_size: BeamSize = 5,
    length_penalty: LengthPenalty = 1.0,
    temperature: Temperature = 1.0,
    max_tokens: MaxTokens = None,
    num: Annotated[
        int, typer.Option(min=1, max=1000, help="Translations a source: an n-best list, or samples.")
    ] = 1,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Translate lines.

    With --num N an n-best list: rank, score and translation, separated by tabs.

    A line break or tab within a translation is printed as a blank; --json keeps it.

    Example: echo "ein mann geht" | chainrule translate predict runs/de-en
    """
    from chainrule import tasks
    from chainrule.text.pairs import read_source_batches

    decoding = _decoding(strategy, beam_size, length_penalty, temperature, max_tokens, seed)
    loaded = tasks.get("translate").load(model, options.device(device))
    done = 0
    for sources in read_source_batches(file):
        with progress() as bar:
            found = loaded.translate_all(sources, decoding, num=num, progress=bar, first=done)
        done += len(sources)
        for made in found:
            _print_translations(made, num, json)
        flush()


def _print_translations(made: "list[Translation]", num: int, json: bool) -> None:
    """The translations of one source."""
    if json:
        print(dumps({"source": made[0].source, "translations": [_as_json(t) for t in made]}, None))
    elif num == 1:
        print(_in_one_line(made[0].text))
    else:
        for rank, translation in enumerate(made, start=1):
            print(f"{rank}\t{translation.score:.4f}\t{_in_one_line(translation.text)}")


@app.command()
def score(
    model: options.ModelFolder,
    pairs: Pairs,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Print log p(target | source) of each pair, in nats.

    For re-ranking candidates, or for finding pairs that do not belong together.

    One line a pair: an empty target is scored as the end sign alone, an empty source gets no score.

    Example: chainrule translate score runs/de-en candidates.tsv
    """
    from chainrule import tasks
    from chainrule.errors import ChainruleWarning
    from chainrule.text.pairs import read_pairs

    loaded = tasks.get("translate").load(model, options.device(device))
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
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A sentence.")],
    target: Annotated[str | None, typer.Option(help="Its translation.  [default: the model's own]")] = None,
    out: Annotated[Path | None, typer.Option(help="Draw it: a file whose name ends in .svg.")] = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Show the source words each translated word attends to.

    Example: chainrule translate align runs/de-en "ein mann geht" --out alignment.svg
    """
    from chainrule import tasks
    from chainrule.errors import UsageError
    from chainrule.inspection.alignment import draw

    if out is not None and out.suffix.lower() != ".svg":
        raise UsageError(f"an alignment is drawn as SVG, and {out} does not end in .svg; choose such a name")
    translator = tasks.get("translate").load(model, options.device(device))
    found = translator.align(source, target)
    across = [translator.source.text_of(token) for token in found.source]
    down = [translator.target.text_of(token) for token in found.target]
    if out is not None:
        from chainrule.replacement import replacing_file

        with replacing_file(out) as stream:
            stream.write(draw(across, down, found.weights.tolist(), title=source).encode())
    if json:
        emit({"source": found.source, "target": found.target, "weights": found.weights.tolist()})
    else:
        for text, row in zip(down, found.weights.tolist(), strict=True):
            best = max(range(len(row)), key=row.__getitem__)
            print(f"{_in_one_line(text)}\t{_in_one_line(across[best])}\t{row[best]:.3f}")


@app.command()
def evaluate(
    model: options.ModelFolder,
    pairs: Pairs,
    strategy: Strategy = "beam",
    beam_size: BeamSize = 5,
    length_penalty: LengthPenalty = 1.0,
    temperature: Temperature = 1.0,
    max_tokens: MaxTokens = None,
    seed: options.Seed = 0,
    against: Annotated[
        Path | None, typer.Option(help="Another model, or a file of its translations: is the difference chance?")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the translations here, one a line.")] = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Measure translations: BLEU, chrF and perplexity.

    BLEU and chrF are those of sacrebleu, also by the length of the source.

    Example: chainrule translate evaluate runs/de-en test.de test.en
    """
    from chainrule import tasks
    from chainrule.replacement import replacing_file
    from chainrule.text.pairs import read_beside, read_pairs

    task = tasks.get("translate")
    decoding = _decoding(strategy, beam_size, length_penalty, temperature, max_tokens, seed)
    loaded = task.load(model, options.device(device))
    read = read_pairs(pairs)
    writing = nullcontext() if out is None else replacing_file(out)  # what cannot be written is refused now
    with writing as stream, progress() as bar:
        other = None
        if against is not None and against.is_dir():
            rival = task.load(against, options.device(device))
            other = [made[0].text for made in rival.translate_all(read.sources, decoding, progress=bar)]
        elif against is not None:
            other = read_beside(against, read)
        report = loaded.evaluate(read, decoding, other=other, progress=bar)
        if stream is not None:
            stream.write("".join(f"{_in_one_line(text)}\n" for text in report.by_line).encode())
    if json:
        emit({"model": str(model), "task": "translate", **report.as_json()})
    else:
        _show(report)


def _decoding(
    strategy: str, beam_size: int, length_penalty: float, temperature: float, max_tokens: int | None, seed: int
) -> "Decoding":
    from dataclasses import replace

    from chainrule import tasks

    usual: Decoding = tasks.get("translate").BEAM
    chosen: dict[str, Any] = {"strategy": strategy, "beam_size": beam_size, "length_penalty": length_penalty}
    chosen |= {"max_tokens": max_tokens or usual.max_tokens, "temperature": temperature, "seed": seed}
    return replace(usual, **chosen)


def _in_one_line(text: str) -> str:
    """The text with a blank for every line break and tab, so that it stays one field of one line."""
    return BREAKS.sub(" ", text)


def _as_json(translation: Any) -> dict[str, Any]:
    names = ("text", "tokens", "log_prob", "score", "is_finished")
    return {name: getattr(translation, name) for name in names}


def _show(report: "TranslationReport") -> None:
    print(f"bleu          {report.bleu.score:.2f}   {report.bleu.signature}")
    print(f"chrf          {report.chrf.score:.2f}   {report.chrf.signature}")
    print(f"exact match   {report.exact_match:.1%}   of the translations are the target to the letter")
    print(f"perplexity    {report.perplexity:.3f}   of the references, a token")
    print(f"sentences     {len(report.found):,}   {report.seconds:.1f} s, {report.unfinished} cut off")
    if report.left_out:
        print(f"left out      {report.left_out:,}   pairs with an empty side")
    for bucket in report.by_length:
        if bucket.score is not None:
            upper = "and more" if bucket.high == float("inf") else f"to {bucket.high - 1:.0f}"
            length = f"{bucket.low:>3.0f} {upper:<9} source words"
            print(f"  {length}   bleu {bucket.score:6.2f}   {bucket.sentences:,} sentences")
    if report.against is not None:
        found = report.against
        interval = f"({found.low:+.2f} to {found.high:+.2f})"
        p = f"p {found.p_value:.3f} (two-sided, {found.samples:,} resamples)"
        print(f"other's bleu  {found.b:.2f}\nbleu, this minus the other: {found.difference:+.2f} {interval}, {p}")
