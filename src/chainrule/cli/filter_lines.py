"""`chainrule filter`: the lines of a text that are nearest to a model."""

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
    from chainrule.applications.filter import Judge
    from chainrule.lm import Floats, Ids, Mask
    from chainrule.text.corpus import Corpus


def filter_lines(
    model: options.ModelFolder,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Lines to choose from; - for stdin.")] = "-",
    keep: Annotated[str | None, typer.Option(help="How much to keep: 0.2, 20%, or a number of lines.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="A model of text in general: keep by the difference to it.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="bits-per-byte (the default), perplexity, or difference (--against).")
    ] = None,
    buckets: Annotated[
        str | None, typer.Option(help="Instead of --keep: equal parts by cost, as in head,middle,tail.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="The cost and a tab before each line.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; with --buckets the folder of NAME.txt.")
    ] = None,
    column: options.Column = None,
    errors: options.Errors = "strict",
    drop_blank_lines: options.DropBlankLines = False,
    threads: options.Threads = None,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Keep the lines most like the model's training text, in order.

    Example: chainrule filter runs/news web.txt --against runs/web --keep 20% --out like-news.txt
    """
    options.use_threads(threads)
    names = _bucket_names(buckets, keep, out, json)

    from chainrule import api
    from chainrule.applications.filter import Judge, Keep, measure, nearest
    from chainrule.applications.filter import buckets as in_buckets
    from chainrule.text.corpus import Corpus

    wanted = None if keep is None else Keep.parse(keep)
    where = options.device(device)
    rival = None if against is None else api.load(against, device=where)
    judge = Judge.of(api.load(model, device=where), rival, by)
    corpus = Corpus.of(file, **options.text_rules(column, errors, drop_blank_lines))
    with progress() as draw:
        distances = measure(judge, corpus, draw)
    form = _Form(judge, judge.shown(distances), scores, json)
    if wanted is not None:
        _write_nearest(corpus, form, nearest(distances, wanted.number(len(distances))), out)
    else:
        _write_buckets(corpus, form, names, in_buckets(distances, len(names)), out)


def _bucket_names(buckets: str | None, keep: str | None, out: Path | None, json: bool) -> list[str]:
    """The names of the parts, checked; none where lines are to be kept."""
    if (buckets is None) == (keep is None):
        raise UsageError("say how many lines to --keep, or name --buckets: one of the two")
    names = [] if buckets is None else [name.strip() for name in buckets.split(",")]
    is_sound = all(name and "/" not in name and not name.startswith(".") for name in names)
    if not is_sound or len(set(names)) < len(names) or len(names) > 1000:
        raise UsageError(f"buckets is '{buckets}'; give a few different names, such as head,middle,tail")
    if names and out is None and not json:
        raise UsageError("--buckets makes several files; name their folder with --out, or ask for --json")
    return names


class _Form:
    """How a chosen line is written: alone, behind its cost, or as JSON."""

    def __init__(self, judge: "Judge", costs: "Floats", scores: bool, json: bool) -> None:
        self.by, self.costs, self.scores, self.json = judge.by, costs, scores, json

    def rows(self, lines: list[str], here: slice, bucket: list[str] | None = None) -> list[str]:
        """The lines of a place in the text, as they are written."""
        if not (self.json or self.scores):
            return lines
        costs = self.costs[here].tolist()
        if not self.json:
            return [f"{cost:.6f}\t{text}" for cost, text in zip(costs, lines, strict=True)]
        return [
            dumps(
                {"line": here.start + n + 1, "by": self.by, "cost": max(cost, -sys.float_info.max)}
                | ({} if bucket is None else {"bucket": bucket[n]})
                | {"text": text},
                indent=None,
            )
            for n, (cost, text) in enumerate(zip(costs, lines, strict=True))
        ]


def _write_nearest(corpus: "Corpus", form: _Form, is_kept: "Mask", out: Path | None) -> None:
    from chainrule.applications.filter import read_again

    number = int(is_kept.sum())
    with _target(out) as file:
        for here, lines in read_again(corpus, len(is_kept)):
            _write(file, compress(form.rows(lines, here), is_kept[here].tolist()))
    highest = f"; {form.by} at most {form.costs[is_kept].max():.4g}" if number else ""
    say(f"kept {number:,} of {len(is_kept):,} lines{highest}")


def _write_buckets(corpus: "Corpus", form: _Form, names: list[str], part_of: "Ids", out: Path | None) -> None:
    from chainrule.applications.filter import read_again

    with ExitStack() as stack:
        paths = [None] if out is None else [out / f"{name}.txt" for name in names]
        files = [stack.enter_context(_target(path)) for path in paths]
        for here, lines in read_again(corpus, len(part_of)):
            rows = form.rows(lines, here, [names[part] for part in part_of[here].tolist()])
            for number, file in enumerate(files):
                _write(file, rows if out is None else compress(rows, (part_of[here] == number).tolist()))
    for number, name in enumerate(names):
        costs = form.costs[part_of == number]
        highest = f"; {form.by} at most {costs.max():.4g}" if len(costs) else ""
        say(f"{name}: {len(costs):,} lines{highest}")


def _write(file: BinaryIO, rows: Iterable[str]) -> None:
    if text := "\n".join([*rows, ""]):
        file.write(text.encode())


@contextmanager
def _target(out: Path | None) -> Iterator[BinaryIO]:
    """A file that is put in place when all is written, or stdout."""
    from chainrule.replacement import replacing_file

    if out is not None and str(out) != "-":
        with replacing_file(out) as file:
            yield file
        return
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()
