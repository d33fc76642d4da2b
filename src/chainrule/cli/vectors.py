"""`chainrule vectors`: train, query, evaluate and convert word vectors."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import learning, options, vectors_contextual, vectors_map
from chainrule.cli.console import emit, progress, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

app = typer.Typer(help="Word vectors: train, query, evaluate, import, export.", no_args_is_help=True)

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Folder of word vectors, or a file in word2vec or GloVe format.")
]
Top = Annotated[int, typer.Option(min=1, help="Number of words to print.")]
Rule = Annotated[str, typer.Option(help="Analogy rule: add (3CosAdd) or mul (3CosMul).")]

SETTINGS = (
    *("method", "dimensions", "window", "negative", "epochs", "min_count", "vocab_size", "lowercase"),
    *("tokenizer", "sample", "learning_rate", "memory"),
)
"""Options that set a configuration field of the same name."""


@app.command()
def train(
    call: typer.Context,
    text: Annotated[
        list[str], typer.Argument(metavar="TEXT...", help="Text files, folders, globs, or - for stdin.")
    ],
    out: learning.Out,
    method: Annotated[
        str | None, typer.Option(help="Method: skipgram, cbow, glove, ppmi or one-hot.  [default: skipgram]")
    ] = None,
    dimensions: Annotated[int | None, typer.Option(help="Vector size.  [default: 100]")] = None,
    window: Annotated[int | None, typer.Option(help="Context window: words on either side.  [default: 5]")] = None,
    negative: Annotated[
        int | None, typer.Option(help="skipgram, cbow: negative samples per word.  [default: 5]")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Number of epochs.  [default: 5]")] = None,
    min_count: Annotated[
        int | None, typer.Option(help="Minimum count of a word; rarer words are ignored.  [default: 5]")
    ] = None,
    vocab_size: Annotated[int | None, typer.Option(help="Maximum number of words.")] = None,
    lowercase: options.Lowercase = False,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Tokenizer: word (splits punctuation) or whitespace (splits at blanks only).  [default: word]"
        ),
    ] = None,
    sample: Annotated[
        float | None, typer.Option(help="skipgram, cbow: subsample words above this frequency.  [default: 0.001]")
    ] = None,
    subwords: Annotated[
        str | None, typer.Option(help="skipgram, cbow: also train character n-grams of these lengths, e.g. 3-6.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Initial learning rate.  [default: depends on the method]")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="glove, ppmi: memory limit for counting co-occurrences.  [default: 1G]")
    ] = None,
    threads: options.Threads = None,
    seed: options.Seed = 0,
    set_: learning.Set = None,
    column: options.Column = None,
    errors: options.Errors = "strict",
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Train word vectors and save them.

    Results are reproducible bit for bit only with --threads 1 and the same seed.

    Examples: chainrule vectors train corpus.txt --lowercase --out runs/skipgram

    chainrule vectors train corpus.txt --method glove --dimensions 50 --epochs 15 --out runs/glove
    """
    options.limit_threads(threads)
    from chainrule.config import build_config, parse_overrides
    from chainrule.embeddings import learning as learner
    from chainrule.embeddings.config import VectorConfig
    from chainrule.text.corpus import Corpus

    start = time.perf_counter()
    params = dict(call.params)
    set_options = options.drop_unset(**{name: params[name] for name in SETTINGS})
    settings = parse_overrides(set_ or []) | set_options | _subwords(subwords)
    config = build_config(VectorConfig, settings, "vectors")
    corpus = Corpus.of(text, **options.corpus_options(column, errors, False))
    with progress() as bar:
        vectors = learner.train(
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
        emit({"model": str(out), "method": vectors.method, "dimensions": vectors.dimensions, **vectors.metrics})
    speed = vectors.metrics.get("words_per_second")
    throughput = f", {speed:,.0f} words/s" if isinstance(speed, int | float) else ""
    say(f"saved {out}: {_size(vectors)}{throughput}, {time.perf_counter() - start:.1f} s in all")
    options.report_word_splitting(config.tokenizer, "" if vectors.config is None else vectors.config.tokenizer)


def _subwords(lengths: str | None) -> dict[str, object]:
    """Parse `3-6` into the settings `shortest` and `longest`."""
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
    """Print the nearest neighbours of words by cosine similarity.

    Example: chainrule vectors neighbors runs/skipgram king queen --top 5
    """
    from chainrule.embeddings import formats

    vectors = formats.read(model)
    results = [
        (word, vectors.neighbors(word, top)) for word in words
    ]  # before printing, because an unknown word raises
    if json:
        emit({"model": model, "neighbors": [{"word": w, "neighbors": _listed(n, "cosine")} for w, n in results]})
        return
    for index, (word, neighbours) in enumerate(results):
        if len(results) > 1:
            print(f"{'' if not index else chr(10)}{word}")
        _print_scored(neighbours, vectors.is_one_hot)


@app.command()
def analogy(
    model: Model,
    a: Annotated[str, typer.Argument(metavar="A", help="First word: A is to B …")],
    b: Annotated[str, typer.Argument(metavar="B", help="Second word.")],
    c: Annotated[str, typer.Argument(metavar="C", help="Third word: … as C is to the answer.")],
    method: Rule = "add",
    top: Top = 10,
    json: options.Json = False,
) -> None:
    """Solve an analogy: A is to B as C is to the answer.

    Example: chainrule vectors analogy runs/skipgram man king woman
    """
    from chainrule.embeddings import formats
    from chainrule.embeddings.vectors import check_analogy_method

    check_analogy_method(method)
    vectors = formats.read(model)
    answers = vectors.analogy(a, b, c, top, method)  # type: ignore[arg-type]
    if json:
        emit({"model": model, "question": [a, b, c], "method": method, "answers": _listed(answers, "score")})
        return
    _print_scored(answers, vectors.is_one_hot)


@app.command()
def evaluate(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Folders or files of word vectors.")],
    analogies: Annotated[
        str | None, typer.Option(help="Analogy questions: ': section' headings and four words per line.")
    ] = None,
    pairs: Annotated[
        list[str] | None, typer.Option(help="Similarity judgements: two words and a number per line. Repeatable.")
    ] = None,
    method: Rule = "add",
    sections: Annotated[
        bool, typer.Option("--sections", help="Also print the analogy accuracy of each section.")
    ] = False,
    rare: Annotated[
        bool, typer.Option("--rare", help="Also evaluate the third of the pairs with the rarest words.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Evaluate word vectors by word similarity and analogies.

    Prints one row per model: rank correlation with similarity judgements, and analogy accuracy.

    Example: chainrule vectors evaluate runs/skipgram runs/cbow --pairs wordsim353.tsv --analogies questions.txt
    """
    from chainrule.cli import vectors_table
    from chainrule.embeddings import formats
    from chainrule.embeddings.vectors import check_analogy_method
    from chainrule.errors import UsageError
    from chainrule.evaluation import analogies as questions
    from chainrule.evaluation import similarity

    if analogies is None and not pairs:
        raise UsageError("there is nothing to measure by; give --pairs FILE, --analogies FILE or both")
    check_analogy_method(method)
    judged = [similarity.read_pairs(file) for file in pairs or []]
    question_sections = None if analogies is None else questions.read_questions(analogies)
    rows: list[dict[str, Any]] = []
    with progress() as bar:
        for name in models:
            vectors = formats.read(name)
            size = {"words": len(vectors), "dimensions": vectors.dimensions}
            row: dict[str, Any] = {"model": name, "method": vectors.method, **size}
            row["pairs"] = [vectors_table.similarity_document(vectors, file, rare) for file in judged]
            if question_sections is not None:
                solved = questions.solve(vectors.row, vectors.unit, question_sections, method, bar)  # type: ignore[arg-type]
                row["analogies"] = vectors_table.analogy_document(analogies, method, question_sections, solved)
            rows.append(row)
    if json:
        emit({"rows": rows})
        return
    vectors_table.print_rows(rows, sections)


@app.command()
def export(
    model: Model,
    out: Annotated[Path, typer.Option(help="Output file.")],
    format: Annotated[str, typer.Option(help="File format: word2vec, word2vec-binary or glove.")] = "word2vec",
    json: options.Json = False,
) -> None:
    """Export word vectors to a file for other software, e.g. gensim.

    Example: chainrule vectors export runs/skipgram --format word2vec-binary --out vectors.bin
    """
    from chainrule.embeddings import formats

    vectors = formats.read(model)
    vectors.export(out, format)  # type: ignore[arg-type]
    _done(vectors, out, {"model": model, "format": format}, json)


@app.command("import")
def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Word vectors in word2vec text or binary format, or GloVe format.")
    ],
    out: learning.Out,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Import word vectors from a file of other software.

    The file may be compressed (gzip, bzip2, xz, zstd).

    Example: chainrule vectors import GoogleNews-vectors.bin --out runs/news
    """
    from dataclasses import replace

    from chainrule.embeddings import formats

    command = options.command_line()
    with options.lock_output(out, [file], force=force):
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
    sizes = ((len(vectors), "word"), (vectors.dimensions, "dimension"))
    return ", ".join(f"{n:,} {what}{'' if n == 1 else 's'}" for n, what in sizes)


def _listed(words: "Sequence[tuple[str, float]]", score: str) -> list[dict[str, Any]]:
    return [{"word": word, score: value} for word, value in words]


def _print_scored(words: "Sequence[tuple[str, float]]", is_one_hot: bool) -> None:
    width = max((len(word) for word, _ in words), default=0)
    for word, value in words:
        print(f"{word:<{width}}  {value:.4f}")
    if not words:
        print(f"none: {'one-hot vectors have nothing in common' if is_one_hot else 'there is no other word'}")
