"""Write, remove and read back `report.html` and `results.json`, each replaced atomically."""

import json
from pathlib import Path
from typing import Any

from chainrule.replacement import atomic_file, flush, write_error
from chainrule.report.page import render_page
from chainrule.report.results import Results

RESULTS, REPORT = "results.json", "report.html"


def write(results: Results, out: Path) -> None:
    """Render both files, then write them, creating the folder if needed."""
    document = json.dumps(results.to_json(), ensure_ascii=False, allow_nan=False, indent=2)
    page = render_page(results)
    with atomic_file(out / RESULTS) as file:
        file.write(f"{document}\n".encode())
    with atomic_file(out / REPORT) as file:
        file.write(page.encode())


def remove(out: Path) -> None:
    """Remove both files, the report first, and flush the directory to disk."""
    try:
        for name in (REPORT, RESULTS):
            (out / name).unlink(missing_ok=True)
        if out.exists():
            flush(out)
    except OSError as error:
        raise write_error(out, error) from error


def read_origin(out: Path) -> list[dict[str, Any]]:
    """`command` and `text_sha256` of the comparison in a folder, None if missing; empty without a comparison.

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
