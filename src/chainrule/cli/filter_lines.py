"""`chainrule filter`: select the lines of a text that a model finds most probable."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from chainrule.cli import options
from chainrule.cli.console import dumps, progress, say
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.applications.filter import LineCost
    from chainrule.lm import Floats, Ids, Mask
    from chainrule.text.corpus import Corpus


@options.expand_option_groups()
def filter_lines(
    model: options.ModelFolder,
    *,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Lines to filter; - for stdin.")] = "-",
    keep: Annotated[
        str | None, typer.Option(help="Amount to keep: a fraction (0.2), a percentage (20%) or a number of lines.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="General-domain model; lines are ranked by the cross-entropy difference (Moore-Lewis)."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Ranking criterion: bits-per-byte, perplexity, or difference (with --against).  "
            "[default: bits-per-byte, or difference with --against]"
        ),
    ] = None,
    buckets: Annotated[
        str | None,
        typer.Option(help="Instead of --keep: split into equally large parts by cost, e.g. head,middle,tail."),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Print the cost and a tab before each line.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Output file; with --buckets, the output folder (one NAME.txt per part).")
    ] = None,
    threads: options.Threads = None,
    device: options.Device = "auto",
    text_format: options.LineFormat,
    json: options.Json = False,
) -> None:
    """Keep the lines most similar to a model's training text.

    The lines stay in their original order.

    Example: chainrule filter runs/news web.txt --against runs/web --keep 20% --out like-news.txt
    """
    options.limit_threads(threads)
    names = _bucket_names(buckets, keep, out, json)

    from chainrule import api
    from chainrule.applications.filter import Keep, LineCost, measure_distances, select_nearest
    from chainrule.applications.filter import assign_buckets as in_buckets

    amount = None if keep is None else Keep.parse(keep)
    device_name = options.check_device(device)
    general = None if against is None else api.load(against, kind="language model", device=device_name)
    judge = LineCost.of(api.load(model, kind="language model", device=device_name), general, by)
    corpus = text_format.corpus(file)
    with progress() as draw:
        distances = measure_distances(judge, corpus, draw)
    line_format = _Format(judge, judge.shown(distances), scores, json)
    if amount is not None:
        _write_nearest(corpus, line_format, select_nearest(distances, amount.number(len(distances))), out)
    else:
        _write_buckets(corpus, line_format, names, in_buckets(distances, len(names)), out)


def _bucket_names(buckets: str | None, keep: str | None, out: Path | None, json: bool) -> list[str]:
    """Parse and check the names of --buckets; an empty list if --keep is used."""
    if (buckets is None) == (keep is None):
        raise UsageError("give exactly one of --keep and --buckets")
    names = [] if buckets is None else [name.strip() for name in buckets.split(",")]
    are_valid = all(name and "/" not in name and not name.startswith(".") for name in names)
    if not are_valid or len(set(names)) < len(names) or len(names) > 1000:
        raise UsageError(f"buckets is '{buckets}'; give a few different names, such as head,middle,tail")
    if names and out is None and not json:
        raise UsageError("--buckets writes several files; give their folder with --out, or use --json")
    return names


class _Format:
    """Output format of the lines: plain, preceded by the cost, or JSON."""

    def __init__(self, judge: "LineCost", costs: "Floats", scores: bool, json: bool) -> None:
        self.by, self.costs, self.scores, self.json = judge.by, costs, scores, json

    def rows(self, lines: list[str], positions: slice, buckets: list[str] | None = None) -> list[str]:
        """Format the lines at `positions` of the text."""
        if not (self.json or self.scores):
            return lines
        costs = self.costs[positions].tolist()
        if not self.json:
            return [f"{cost:.6f}\t{text}" for cost, text in zip(costs, lines, strict=True)]
        return [
            dumps(
                {"line": positions.start + n + 1, "by": self.by, "cost": max(cost, -sys.float_info.max)}
                | ({} if buckets is None else {"bucket": buckets[n]})
                | {"text": text},
                indent=None,
            )
            for n, (cost, text) in enumerate(zip(costs, lines, strict=True))
        ]


def _write_nearest(corpus: "Corpus", line_format: _Format, is_kept: "Mask", out: Path | None) -> None:
    from chainrule.applications.filter import reread_batches

    number = int(is_kept.sum())
    with _target(out) as file:
        for positions, lines in reread_batches(corpus, len(is_kept)):
            _write(file, compress(line_format.rows(lines, positions), is_kept[positions].tolist()))
    highest = f"; {line_format.by} at most {line_format.costs[is_kept].max():.4g}" if number else ""
    say(f"kept {number:,} of {len(is_kept):,} lines{highest}")


def _write_buckets(
    corpus: "Corpus", line_format: _Format, names: list[str], part_of: "Ids", out: Path | None
) -> None:
    from chainrule.applications.filter import reread_batches

    with ExitStack() as stack:
        paths = [None] if out is None else [out / f"{name}.txt" for name in names]
        files = [stack.enter_context(_target(path)) for path in paths]
        for positions, lines in reread_batches(corpus, len(part_of)):
            rows = line_format.rows(lines, positions, [names[part] for part in part_of[positions].tolist()])
            for number, file in enumerate(files):
                _write(file, rows if out is None else compress(rows, (part_of[positions] == number).tolist()))
    for number, name in enumerate(names):
        costs = line_format.costs[part_of == number]
        highest = f"; {line_format.by} at most {costs.max():.4g}" if len(costs) else ""
        say(f"{name}: {len(costs):,} lines{highest}")


def _write(file: BinaryIO, rows: Iterable[str]) -> None:
    if text := "\n".join([*rows, ""]):
        file.write(text.encode())


@contextmanager
def _target(out: Path | None) -> Iterator[BinaryIO]:
    """Open the output file, moved into place when it is complete, or stdout."""
    from chainrule.storage.atomic import atomic_file

    if out is not None and str(out) != "-":
        with atomic_file(out) as file:
            yield file
        return
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()
