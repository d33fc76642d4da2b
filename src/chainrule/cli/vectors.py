"""`chainrule vectors`: learn word vectors, look at them, measure them, exchange them."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import learning, options, vectors_contextual, vectors_map
from chainrule.cli.console import emit, progress, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

app = typer.Typer(help="Word vectors: learn, look at, measure, exchange.", no_args_is_help=True)

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A folder of vectors, or a file: word2vec's, GloVe's.")]
Top = Annotated[int, typer.Option(min=1, help="How many words to show.")]
Rule = Annotated[str, typer.Option(help="add: 3CosAdd; mul: 3CosMul.")]

SETTINGS = (
    *("method", "dimensions", "window", "negative", "epochs", "min_count", "vocab_size", "lowercase"),
    *("tokenizer", "sample", "learning_rate", "memory"),
)
"""The options that are settings by the same name."""


@app.command()
def train(
    call: typer.Context,
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Files, folders, globs, or - for stdin.")],
    out: learning.Out,
    method: Annotated[
        str | None, typer.Option(help="skipgram, cbow, glove, ppmi or one-hot.  [default: skipgram]")
    ] = None,
    dimensions: Annotated[int | None, typer.Option(help="Numbers of a vector.  [default: 100]")] = None,
    window: Annotated[int | None, typer.Option(help="Words to either side that count.  [default: 5]")] = None,
    negative: Annotated[
        int | None, typer.Option(help="skipgram, cbow: noise words for each word.  [default: 5]")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Times through the text.  [default: 5]")] = None,
    min_count: Annotated[
        int | None, typer.Option(help="Keep words seen at least this often.  [default: 5]")
    ] = None,
    vocab_size: Annotated[int | None, typer.Option(help="Keep at most this many words.")] = None,
    lowercase: options.Lowercase = False,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="word (splits punctuation) or whitespace (words end at blanks alone).  [default: word]"),
    ] = None,
    sample: Annotated[
        float | None, typer.Option(help="skipgram, cbow: thin out words above this part.  [default: 0.001]")
    ] = None,
    subwords: Annotated[
        str | None, typer.Option(help="skipgram, cbow: also learn character n-grams of these lengths, as 3-6.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="The first one.  [default: the method's]")] = None,
    memory: Annotated[
        str | None, typer.Option(help="glove, ppmi: bound for counting pairs of words, as 1G.  [default: 1G]")
    ] = None,
    threads: options.Threads = None,
    seed: options.Seed = 0,
    set_: learning.Set = None,
    column: options.Column = None,
    errors: options.Errors = "strict",
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Learn vectors of the words of a text and save them. With --threads 1 the same seed gives the same bits.

    Examples: chainrule vectors train corpus.txt --lowercase --out runs/skipgram

    chainrule vectors train corpus.txt --method glove --dimensions 50 --epochs 15 --out runs/glove
    """
    options.use_threads(threads)
    from chainrule.config import make, parse_overrides
    from chainrule.embeddings import learning as learner
    from chainrule.embeddings.config import VectorConfig
    from chainrule.text.corpus import Corpus

    start = time.perf_counter()
    given = dict(call.params)
    named = options.chosen(**{name: given[name] for name in SETTINGS})
    chosen = parse_overrides(set_ or []) | named | _subwords(subwords)
    config = make(VectorConfig, chosen, "vectors")
    corpus = Corpus.of(text, **options.text_rules(column, errors, False))
    with progress() as bar:
        made = learner.train(
            corpus,
            config=config,
            threads=threads,
            seed=seed,
            progress=bar,
            out=out,
            force=force,
            command=options.command_line(),
        )
    if json:
        emit({"model": str(out), "method": made.method, "dimensions": made.dimensions, **made.metrics})
    speed = made.metrics.get("words_per_second")
    shown = f", {speed:,.0f} words/s" if isinstance(speed, int | float) else ""
    say(f"saved {out}: {_size(made)}{shown}, {time.perf_counter() - start:.1f} s in all")
    options.say_splitting(config.tokenizer, "" if made.config is None else made.config.tokenizer)


def _subwords(lengths: str | None) -> dict[str, object]:
    """`3-6` as settings."""
    from chainrule.errors import UsageError

    if lengths is None:
        return {}
    shortest, dash, longest = lengths.partition("-")
    if not (shortest.isdecimal() and dash and longest.isdecimal()):
        raise UsageError(f"--subwords is '{lengths}'; write the fewest and the most letters, as 3-6")
    return {"shortest": int(shortest), "longest": int(longest)}


@app.command()
def neighbors(
    model: Model,
    words: Annotated[list[str], typer.Argument(metavar="WORD...", help="Words to look up.")],
    top: Top = 10,
    json: options.Json = False,
) -> None:
    """Show the words nearest to a word, with cosine similarity.

    Example: chainrule vectors neighbors runs/skipgram king queen --top 5
    """
    from chainrule.embeddings import formats

    vectors = formats.read(model)
    found = [(word, vectors.neighbors(word, top)) for word in words]  # all, or none where one is unknown
    if json:
        emit({"model": model, "neighbors": [{"word": w, "neighbors": _listed(n, "cosine")} for w, n in found]})
        return
    for place, (word, near) in enumerate(found):
        if len(found) > 1:
            print(f"{'' if not place else chr(10)}{word}")
        _print_scored(near, vectors.is_one_hot)


@app.command()
def analogy(
    model: Model,
    a: Annotated[str, typer.Argument(metavar="A", help="A is to B …")],
    b: Annotated[str, typer.Argument(metavar="B")],
    c: Annotated[str, typer.Argument(metavar="C", help="… as C is to what?")],
    method: Rule = "add",
    top: Top = 10,
    json: options.Json = False,
) -> None:
    """Answer what C is to, as A is to B.

    Example: chainrule vectors analogy runs/skipgram man king woman
    """
    from chainrule.embeddings import formats
    from chainrule.embeddings.vectors import check_rule

    check_rule(method)
    vectors = formats.read(model)
    found = vectors.analogy(a, b, c, top, method)  # type: ignore[arg-type]
    if json:
        emit({"model": model, "question": [a, b, c], "method": method, "answers": _listed(found, "score")})
        return
    _print_scored(found, vectors.is_one_hot)


@app.command()
def evaluate(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Folders or files of vectors.")],
    analogies: Annotated[str | None, typer.Option(help="Questions: ': section', then four words a line.")] = None,
    pairs: Annotated[list[str] | None, typer.Option(help="Judged pairs: two words and a number a line.")] = None,
    method: Rule = "add",
    sections: Annotated[bool, typer.Option("--sections", help="Also the analogies of each section.")] = False,
    rare: Annotated[
        bool, typer.Option("--rare", help="Also the third of the pairs whose rarer word is rarest in training.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Measure vectors by word similarity and analogies.

    A row a model: rank correlation with judged pairs, and the share of analogies answered rightly.

    Example: chainrule vectors evaluate runs/skipgram runs/cbow --pairs wordsim353.tsv --analogies questions.txt
    """
    from chainrule.cli import vectors_table
    from chainrule.embeddings import formats
    from chainrule.embeddings.vectors import check_rule
    from chainrule.errors import UsageError
    from chainrule.evaluation import analogies as questions
    from chainrule.evaluation import similarity

    if analogies is None and not pairs:
        raise UsageError("there is nothing to measure by; give --pairs FILE, --analogies FILE or both")
    check_rule(method)
    judged = [similarity.read_pairs(file) for file in pairs or []]
    asked = None if analogies is None else questions.read_questions(analogies)
    rows: list[dict[str, Any]] = []
    with progress() as bar:
        for name in models:
            vectors = formats.read(name)
            size = {"words": len(vectors), "dimensions": vectors.dimensions}
            row: dict[str, Any] = {"model": name, "method": vectors.method, **size}
            row["pairs"] = [vectors_table.of_pairs(vectors, each, rare) for each in judged]
            if asked is not None:
                solved = questions.solve(vectors.row, vectors.unit, asked, method, bar)  # type: ignore[arg-type]
                row["analogies"] = vectors_table.of_analogies(analogies, method, asked, solved)
            rows.append(row)
    if json:
        emit({"rows": rows})
        return
    vectors_table.print_rows(rows, sections)


@app.command()
def export(
    model: Model,
    out: Annotated[Path, typer.Option(help="The file to write.")],
    format: Annotated[str, typer.Option(help="word2vec, word2vec-binary or glove.")] = "word2vec",
    json: options.Json = False,
) -> None:
    """Write vectors as a file for other software, such as gensim.

    Example: chainrule vectors export runs/skipgram --format word2vec-binary --out vectors.bin
    """
    from chainrule.embeddings import formats

    vectors = formats.read(model)
    vectors.export(out, format)  # type: ignore[arg-type]
    _done(vectors, out, {"model": model, "format": format}, json)


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="word2vec's text or binary format, or GloVe's.")],
    out: learning.Out,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Import a vector file of other software.

    It may be compressed (gzip, bzip2, xz, zstd).

    Example: chainrule vectors import GoogleNews-vectors.bin --out runs/news
    """
    from dataclasses import replace

    from chainrule.embeddings import formats

    command = options.command_line()
    with options.writing(out, [file], force=force):
        vectors = formats.read(file)
        replace(vectors, about=dict(vectors.about) | {"command": command}).save(out, force=force)
    _done(vectors, out, {"file": file}, json)


vectors_map.register(app)
vectors_contextual.register(app)


def _done(vectors: Any, out: Path, about: "Mapping[str, Any]", json: bool) -> None:
    if json:
        emit({**about, "out": str(out), "words": len(vectors), "dimensions": vectors.dimensions})
    say(f"wrote {out}: {_size(vectors)}")


def _size(vectors: Any) -> str:
    amounts = ((len(vectors), "word"), (vectors.dimensions, "dimension"))
    return ", ".join(f"{n:,} {what}{'' if n == 1 else 's'}" for n, what in amounts)


def _listed(found: "Sequence[tuple[str, float]]", score: str) -> list[dict[str, Any]]:
    return [{"word": word, score: value} for word, value in found]


def _print_scored(found: "Sequence[tuple[str, float]]", is_one_hot: bool) -> None:
    width = max((len(word) for word, _ in found), default=0)
    for word, value in found:
        print(f"{word:<{width}}  {value:.4f}")
    if not found:
        print(f"none: {'one-hot vectors have nothing in common' if is_one_hot else 'there is no other word'}")
