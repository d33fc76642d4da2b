"""`chainrule filter`: select the lines of a text that a model finds most probable."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from chainrule.cli import options
from chainrule.cli.console import dumps, progress, say
from chainrule.errors import UsageError

if TYPE_CHECKING:
    from chainrule.applications.filter import Keep, LineCost
    from chainrule.applications.line_jobs import CostSource
    from chainrule.distributed.options import EngineOptions
    from chainrule.distributed.records import Record
    from chainrule.lm import Floats, Ids, Mask
    from chainrule.text.corpus import Corpus


@options.expand_option_groups(options.ENGINE | options.RESUME_JOB)
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
    settings: dict[str, Any],
) -> None:
    """Keep the lines most similar to a model's training text.

    The lines stay in their original order. With --workers or --on, several processes score them; the result is
    the same.

    Example: chainrule filter runs/news web.txt --against runs/web --keep 20% --out like-news.txt
    """
    options.limit_threads(threads)
    names = _bucket_names(buckets, keep, out, json)
    engine = options.engine_options(settings)

    from chainrule import api
    from chainrule.applications.filter import Keep, LineCost

    amount = None if keep is None else Keep.parse(keep)
    device_name = options.check_device(device)
    general = None if against is None else api.load(against, kind="language model", device=device_name)
    judge = LineCost.of(api.load(model, kind="language model", device=device_name), general, by)
    corpus = text_format.corpus(file)
    options.check_output(out, corpus)
    line_format = _LineFormat(judge.by, scores, json)
    if engine.uses_engine:
        from chainrule.applications.line_jobs import CostSource

        source = CostSource(model.absolute(), None if against is None else against.absolute(), by, device_name)
        _filter_on_engine(engine, corpus, judge, source, amount or names, line_format, out)
    else:
        _filter_in_process(corpus, judge, amount or names, line_format, out)


def _filter_in_process(
    corpus: "Corpus", judge: "LineCost", amount: "Keep | list[str]", line_format: "_LineFormat", out: Path | None
) -> None:
    """Filter the lines in this process: keep an amount, or write the buckets with these names."""
    from chainrule.applications.filter import assign_buckets, measure_distances, select_nearest

    with progress() as draw:
        distances = measure_distances(judge, corpus, draw)
    costs = judge.shown(distances)
    if isinstance(amount, list):
        _write_buckets(corpus, line_format, costs, amount, assign_buckets(distances, len(amount)), out)
    else:
        _write_nearest(corpus, line_format, costs, select_nearest(distances, amount.number(len(distances))), out)


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


@dataclass(frozen=True)
class _LineFormat:
    """Output format of the lines: plain, preceded by the cost, or JSON."""

    by: str
    scores: bool
    json: bool

    def rows(self, lines: list[str], first: int, costs: "Floats", buckets: list[str] | None = None) -> list[str]:
        """Format lines with their costs; `first` lines of the text precede them."""
        if not (self.json or self.scores):
            return lines
        pairs = zip(costs.tolist(), lines, strict=True)
        if not self.json:
            return [f"{cost:.6f}\t{text}" for cost, text in pairs]
        return [
            dumps(
                {"line": first + n, "by": self.by, "cost": max(cost, -sys.float_info.max)}
                | ({} if buckets is None else {"bucket": buckets[n - 1]})
                | {"text": text},
                indent=None,
            )
            for n, (cost, text) in enumerate(pairs, start=1)
        ]

    def summary(self, costs: "Floats") -> str:
        """Return the highest cost of some lines for a message; empty if there are none."""
        return f"; {self.by} at most {costs.max():.4g}" if len(costs) else ""


def _write_nearest(
    corpus: "Corpus", line_format: _LineFormat, costs: "Floats", is_kept: "Mask", out: Path | None
) -> None:
    from chainrule.applications.filter import reread_batches

    with _target(out) as file:
        for positions, lines in reread_batches(corpus, len(is_kept)):
            rows = line_format.rows(lines, positions.start, costs[positions])
            _write(file, compress(rows, is_kept[positions].tolist()))
    say(f"kept {int(is_kept.sum()):,} of {len(is_kept):,} lines{line_format.summary(costs[is_kept])}")


def _write_buckets(
    corpus: "Corpus",
    line_format: _LineFormat,
    costs: "Floats",
    names: list[str],
    part_of: "Ids",
    out: Path | None,
) -> None:
    from chainrule.applications.filter import reread_batches

    with ExitStack() as stack:
        files = [stack.enter_context(_target(path)) for path in _bucket_files(names, out)]
        for positions, lines in reread_batches(corpus, len(part_of)):
            buckets = [names[part] for part in part_of[positions].tolist()]
            rows = line_format.rows(lines, positions.start, costs[positions], buckets)
            for number, file in enumerate(files):
                _write(file, rows if out is None else compress(rows, (part_of[positions] == number).tolist()))
    for number, name in enumerate(names):
        bucket_costs = costs[part_of == number]
        say(f"{name}: {len(bucket_costs):,} lines{line_format.summary(bucket_costs)}")


def _bucket_files(names: list[str], out: Path | None) -> list[Path | None]:
    return [None] if out is None else [out / f"{name}.txt" for name in names]


@dataclass(frozen=True)
class _RenderLines:
    """Format the selected lines in a worker process; the key of a record is the number of its output file."""

    line_format: _LineFormat
    names: tuple[str, ...]  # of the buckets; empty with --keep
    is_divided: bool  # one file for each bucket

    def __call__(
        self, cost: "LineCost", first: int, lines: list[str], distances: "Floats", passed: "Ids"
    ) -> "Iterator[Record]":
        """Yield the bytes for each output file; `passed` is the number of cuts before each line."""
        buckets = [self.names[number] for number in passed.tolist()] if self.names else None
        rows = self.line_format.rows(lines, first, cost.shown(distances), buckets)
        if self.names and not self.is_divided:
            yield 0, _joined(rows)
            return
        for number in range(max(1, len(self.names))):
            yield number, _joined(compress(rows, (passed == number).tolist()))


def _filter_on_engine(
    engine: "EngineOptions",
    corpus: "Corpus",
    judge: "LineCost",
    source: "CostSource",
    amount: "Keep | list[str]",
    line_format: _LineFormat,
    out: Path | None,
) -> None:
    """Filter on an engine: `amount` is the number of lines to keep, or the names of buckets."""
    import numpy as np

    from chainrule.applications.filter import Keep
    from chainrule.applications.line_jobs import check_context, identify_folder, rank_lines, write_ranked
    from chainrule.distributed.start import start_engine

    check_context(judge.models)
    names = [] if isinstance(amount, Keep) else amount
    numbers = (lambda total: [amount.number(total)]) if isinstance(amount, Keep) else _bucket_ends(len(amount))
    models = [identify_folder(folder) for folder in (source.reference, source.against) if folder is not None]
    job = {
        "job": "filter",
        "models": models,
        "amount": str(amount),
        "format": str(line_format),
        "files": out is not None,
    }
    render = _RenderLines(line_format, tuple(names), is_divided=out is not None)
    with ExitStack() as stack:
        with progress() as draw:
            running = stack.enter_context(start_engine(engine, corpus, job, draw))
            ranked = rank_lines(running, corpus, source, numbers)
            rows = write_ranked(running, corpus, ranked, source, render)
        files = [stack.enter_context(_target(path)) for path in (_bucket_files(names, out) if names else [out])]
        for number, payload in rows:
            files[number].write(payload)
    numbers_of_lines = [cut.number for cut in ranked.cuts] or [0] * max(1, len(names))
    highest = judge.shown(np.array([cut.distance for cut in ranked.cuts]))
    if not names:
        say(f"kept {numbers_of_lines[0]:,} of {ranked.total:,} lines{line_format.summary(highest)}")
    for i, name in enumerate(names):
        lines = numbers_of_lines[i] - (numbers_of_lines[i - 1] if i else 0)
        say(f"{name}: {lines:,} lines{line_format.summary(highest[i : i + 1] if lines else highest[:0])}")


def _bucket_ends(buckets: int) -> "Callable[[int], list[int]]":
    """Return the function from the number of lines to the number of lines up to the end of each bucket."""
    return lambda total: [-(-number * total // buckets) for number in range(1, buckets + 1)]


def _joined(rows: Iterable[str]) -> bytes:
    return "\n".join([*rows, ""]).encode()


def _write(file: BinaryIO, rows: Iterable[str]) -> None:
    file.write(_joined(rows))


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
