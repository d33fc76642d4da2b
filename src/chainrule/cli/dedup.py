"""`chainrule dedup`: remove duplicate lines or documents."""

from pathlib import Path
from typing import Annotated, Any

import typer

from chainrule.cli import options
from chainrule.cli.console import emit, progress, say


@options.expand_option_groups(options.ENGINE | options.RESUME_JOB)
def dedup(
    text: options.Texts,
    *,
    out: Annotated[Path, typer.Option(help="Output file: JSON Lines if it ends with .jsonl, else plain text.")],
    by: Annotated[
        str,
        typer.Option(
            help="What is compared: line, or document (a record of JSON Lines, Parquet or a table; a paragraph of "
            "plain text)."
        ),
    ] = "line",
    near: Annotated[
        float | None,
        typer.Option(help="Also remove near duplicates: Jaccard similarity of five-word shingles, e.g. 0.8."),
    ] = None,
    text_format: options.LineFormat,
    json: options.Json = False,
    settings: dict[str, Any],
) -> None:
    """Remove duplicates; the first of equal lines or documents stays.

    Case and white space are not compared. Blank lines are kept. With --workers or --on, several processes compare
    them; the result is the same.

    Examples: chainrule dedup web.txt --out unique.txt

    chainrule dedup 'web/*.jsonl.gz' --by document --near 0.8 --workers 8 --out unique.jsonl
    """
    from chainrule.applications.deduplicate import deduplicate

    engine = options.engine_options(settings)
    corpus = text_format.corpus(text)
    options.check_output(out, corpus)
    with progress() as draw:
        numbers = deduplicate(corpus, out, by=by, near=near, options=engine, progress=draw)
    if json:
        counts = {"total": numbers.total, "kept": numbers.kept, "exact": numbers.exact, "near": numbers.near}
        emit({"out": str(out), "by": by, **counts})
    duplicates = f"{numbers.exact:,} exact" + ("" if near is None else f" and {numbers.near:,} near")
    say(f"kept {numbers.kept:,} of {numbers.total:,} {by}s; removed {duplicates} duplicates")
