"""Words of the sentences of a file to be tagged."""

from pathlib import Path

from chainrule.text.conll import read_tagging_inputs


def read_words(source: str | Path, *, plain: bool | None = None) -> list[tuple[str, ...]]:
    return [words for sheet in read_tagging_inputs(source, plain=plain) for words in sheet.sentences]
