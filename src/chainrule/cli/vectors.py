"""`chainrule vectors`: train, query, evaluate and convert word vectors."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options, training_options, vectors_contextual
from chainrule.cli.console import emit, progress, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chainrule.embeddings.vectors import WordVectors
    from chainrule.evaluation.word_vectors import Pairs, Section, SectionResult, SimilarityResult


def register(app: typer.Typer) -> None:
    """Add the command to the `chainrule vectors` group."""
    app.command("map")(draw)


def draw(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Folder of word vectors, or a file in word2vec or GloVe format.")
    ],
    out: Annotated[Path, typer.Option(help="Output HTML file.")],
    words: Annotated[
        int | None, typer.Option(help="Number of words to show, the most frequent ones.  [default: 2000]")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Projection: tsne or pca (principal components).  [default: tsne]")
    ] = None,
    neighbors: Annotated[
        int | None, typer.Option(help="Number of nearest neighbours listed per word.  [default: 8]")
    ] = None,
    perplexity: Annotated[
        float | None, typer.Option(help="t-SNE perplexity: effective number of neighbours.  [default: 30]")
    ] = None,
    seed: options.Seed = 0,
) -> None:
    """Draw a searchable map of word vectors as an HTML page.

    Neighbours are searched among the words shown. Append #word=king to the address to open the page at a word.

    Example: chainrule vectors map runs/skipgram --out map.html
    """
    from chainrule.config import build_config
    from chainrule.embeddings import storage
    from chainrule.errors import UsageError
    from chainrule.plots import word_map
    from chainrule.storage.atomic import atomic_file

    settings = options.drop_unset(words=words, method=method, neighbors=neighbors, perplexity=perplexity, seed=seed)
    config = build_config(word_map.MapConfig, settings, "map")
    vectors = storage.read(model)
    if vectors.is_one_hot:
        raise UsageError(f"{model} holds one-hot vectors, all equally far apart; a map needs learnt ones")
    with atomic_file(out) as file, progress() as bar:
        projection = word_map.make_map(vectors.words, vectors.unit, vectors.counts, config, bar)
        page = word_map.render_page(projection, Path(model).resolve().name).encode()
        file.write(page)
    say(f"saved {out}: {len(projection.words):,} of {len(vectors):,} words, {len(page) / 1e6:.2f} MB")


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
    out: training_options.Out,
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
    set_: training_options.Set = None,
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
    from chainrule.embeddings import train as learner
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
    from chainrule.embeddings import storage

    vectors = storage.read(model)
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
    from chainrule.embeddings import storage
    from chainrule.embeddings.vectors import check_analogy_method

    check_analogy_method(method)
    vectors = storage.read(model)
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
    from chainrule.embeddings import storage
    from chainrule.embeddings.vectors import check_analogy_method
    from chainrule.errors import UsageError
    from chainrule.evaluation import word_vectors
    from chainrule.evaluation import word_vectors as questions

    if analogies is None and not pairs:
        raise UsageError("there is nothing to measure by; give --pairs FILE, --analogies FILE or both")
    check_analogy_method(method)
    judged = [word_vectors.read_pairs(file) for file in pairs or []]
    question_sections = None if analogies is None else questions.read_questions(analogies)
    rows: list[dict[str, Any]] = []
    with progress() as bar:
        for name in models:
            vectors = storage.read(name)
            size = {"words": len(vectors), "dimensions": vectors.dimensions}
            row: dict[str, Any] = {"model": name, "method": vectors.method, **size}
            row["pairs"] = [similarity_document(vectors, file, rare) for file in judged]
            if question_sections is not None:
                solved = questions.solve(vectors.row, vectors.unit, question_sections, method, bar)  # type: ignore[arg-type]
                row["analogies"] = analogy_document(analogies, method, question_sections, solved)
            rows.append(row)
    if json:
        emit({"rows": rows})
        return
    print_rows(rows, sections)


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
    from chainrule.embeddings import storage

    vectors = storage.read(model)
    vectors.export(out, format)  # type: ignore[arg-type]
    _done(vectors, out, {"model": model, "format": format}, json)


@app.command("import")
def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Word vectors in word2vec text or binary format, or GloVe format.")
    ],
    out: training_options.Out,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Import word vectors from a file of other software.

    The file may be compressed (gzip, bzip2, xz, zstd).

    Example: chainrule vectors import GoogleNews-vectors.bin --out runs/news
    """
    from dataclasses import replace

    from chainrule.embeddings import storage

    command = options.command_line()
    with options.lock_output(out, [file], force=force):
        vectors = storage.read(file)
        replace(vectors, origin=replace(vectors.origin, command=command)).save(out, force=force)
    _done(vectors, out, {"file": file}, json)


register(app)
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


PARTS = ("semantic", "syntactic", "all")


def similarity_document(vectors: "WordVectors", pairs: "Pairs", with_rare: bool) -> dict[str, Any]:
    """Evaluate word similarity on one file of judged pairs; `rare` is None if the vectors have no word counts."""
    from chainrule.evaluation.word_vectors import evaluate_similarity, rarest_third

    document: dict[str, Any] = {"file": pairs.name, **_judged(evaluate_similarity(vectors.find, pairs))}
    if with_rare:
        counts = vectors.counts

        def count(word: str) -> int | None:
            row = vectors.row(word)
            if row is not None and counts is not None:
                return int(counts[row])
            return (
                None if vectors.find(word) is None else 0
            )  # out of vocabulary; its vector comes from character n-grams

        document["rare"] = (
            None if counts is None else _judged(evaluate_similarity(vectors.find, rarest_third(pairs, count)))
        )
    return document


def _judged(result: "SimilarityResult") -> dict[str, Any]:
    return {
        "spearman": result.rho,
        "low": result.low,
        "high": result.high,
        "found": result.covered,
        "of": result.total,
        "coverage": result.coverage,
    }


def analogy_document(
    file: str | None, method: str, sections: "Sequence[Section]", solved: "Sequence[SectionResult]"
) -> dict[str, Any]:
    """Summarize the analogy results: semantic, syntactic, all, and by section."""
    from chainrule.evaluation.word_vectors import summarize

    sums = {name: _solved(part) for name, part in summarize(sections, solved).items()}
    return {"file": file, "method": method, **sums, "sections": {part.section: _solved(part) for part in solved}}


def _solved(part: "SectionResult") -> dict[str, Any]:
    return {"accuracy": part.accuracy, "right": part.correct, "asked": part.attempted, "of": part.total}


def print_rows(rows: Sequence[dict[str, Any]], with_sections: bool) -> None:
    """Print one table of all models and, optionally, one of the analogy sections with a column per model."""
    header = ["model", "method", "words"]
    first = rows[0]
    for pairs in first["pairs"]:
        name = Path(pairs["file"]).stem
        header += [name, "95 %", "found"] + ([f"{name} rare", "95 %", "found"] if "rare" in pairs else [])
    if "analogies" in first:
        header += [*PARTS, "asked"]
    _print_table(2, header, [_cells(row) for row in rows])
    if with_sections and "analogies" in first:
        print()
        names = [row["model"] for row in rows]
        section_results = [row["analogies"]["sections"] for row in rows]
        lines = [
            [name, f"{part['of']:,}", *(f"{_percent(of[name])} of {of[name]['asked']:,}" for of in section_results)]
            for name, part in section_results[0].items()
        ]
        _print_table(1, ["section", "questions", *names], lines)
    print()
    print("pairs: Spearman's rank correlation; analogies: % of the attempted questions answered correctly")


def _cells(row: dict[str, Any]) -> list[str]:
    cells = [row["model"], row["method"], f"{row['words']:,}"]
    for pairs in row["pairs"]:
        cells += _correlation(pairs)
        if "rare" in pairs:
            cells += _correlation(pairs["rare"])
    if "analogies" in row:
        analogies = row["analogies"]
        cells += [*(_percent(analogies[part]) for part in PARTS), _asked(analogies["all"])]
    return cells


def _correlation(result: dict[str, Any] | None) -> list[str]:
    if result is None:
        return ["-", "-", "-"]
    coverage = f"{result['found']:,}/{result['of']:,}"
    rho = "-" if math.isnan(result["spearman"]) else f"{result['spearman']:.3f}"
    interval = "-" if math.isnan(result["low"]) else f"{result['low']:.3f} to {result['high']:.3f}"
    return [rho, interval, coverage]


def _percent(part: dict[str, Any]) -> str:
    return "-" if math.isnan(part["accuracy"]) else f"{100 * part['accuracy']:.1f}"


def _asked(part: dict[str, Any]) -> str:
    return f"{part['asked']:,}/{part['of']:,}"


def _print_table(names: int, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print an aligned table: the first `names` columns left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = [f"{cell:{'<' if i < names else '>'}{widths[i]}}" for i, cell in enumerate(row)]
        print("  ".join(cells).rstrip())
