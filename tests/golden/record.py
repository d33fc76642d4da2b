"""Rewrite the golden record: `python -m tests.golden.record`, and once for new folders `… record folders`."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
USAGE = "usage: python -m tests.golden.record [folders]"


def main(arguments: list[str]) -> int:
    """Record what commands print and servers answer; with `folders`, write the model folders that are missing."""
    if arguments not in ([], ["folders"]):
        print(USAGE, file=sys.stderr)
        return 2
    command = ["golden.folders"] if arguments else ["pytest", "-p", "no:cacheprovider", "tests/golden"]
    environment = os.environ | {"CHAINRULE_GOLDEN": "record", "PYTHONPATH": str(ROOT / "tests")}
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
