"""Replace what differs between two runs of the same code by placeholders: times, speeds, dates, versions."""

import re
from typing import Final

_VERSIONS: Final = "chainrule|numpy|python|tokenizers|torch"
_MEASURED: Final = (
    "seconds|train_seconds|total_seconds|tokens_per_second|train_tokens_per_second|peak_memory_bytes|"
    "words_per_second|pairs_per_second|counting_seconds|created"
)
_NUMBER: Final = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"

REPLACEMENTS: Final = (
    # "seconds": 0.12 in JSON; seconds   0.12 in a table of `evaluate`.
    (re.compile(rf'("(?:{_MEASURED})": ?)(?:{_NUMBER}|null|"[^"]*")'), r'\1"<measured>"'),
    (re.compile(rf"^( *(?:{_MEASURED}) +)\S+$", re.MULTILINE), r"\1<measured>"),
    (re.compile(rf"^(\| (?:{_MEASURED}) \| )\S+( \|)$", re.MULTILINE), r"\1<measured>\2"),  # the model card
    (re.compile(rf'("(?:{_VERSIONS})": ?)"\d[^"]*"'), r'\1"<version>"'),
    (re.compile(rf"^(  (?:{_VERSIONS}) +)\d\S*$", re.MULTILINE), r"\1<version>"),
    (re.compile(r',\s*"torch": ?"<version>"'), ""),  # listed only if torch has been imported in this process
    (re.compile(r'("version": ?)"\d+\.\d+[^"]*"'), r'\1"<version>"'),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)"), "<date>"),
    (re.compile(r"^((?:Made by )?chainrule )\d+\.\d+\.\d+", re.MULTILINE), r"\1<version>"),
    (re.compile(rf"(?<![\w.]){_NUMBER} s in all"), "<seconds> s in all"),
    (re.compile(rf"(?<![\w.]){_NUMBER} s, (\d+ cut off)"), r"<seconds> s, \1"),  # `translate evaluate`
    (re.compile(r"(?<![\w.,])[\d,]+ words/s"), "<speed> words/s"),
    (re.compile(rf"( bits per byte, ){_NUMBER} s$", re.MULTILINE), r"\1<seconds> s"),
    # The column `sec` of the table of `compare`, behind the size.
    (re.compile(r"(\d (?:B|kB|MB)) +\d+(?:\.\d+)? "), r"\1 <seconds> "),
    # The id of a completion.
    (re.compile(r'("id": ?)"cmpl-[^"]+"'), r'\1"<id>"'),
)


def normalize(text: str) -> str:
    """Return the text with a placeholder for every value that depends on the run, the machine or a version."""
    for pattern, replacement in REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text
