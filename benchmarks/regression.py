"""Compare the speed of two versions of chainrule in one run, alternating between them.

    python -m benchmarks.regression --old OLD/.venv/bin/python --new NEW/.venv/bin/python [--repeat 3]

Both arguments are Python interpreters with chainrule installed, for instance those of the virtual environments of
two checkouts. Every measurement runs in a new process of one of them, on one thread, and uses only the command
line, the HTTP interface and Python names that all versions since commit 00bb96a have. The text is Penn Treebank,
whose words are all known, since the speller of unknown words differs between versions.

Calls are timed without start-up and imports (fastest pass of a process), `filter` from start to end. For the
server, CPU time is that of its process, and wall time that of all requests; the clients share the cores.

The table holds the medians of the repetitions and their ratios; "fastest" is the ratio of the smallest CPU times,
and "spread" the range of the CPU times of one version, relative to their median and the larger of both. Results
that differ between the versions are reported.
"""

import argparse
import asyncio
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final
from urllib.parse import urlsplit

from benchmarks.corpora import BENCHMARKS, machine, table
from benchmarks.serve import LINES, bodies, serving_process
from benchmarks.serve_clients import message, read_response

JOBS: Final = Path(__file__).with_name("regression_jobs.py")
CLIENTS: Final = 16
WARM_UP: Final = 10 * CLIENTS  # requests before the measurement
FILTERED: Final = 4  # copies of the training text that `filter` reads
LIMIT: Final = 600.0  # seconds of one measurement
ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
TOLERANCE: Final = 0.01  # relative difference of results; sampled completions differ
HEAD: Final = [
    "",
    "old, CPU s",
    "new, CPU s",
    "new/old",
    "fastest",
    "spread",
    "old, wall s",
    "new, wall s",
    "new/old",
]


@dataclass(frozen=True, slots=True)
class Measurement:
    """Cost of one piece of work."""

    cpu: float  # seconds
    wall: float  # seconds
    result: float  # computed from what the work gave


@dataclass(frozen=True, slots=True)
class Version:
    """A Python interpreter with chainrule installed, and a folder for what it writes."""

    python: str
    folder: Path

    @property
    def model(self) -> Path:
        """Folder of the 5-gram that this version trained."""
        return self.folder / "ngram"


Work = Callable[[Version], Measurement]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True, metavar="PYTHON", help="interpreter of the version compared with")
    parser.add_argument("--new", required=True, metavar="PYTHON", help="interpreter of the version to judge")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="measurements of each version per row")
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    os.environ.pop("PYTHONPATH", None)
    print(f"{machine()}\n", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        text = Path(scratch) / "valid-test.txt"
        text.write_bytes(b"".join(BENCHMARKS["ptb"].path(split).read_bytes() for split in ("valid", "test")))
        lines = Path(scratch) / "lines.txt"
        lines.write_bytes(FILTERED * BENCHMARKS["ptb"].path("train").read_bytes())
        versions = []
        for name in ("old", "new"):
            folder = Path(scratch) / name
            folder.mkdir()
            versions.append(Version(os.path.abspath(getattr(options, name)), folder))
        rows = {name: alternate(name, work, versions, options.repeat) for name, work in works(text, lines).items()}
    print(table(HEAD, [[name, *cells(old, new)] for name, (old, new) in rows.items()]))
    print("\n".join(differences(rows)) or "The results of both versions agree.")
    return 0


def works(text: Path, lines: Path) -> dict[str, Work]:
    """Return the rows of the table; the first trains the model that the others use."""
    train, valid = BENCHMARKS["ptb"].path("train"), BENCHMARKS["ptb"].path("valid")
    return {
        "n-gram training, order 5": lambda version: run_job(version, "train", train),
        "n-gram `score_sentences`": lambda version: run_job(version, "query", text),
        "n-gram `Model.evaluate`": lambda version: run_job(version, "evaluate", text),
        "`chainrule filter`": lambda version: run_filter(version, lines),
        f"{LINES:,} requests to `/v1/score`": lambda version: request(version, "/v1/score"),
        f"{LINES:,} requests to `/v1/completions`": lambda version: request(version, "/v1/completions"),
        "one epoch of an LSTM": lambda version: run_job(version, "lstm", valid),
    }


def alternate(
    name: str, work: Work, versions: list[Version], repeat: int
) -> tuple[list[Measurement], list[Measurement]]:
    """Measure both versions in turn; which one begins changes from one repetition to the next."""
    old: list[Measurement] = []
    new: list[Measurement] = []
    for number in range(repeat):
        turns = [(old, versions[0]), (new, versions[1])]
        for measurements, version in turns if number % 2 == 0 else reversed(turns):
            measurements.append(work(version))
        seconds = f"{old[-1].cpu:.4f} and {new[-1].cpu:.4f} CPU s, {old[-1].wall:.4f} and {new[-1].wall:.4f} s"
        print(f"{name}: {seconds}", file=sys.stderr, flush=True)
    return old, new


def run_job(version: Version, job: str, text: Path) -> Measurement:
    """Run a job of regression_jobs.py, which measures itself."""
    command = [version.python, "-P", str(JOBS), job, str(version.model), str(text)]
    return Measurement(**json.loads(run(command, version.folder).splitlines()[-1]))


def run_filter(version: Version, text: Path) -> Measurement:
    """Keep half of the lines of a text by the command line; the result is the number of bytes kept."""
    out = version.folder / "filtered.txt"
    out.unlink(missing_ok=True)
    command = [version.python, "-m", "chainrule", "filter", str(version.model), str(text)]
    usage, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run([*command, "--keep", "50%", "--by", "perplexity", "--out", str(out)], version.folder)
    wall, end = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = end.ru_utime + end.ru_stime - usage.ru_utime - usage.ru_stime
    return Measurement(cpu, wall, out.stat().st_size)


def run(command: list[str], folder: Path) -> str:
    """Run a process to its end and return its output; stop the benchmark if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def request(version: Version, path: str) -> Measurement:
    """Send requests to a new server; the result is the sum of log-probabilities, or the number of tokens."""
    with serving_process(version.model, python=version.python) as (url, process):
        messages = [message(url, path, body) for body in bodies(path, version.model.name)]
        asyncio.run(send(url, messages[:WARM_UP]))
        before, start = cpu_seconds(process.pid), time.perf_counter()
        results = asyncio.run(send(url, messages))
        return Measurement(cpu_seconds(process.pid) - before, time.perf_counter() - start, math.fsum(results))


async def send(url: str, messages: list[bytes]) -> list[float]:
    """Send all messages, each client its share over one connection; return a number for each response."""
    address = urlsplit(url)

    async def client(share: list[bytes]) -> list[float]:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        results = []
        for content in share:
            writer.write(content)
            results.append(response_figure(await read_response(reader)))
        writer.close()
        return results

    shares = [messages[first::CLIENTS] for first in range(CLIENTS)]
    async with asyncio.timeout(LIMIT):
        return [figure for figures in await asyncio.gather(*map(client, shares)) for figure in figures]


def response_figure(response: Any) -> float:
    """Return the log-probability of a score, or the number of tokens of a completion."""
    if "usage" in response and "choices" in response:
        return float(response["usage"]["completion_tokens"])
    return math.fsum(result["log_prob"] for result in response["results"])


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a running process and all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime, stime


def cells(old: list[Measurement], new: list[Measurement]) -> list[str]:
    """Format the row of a table."""
    cpu_old, cpu_new = ([m.cpu for m in measurements] for measurements in (old, new))
    wall_old, wall_new = (median(m.wall for m in measurements) for measurements in (old, new))
    return [
        *(f"{median(times):.3g}" for times in (cpu_old, cpu_new)),
        f"{median(cpu_new) / median(cpu_old):.2f}",
        f"{min(cpu_new) / min(cpu_old):.2f}",
        f"{max((max(times) - min(times)) / median(times) for times in (cpu_old, cpu_new)):.0%}",
        *(f"{seconds:.3g}" for seconds in (wall_old, wall_new)),
        f"{wall_new / wall_old:.2f}",
    ]


def differences(rows: dict[str, tuple[list[Measurement], list[Measurement]]]) -> list[str]:
    """Describe the rows in which the results of the versions differ."""
    return [
        f"{name}: the result is {new[0].result:g}, and was {old[0].result:g}"
        for name, (old, new) in rows.items()
        if not math.isclose(old[0].result, new[0].result, rel_tol=TOLERANCE)
    ]


if __name__ == "__main__":
    sys.exit(main())
