"""`chainrule vectors map`: two-dimensional projection of word vectors as an HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import progress, say


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
    from chainrule.embeddings import formats
    from chainrule.errors import UsageError
    from chainrule.inspection import word_map
    from chainrule.replacement import atomic_file

    settings = options.drop_unset(words=words, method=method, neighbors=neighbors, perplexity=perplexity, seed=seed)
    config = build_config(word_map.MapConfig, settings, "map")
    vectors = formats.read(model)
    if vectors.is_one_hot:
        raise UsageError(f"{model} holds one-hot vectors, all equally far apart; a map needs learnt ones")
    with atomic_file(out) as file, progress() as bar:
        projection = word_map.make_map(vectors.words, vectors.unit, vectors.counts, config, bar)
        page = word_map.render_page(projection, Path(model).resolve().name).encode()
        file.write(page)
    say(f"saved {out}: {len(projection.words):,} of {len(vectors):,} words, {len(page) / 1e6:.2f} MB")
