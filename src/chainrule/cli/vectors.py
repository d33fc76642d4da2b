"""`chainrule vectors`: train, query, evaluate and convert word vectors."""

import math
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import dumps, emit, print_table, progress, say
from chainrule.embeddings.config import VectorConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chainrule.embeddings.vectors import WordVectors
    from chainrule.evaluation.word_vectors import Pairs, Section, SectionResult, SimilarityResult
    from chainrule.inspection.senses import Separation
    from chainrule.neural.probes.contextual import Layers

LINES_AT_ONCE = 1024
DIGITS = 6  # significant digits of contextual vectors in text and JSON


app = typer.Typer(help="Word vectors: train, query, evaluate, import, export.", no_args_is_help=True)

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Folder of word vectors, or a file in word2vec or GloVe format.")
]
Top = Annotated[int, typer.Option(min=1, help="Number of words to print.")]
Rule = Annotated[str, typer.Option(help="Analogy rule: add (3CosAdd) or mul (3CosMul).")]

SETTINGS = (
    options.options_from_fields(
        VectorConfig, "method", "dimensions", "window", "negative", "epochs", "min_count", "vocab_size"
    )
    | options.options_from_fields(VectorConfig, "lowercase", "tokenizer", "sample")
    | {"subwords": options.option(str, "skipgram, cbow: also train character n-grams of these lengths, e.g. 3-6.")}
    | options.options_from_fields(VectorConfig, "learning_rate", "memory")
    | options.ENGINE
    | options.RESUME_JOB
)


@app.command()
@options.expand_option_groups(SETTINGS)
def train(
    text: options.Texts,
    out: options.Out,
    *,
    settings: dict[str, Any],
    threads: options.Threads = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed; with --threads 1, the same seed gives the same result.")
    ] = 0,
    set_: options.Set = None,
    text_format: options.TextFormat,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Train word vectors and save them.

    Results are reproducible bit for bit only with --threads 1 and the same seed.

    With --workers or --on, the words and co-occurrences of glove and ppmi are counted by processes or on Spark; the
    counts are the same.

    Examples: chainrule vectors train corpus.txt --lowercase --out runs/skipgram

    chainrule vectors train corpus.txt --method glove --dimensions 50 --epochs 15 --out runs/glove

    chainrule vectors train corpus/ --method glove --workers 16 --work scratch --out runs/web
    """
    options.limit_threads(threads)
    from chainrule.config import build_config, parse_overrides
    from chainrule.embeddings import train as learner

    start = time.perf_counter()
    engine = options.engine_options(settings)
    subwords = _subwords(settings.pop("subwords", None))
    config = build_config(VectorConfig, parse_overrides(set_ or []) | settings | subwords, "vectors")
    with progress() as bar:
        vectors = learner.train(
            text_format.corpus(text),
            config=config,
            threads=threads,
            seed=seed,
            progress=bar,
            out=out,
            force=force,
            command=options.command_line(),
            engine=engine if engine.uses_engine else None,
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
        raise UsageError(f"--subwords is '{lengths}'; write the minimum and maximum length, e.g. 3-6")
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
    a: Annotated[str, typer.Argument(metavar="A", help="A in: A is to B as C is to the answer.")],
    b: Annotated[str, typer.Argument(metavar="B", help="B in: A is to B as C is to the answer.")],
    c: Annotated[str, typer.Argument(metavar="C", help="C in: A is to B as C is to the answer.")],
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
        bool, typer.Option("--rare", help="Also evaluate on the third of the pairs with the rarest words.")
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

    if analogies is None and not pairs:
        raise UsageError("no test set was given; give --pairs FILE, --analogies FILE or both")
    check_analogy_method(method)
    judged = [word_vectors.read_pairs(file) for file in pairs or []]
    question_sections = None if analogies is None else word_vectors.read_questions(analogies)
    rows: list[dict[str, Any]] = []
    with progress() as bar:
        for name in models:
            vectors = storage.read(name)
            size = {"words": len(vectors), "dimensions": vectors.dimensions}
            row: dict[str, Any] = {"model": name, "method": vectors.method, **size}
            row["pairs"] = [similarity_document(vectors, file, rare) for file in judged]
            if question_sections is not None:
                solved = word_vectors.solve(vectors.row, vectors.unit, question_sections, method, bar)  # type: ignore[arg-type]
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
    """Export word vectors for other software such as gensim.

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
    out: options.Out,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Import word vectors from a file written by other software.

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


@app.command("map")
def draw(
    model: Model,
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
        raise UsageError(
            f"{model} contains one-hot vectors, which are all equidistant; a map needs trained vectors"
        )
    with atomic_file(out) as file, progress() as bar:
        projection = word_map.make_map(vectors.words, vectors.unit, vectors.counts, config, bar)
        page = word_map.render_page(projection, Path(model).resolve().name).encode()
        file.write(page)
    say(f"saved {out}: {len(projection.words):,} of {len(vectors):,} words, {len(page) / 1e6:.2f} MB")


@app.command()
@options.expand_option_groups()
def contextual(
    model: options.ModelFolder,
    *,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Sentences, one per line; - for stdin.")] = "-",
    layer: Annotated[
        int | None,
        typer.Option(help="Layer to print; 0 is the embedding layer.  [default: all; in text output, the last]"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the vectors to this .npz file.")] = None,
    text_format: options.TextFormat,
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

    if out is not None and out.suffix.lower() != ".npz":
        raise UsageError(
            f"--out is {out}, but vectors are written in NumPy's .npz format; choose a name that ends in .npz"
        )
    if out is not None and json:
        raise UsageError("--json prints and --out writes a file; choose one of them")
    loaded = _load(model, device)
    from chainrule.neural.probes.contextual import contextual as read

    lines = iter(text_format.corpus(file))
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


@app.command()
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
        raise UsageError(f"senses are written as .svg or .html, but {out} ends in neither; rename it")
    labelled = read_labelled(file)
    loaded = _load(model, device)
    from chainrule.inspection.senses import best_layer, check_senses, majority_sense, measure_separation
    from chainrule.neural.probes.contextual import occurrences

    check_senses(labelled.labels)
    with progress() as bar:
        uses = occurrences(loaded, word, labelled.texts, labelled.name, bar)
    layers = measure_separation(uses.vectors, labelled.labels)
    if out is not None:
        from chainrule.inspection.senses import SensePlot, draw, render_page
        from chainrule.plots.figures import standalone
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
        rows = [_separation(layer) for layer in layers]
        emit(document | {"layers": rows, "best_layer": best_layer(layers).layer})
    else:
        _print_separation(layers, rate, len(labelled))
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


def _separation(separation: "Separation") -> dict[str, Any]:
    return {
        "layer": separation.layer,
        "is_static": separation.different == 1,
        "accuracy": separation.accuracy,
        "cosine_within": separation.within,
        "cosine_across": separation.across,
        "separation": separation.gap,
    }


def _print_separation(measured: "Sequence[Separation]", rate: float, sentences: int) -> None:
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
    print_table(header, [_cells(row) for row in rows], names=2)
    if with_sections and "analogies" in first:
        print()
        names = [row["model"] for row in rows]
        section_results = [row["analogies"]["sections"] for row in rows]
        lines = [
            [name, f"{part['of']:,}", *(f"{_percent(of[name])} of {of[name]['asked']:,}" for of in section_results)]
            for name, part in section_results[0].items()
        ]
        print_table(["section", "questions", *names], lines)
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
