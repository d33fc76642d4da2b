"""`chainrule convert`: exchange with other software."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say


def convert(
    source: Annotated[
        Path, typer.Argument(metavar="MODEL|FILE.arpa", help="A model folder, or an ARPA file (- for stdin).")
    ],
    out: Annotated[Path, typer.Option(help="The file (- for stdout) or the model folder to write.")],
    to: Annotated[
        str | None, typer.Option(help="arpa, or word2vec of word vectors; leave out to make a model folder.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Turn a model into a file of another tool, or such a file into a model.

    Examples: chainrule convert runs/ngram5 --to arpa --out model.arpa

    chainrule convert model.arpa --out runs/imported

    chainrule convert runs/skipgram --to word2vec --out vectors.txt
    """
    from chainrule import exchange
    from chainrule.embeddings import formats
    from chainrule.errors import UsageError

    if to == "arpa" and str(out) == "-":
        exchange.write_arpa(source, sys.stdout.buffer)
        return
    with progress() as bar:
        if to is None:
            exchange.import_arpa(source, command=options.command_line(), progress=bar).save(out)
        elif to == "arpa":
            exchange.export_arpa(source, out, progress=bar)
        elif to == "word2vec":
            formats.read(source).export(out)
        else:
            raise UsageError(f"--to is '{to}'; choose arpa or word2vec")
    if json:
        emit({"source": str(source), "out": str(out), "to": to or "model"})
    say(f"wrote {out}")
