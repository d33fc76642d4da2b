"""Benchmark corpora, description of the machine, and table formatting.

The data folder is CHAINRULE_DATA, or ../shared/data next to the repository.
"""

import os
import platform
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from chainrule.text.corpus import Corpus
from chainrule.tokenizers.tokenizer import split_words

ROOT: Final = Path(__file__).parents[1]
DATA: Final = Path(os.environ.get("CHAINRULE_DATA", ROOT.parent / "shared" / "data"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A corpus with training, validation and test files."""

    title: str
    folder: str
    pattern: str  # file name with `{}` for the split
    drop_blank_lines: bool = False

    def path(self, split: str) -> Path:
        """Return the file of `train`, `valid` or `test`."""
        return DATA / self.folder / self.pattern.format(split)

    def corpus(self, split: str, collapsed: bool = False) -> Corpus:
        """Return a split as a corpus; `collapsed` normalizes white space for all tokenizers."""
        corpus = Corpus.of(str(self.path(split)), drop_blank_lines=self.drop_blank_lines)
        return Corpus.from_lines([" ".join(split_words(line)) for line in corpus]) if collapsed else corpus


BENCHMARKS: Final = {
    "ptb": Benchmark(title="Penn Treebank", folder="ptb", pattern="ptb.{}.txt"),
    "wikitext2": Benchmark(title="WikiText-2", folder="wikitext2", pattern="wiki.{}.tokens", drop_blank_lines=True),
}


def chosen(name: str) -> dict[str, Benchmark]:
    """Return one benchmark by name, or all of them."""
    return BENCHMARKS if name == "all" else {name: BENCHMARKS[name]}


def machine() -> str:
    """Describe processor, cores, memory, Python version and date."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{_processor()}, {cores} cores, {memory:.0f} GiB; {python}; {date.today().isoformat()}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Format a Markdown table with right-aligned numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def _processor() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.machine()
