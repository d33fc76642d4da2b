"""`chainrule convert`: import, export and transform models."""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say
from chainrule.errors import UsageError
from chainrule.ngram.config import Config as NgramConfig
from chainrule.progress import Progress, silent

if TYPE_CHECKING:
    from chainrule.model import Model

KINDS = ("arpa", "ngram", "shards", "word2vec")


@options.expand_option_groups(options.options_from_fields(NgramConfig, "entropy_prune", "layout", "bits"))
def convert(
    source: Annotated[
        Path, typer.Argument(metavar="MODEL|FILE.arpa", help="Model folder, or an ARPA file (- for stdin).")
    ],
    out: Annotated[Path, typer.Option(help="Output file (- for stdout) or model folder.")],
    *,
    force: options.Force = False,
    to: Annotated[
        str | None,
        typer.Option(
            help="Target: arpa; ngram (one model folder, from an n-gram model, a mixture or shards); shards (an "
            "n-gram model in several files); word2vec (from word vectors). Omit it to import an ARPA file."
        ),
    ] = None,
    shards: Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of files for --to shards.")] = None,
    settings: dict[str, Any],
    json: options.Json = False,
) -> None:
    """Convert models to and from the formats of other software.

    Also merges a mixture of n-gram models into one model, prunes it, changes its layout, or splits it into shards.

    Examples: chainrule convert runs/ngram5 --to arpa --out model.arpa

    chainrule convert model.arpa --out runs/imported

    chainrule convert runs/ngram5 --to ngram --entropy-prune 1e-8 --out runs/small

    chainrule convert runs/mix --to ngram --layout small --quantize 8 --out runs/one

    chainrule convert runs/ngram5 --to shards --shards 4 --out runs/sharded

    chainrule convert runs/skipgram --to word2vec --out vectors.txt
    """
    from chainrule.applications import convert as exchange
    from chainrule.embeddings import storage

    _check_target(to, shards, settings)
    entropy_prune, layout, bits = (settings.get(name) for name in ("entropy_prune", "layout", "bits"))
    if to == "arpa" and str(out) == "-":
        exchange.write_arpa(_ngram(source, entropy_prune), sys.stdout.buffer)
        return
    command = options.command_line()
    lock = options.lock_output(out, [source], force=force) if to in (None, "ngram", "shards") else nullcontext()
    with lock, progress() as bar:
        if to is None:
            model = exchange.import_arpa(source, command=command, progress=bar)
            exchange.change_layout(exchange.prune(model, entropy_prune, bar), layout, bits).save(out, force=force)
        elif to == "arpa":
            exchange.export_arpa(_ngram(source, entropy_prune, bar), out, progress=bar)
        elif to == "ngram" or shards is not None:
            model = exchange.change_layout(_ngram(source, entropy_prune, bar), layout, bits)
            (model if shards is None else exchange.split_model(model, shards)).save(out, force=force)
        else:
            storage.read(source).export(out)
    if json:
        emit({"source": str(source), "out": str(out), "to": to or "model"})
    say(f"wrote {out}")


def _check_target(to: str | None, shards: int | None, settings: Mapping[str, object]) -> None:
    """Raise UsageError for an unknown target and for options that do not apply to it."""
    if to is not None and to not in KINDS:
        raise UsageError(f"--to is '{to}'; choose {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if to == "word2vec" and "entropy_prune" in settings:
        raise UsageError("--entropy-prune is for n-gram models, not for word vectors; leave it out")
    if to in ("arpa", "word2vec") and settings.keys() & {"layout", "bits"}:
        raise UsageError("--layout and --quantize apply to model folders; leave them out, or use --to ngram")
    if (to == "shards") != (shards is not None):
        raise UsageError("--to shards and --shards N go together; give both, or neither")


def _ngram(source: Path, entropy_prune: float | None, bar: Progress = silent) -> "Model":
    """Load an n-gram model, merging a mixture into one, and prune it if requested."""
    from chainrule import api
    from chainrule.applications import convert as exchange

    model = exchange.merge_mixture(api.load(source, kind="language model"), bar)
    return exchange.with_command(exchange.prune(model, entropy_prune, bar), options.command_line())
