"""`chainrule translate`: learn from pairs, translate, measure, show where a translation looked."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import learning, options
from chainrule.cli.console import dumps, emit, progress, say

if TYPE_CHECKING:
    from chainrule.decoding.settings import Decoding
    from chainrule.tasks.translation_report import TranslationReport

app = typer.Typer(help="Turn one text into another.", no_args_is_help=True)
Pairs = Annotated[list[str], typer.Argument(metavar="PAIRS...", help="Source and target file, or one TSV.")]
Strategy = Annotated[str, typer.Option(help="beam, greedy or sample.")]
BeamSize = Annotated[int, typer.Option(help="Hypotheses kept at each length.")]
LengthPenalty = Annotated[float, typer.Option(help="p: a hypothesis ranks by log p over length^p.")]


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
    tensorboard: learning.Tensorboard = False,
    tokenizer: Annotated[
        str | None, typer.Option(help="word, char, byte, bpe, wordpiece, unigram, or a folder.  [default: bpe]")
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
    with learning.run(given, chosen) as running:
        made = task.train(
            family,
            pairs,
            valid=valid,
            tokenizer=tokenizer or kind,
            running=running,
            **chosen.tokenizer,
            **chosen.model,
        )
        made.save(out)
    if json:
        emit(
            {
                "model": str(out),
                "task": "translate",
                "family": family,
                "parameters": made.parameters,
                **made.metrics,
            }
        )
    say(f"saved {out}: {made.parameters:,} parameters, {time.perf_counter() - start:.1f} s in all")


@app.command()
def predict(
    model: options.ModelFolder,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Sources, one a line; - for stdin.")] = "-",
    strategy: Strategy = "beam",
    beam_size: BeamSize = 5,
    length_penalty: LengthPenalty = 1.0,
    temperature: Annotated[float, typer.Option(help="Of sampling.")] = 1.0,
    num: Annotated[int, typer.Option(min=1, help="Translations a source: an n-best list, or samples.")] = 1,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Translate lines; with --num N an n-best list: rank, score and translation, parted by tabs.

    Example: echo "ein mann geht" | chainrule translate predict runs/de-en
    """
    from chainrule import tasks
    from chainrule.text.pairs import read_sources

    decoding = _decoding(strategy, beam_size, length_penalty, temperature=temperature, seed=seed)
    loaded = tasks.get("translate").load(model, options.device(device))
    with progress() as bar:
        found = loaded.translate_all(read_sources(file), decoding, num=num, progress=bar)
    for made in found:
        if json:
            print(dumps({"source": made[0].source, "translations": [_as_json(t) for t in made]}, None))
        elif num == 1:
            print(made[0].text)
        else:
            for rank, translation in enumerate(made, start=1):
                print(f"{rank}\t{translation.score:.4f}\t{translation.text}")


@app.command()
def score(
    model: options.ModelFolder,
    pairs: Pairs,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Give log p(target | source) in nats of each pair, to re-rank candidates or find pairs that do not belong.

    Example: chainrule translate score runs/de-en candidates.tsv
    """
    from chainrule import tasks
    from chainrule.text.pairs import read_pairs

    loaded = tasks.get("translate").load(model, options.device(device))
    read = read_pairs(pairs)
    with progress() as bar:
        scores = loaded.score(read.sources, read.targets, bar).tolist()
    for source, target, log_prob in zip(read.sources, read.targets, scores, strict=True):
        if json:
            print(dumps({"source": source, "target": target, "log_prob": log_prob, "unit": "nats"}, None))
        else:
            print(f"{log_prob:.4f}\t{source}\t{target}")


@app.command()
def align(
    model: options.ModelFolder,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A sentence.")],
    target: Annotated[str | None, typer.Option(help="Its translation.  [default: the model's own]")] = None,
    out: Annotated[Path | None, typer.Option(help="Draw it: a .svg file.")] = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Show which words of the source each word of the translation looked at.

    Example: chainrule translate align runs/de-en "ein mann geht" --out alignment.svg
    """
    from chainrule import tasks
    from chainrule.inspection.alignment import draw

    found = tasks.get("translate").load(model, options.device(device)).align(source, target)
    if out is not None:
        from chainrule.replacement import replacing_file

        with replacing_file(out) as stream:
            stream.write(draw(found.source, found.target, found.weights.tolist(), title=source).encode())
    if json:
        emit({"source": found.source, "target": found.target, "weights": found.weights.tolist()})
    else:
        for token, row in zip(found.target, found.weights.tolist(), strict=True):
            best = max(range(len(row)), key=row.__getitem__)
            print(f"{token}\t{found.source[best]}\t{row[best]:.3f}")


@app.command()
def evaluate(
    model: options.ModelFolder,
    pairs: Pairs,
    strategy: Strategy = "beam",
    beam_size: BeamSize = 5,
    length_penalty: LengthPenalty = 1.0,
    against: Annotated[
        Path | None, typer.Option(help="Another model, or a file of its translations: is the difference chance?")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the translations here, one a line.")] = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Translate the sources and compare with the targets: BLEU and chrF by sacrebleu, by length, perplexity.

    Example: chainrule translate evaluate runs/de-en test.de test.en
    """
    from chainrule import tasks
    from chainrule.tasks.translation_report import evaluate as measure
    from chainrule.text.pairs import read_pairs, read_sources

    task, decoding = tasks.get("translate"), _decoding(strategy, beam_size, length_penalty)
    loaded = task.load(model, options.device(device))
    read = read_pairs(pairs)
    with progress() as bar:
        other = None
        if against is not None and against.is_dir():
            rival = task.load(against, options.device(device))
            other = [made[0].text for made in rival.translate_all(read.sources, decoding, progress=bar)]
        elif against is not None:
            other = read_sources(against)
        report = measure(loaded, read, decoding, other=other, progress=bar)
    if out is not None:
        out.write_text("".join(f"{text}\n" for text in report.found), encoding="utf-8")
    if json:
        emit({"model": str(model), "task": "translate", **report.as_json()})
    else:
        _show(report)


def _decoding(strategy: str, beam_size: int, length_penalty: float, **more: Any) -> "Decoding":
    from dataclasses import replace

    from chainrule import tasks

    chosen: dict[str, Any] = {"strategy": strategy, "beam_size": beam_size, "length_penalty": length_penalty}
    decoding: Decoding = replace(tasks.get("translate").BEAM, **chosen, **more)
    return decoding


def _as_json(translation: Any) -> dict[str, Any]:
    names = ("text", "tokens", "log_prob", "score", "is_finished")
    return {name: getattr(translation, name) for name in names}


def _show(report: "TranslationReport") -> None:
    print(f"bleu          {report.bleu.score:.2f}   {report.bleu.signature}")
    print(f"chrf          {report.chrf.score:.2f}   {report.chrf.signature}")
    print(f"perplexity    {report.perplexity:.3f}   of the references, a token")
    print(f"sentences     {len(report.found):,}   {report.seconds:.1f} s, {report.unfinished} cut off")
    for bucket in report.by_length:
        if bucket.score is not None:
            upper = "and more" if bucket.high == float("inf") else f"to {bucket.high - 1:.0f}"
            length = f"{bucket.low:>3.0f} {upper:<9} source words"
            print(f"  {length}   bleu {bucket.score:6.2f}   {bucket.sentences:,} sentences")
    if report.against is not None:
        found = report.against
        interval = f"({found.low:+.2f} to {found.high:+.2f})"
        print(f"bleu, this minus the other: {found.difference:+.2f} {interval}, p {found.p_value:.3f}")
