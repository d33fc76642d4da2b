"""The files of a comparison: `report.html` and `results.json`, each replaced in one step."""

import json
from pathlib import Path

from chainrule.replacement import replacing_file
from chainrule.report.page import render
from chainrule.report.results import Results


def write(results: Results, out: Path) -> None:
    """Write both into a folder, which is made where there is none."""
    document = json.dumps(results.to_json(), ensure_ascii=False, allow_nan=False, indent=2)
    with replacing_file(out / "results.json") as file:
        file.write(f"{document}\n".encode())
    with replacing_file(out / "report.html") as file:
        file.write(render(results).encode())
