"""The files of a comparison: `report.html` and `results.json`, each replaced in one step."""

import json
from pathlib import Path
from typing import Any

from chainrule.replacement import cannot_write, flush, replacing_file
from chainrule.report.page import render
from chainrule.report.results import Results

RESULTS, REPORT = "results.json", "report.html"


def write(results: Results, out: Path) -> None:
    """Write both into a folder, which is made where there is none; nothing is written before both are complete."""
    document = json.dumps(results.to_json(), ensure_ascii=False, allow_nan=False, indent=2)
    page = render(results)
    with replacing_file(out / RESULTS) as file:
        file.write(f"{document}\n".encode())
    with replacing_file(out / REPORT) as file:
        file.write(page.encode())


def remove(out: Path) -> None:
    """Remove both, the report first, and return once they are gone from the disk."""
    try:
        for name in (REPORT, RESULTS):
            (out / name).unlink(missing_ok=True)
        if out.exists():
            flush(out)
    except OSError as error:
        raise cannot_write(out, error) from error


def read_origin(out: Path) -> list[dict[str, Any]]:
    """The `command` and `text_sha256` of the comparison in a folder, if there is one; None for what it lacks.

    >>> read_origin(Path("no/such/folder"))
    []
    """
    if not any((out / name).exists() for name in (RESULTS, REPORT)):
        return []
    try:
        content = json.loads((out / RESULTS).read_bytes())
    except (OSError, ValueError, RecursionError):
        content = None
    results = content if isinstance(content, dict) else {}
    return [{name: results.get(name) for name in ("command", "text_sha256")}]
