"""`chainrule vectors map`: a page on which words that are alike stand together."""

from pathlib import Path
from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import progress, say


def register(app: typer.Typer) -> None:
    """Add the command to those of `chainrule vectors`."""
    app.command("map")(draw)


def draw(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder of vectors, or a file: word2vec's, GloVe's.")
    ],
    out: Annotated[Path, typer.Option(help="The HTML page to write.")],
    words: Annotated[
        int | None, typer.Option(help="How many words, the most frequent ones.  [default: 2000]")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="tsne: groups of like words; pca: principal components.  [default: tsne]")
    ] = None,
    neighbors: Annotated[int | None, typer.Option(help="Neighbours shown of each word.  [default: 8]")] = None,
    perplexity: Annotated[
        float | None, typer.Option(help="tsne: by how many neighbours a word is placed.  [default: 30]")
    ] = None,
    seed: options.Seed = 0,
) -> None:
    """Draw a map of the words as one searchable HTML page.

    Neighbours are found among the words shown. An address that ends in #word=king opens the page at that word.

    Example: chainrule vectors map runs/skipgram --out map.html
    """
    from chainrule.config import make
    from chainrule.embeddings import formats
    from chainrule.errors import UsageError
    from chainrule.inspection import word_map
    from chainrule.replacement import replacing_file

    given = options.chosen(words=words, method=method, neighbors=neighbors, perplexity=perplexity, seed=seed)
    config = make(word_map.MapConfig, given, "map")
    vectors = formats.read(model)
    if vectors.is_one_hot:
        raise UsageError(f"{model} holds one-hot vectors, all equally far apart; a map needs learnt ones")
    with replacing_file(out) as file, progress() as bar:
        made = word_map.make_map(vectors.words, vectors.unit, vectors.counts, config, bar)
        page = word_map.page(made, Path(model).resolve().name).encode()
        file.write(page)
    say(f"saved {out}: {len(made.words):,} of {len(vectors):,} words, {len(page) / 1e6:.2f} MB")
