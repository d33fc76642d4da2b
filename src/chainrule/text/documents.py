"""Read the documents of a file: a whole plain text, or the text column of JSON Lines, Parquet, CSV and TSV records.

Plain text is streamed; records are read into memory one at a time, `ROWS` at a time from Parquet.
"""

import csv
import json
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

from chainrule.errors import ChainruleWarning, InputError, MissingExtra, UsageError
from chainrule.text.compression import SUFFIXES, DecompressionLimit, read_blocks
from chainrule.text.files import TextFile
from chainrule.text.lines import cut_lines, join_lines
from chainrule.text.utf8 import Decoder

ROWS: Final = 64
TEXT: Final = "text"
"""Default text column of a record."""
TABLES: Final = (".csv", ".tsv")
LARGEST_CELL: Final = 1 << 26
"""Characters; an unclosed quote makes one cell of the rest of a file."""

Document = Iterable[str]  # text in chunks


def read_documents(file: TextFile, column: str | None, decoder: Decoder) -> Iterator[Document]:
    """Yield the documents of a file; `column` is the text column of records (default `text`).

    A CSV or TSV file is a table if a column is named, else plain text.
    """
    kind = file_format(file)
    if kind == "json":
        yield from _read_json_lines(file, column or TEXT, decoder)
    elif kind == "parquet":
        yield from _read_parquet(file, column or TEXT, decoder)
    elif kind == "table" and column is not None:
        yield from _read_table(file, column, decoder)
    else:
        yield decoder.decode_blocks(read_blocks(file), file.name)


def file_format(file: TextFile) -> Literal["json", "parquet", "table", "plain"]:
    """Return the format of a file by its name."""
    name = file.path.name.lower()
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    if name.endswith((".jsonl", ".ndjson")):
        return "json"
    if name.endswith(".parquet"):
        return "parquet"
    return "table" if name.endswith(TABLES) else "plain"


def check_column(file: TextFile, column: str | None, expects_lines: bool) -> None:
    """Raise if a column of plain text is named; warn if a table is read as lines."""
    kind = file_format(file)
    if kind == "plain" and column is not None:
        raise UsageError(
            f"{file.name} is plain text and has no column {column!r}; leave out --column, "
            "or name a .csv, .tsv, .jsonl or .parquet file"
        )
    if kind == "table" and column is None and expects_lines:
        warnings.warn(
            f"{file.name} is read as lines of text, header and quotes included; --column NAME reads one column",
            ChainruleWarning,
            stacklevel=4,
        )


def _read_table(file: TextFile, column: str, decoder: Decoder) -> Iterator[Document]:
    """Yield the cells of one column of a CSV or TSV file with a header, quoted as in the csv module."""
    csv.field_size_limit(LARGEST_CELL)
    lines = (f"{line}\n" for line in join_lines(cut_lines(decoder.decode_blocks(read_blocks(file), file.name))))
    header = next(lines, "")
    names, delimiter = _header(header, column, file)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for row in rows:
            where = f"{file.name}, line {rows.line_num + 1}"
            if row and len(row) != len(names):
                raise InputError(
                    f"{where} has {len(row)} cells but the header has {len(names)}; quote or correct it"
                )
            if row:
                yield [decoder.check(row[names.index(column)], where) or "\n"]
    except csv.Error as error:
        where = f"{file.name}, line {rows.line_num + 1}"
        raise InputError(f"{where} is not a table row ({error}); correct its quotes") from None


def _header(line: str, column: str, file: TextFile) -> tuple[list[str], str]:
    """Return the column names and the delimiter: comma or semicolon, or tab in a TSV file."""
    is_tsv = ".tsv" in file.path.name.lower()
    names: list[str] = []
    for delimiter in ("\t",) if is_tsv else (",", ";"):
        try:
            cells = [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, strict=True), [])]
        except csv.Error as error:
            raise InputError(f"{file.name}, line 1 is not a header ({error}); correct its quotes") from None
        names = names or cells
        if cells.count(column) == 1:
            return cells, delimiter
    if column in names:
        raise InputError(f"{file.name} has {names.count(column)} columns {column!r}; give each a different name")
    raise InputError(_missing(file.name, column, names))


def _read_json_lines(file: TextFile, column: str, decoder: Decoder) -> Iterator[Document]:
    lines = join_lines(cut_lines(decoder.decode_blocks(read_blocks(file), file.name)))
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{file.name}, line {number}"
            yield [decoder.check(_find_text(line, column, where), where) or "\n"]  # an empty text is one line


def _find_text(line: str, column: str, where: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON ({error}); each line must be one JSON object") from None
    if not isinstance(record, dict):
        raise InputError(f"{where} is not a JSON object; each line must be one, with its text as {column!r}")
    if column not in record:
        raise InputError(_missing(where, column, list(record)))
    if not isinstance(text := record[column], str):
        raise InputError(f"{where}: {column!r} is {json.dumps(text)[:40]}, not a text; correct or drop the record")
    return text


def _read_parquet(file: TextFile, column: str, decoder: Decoder) -> Iterator[Document]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra("reading Parquet needs pyarrow: pip install 'chainrule[data]'") from None
    # With a buffer and no pre-buffering, pages are read one at a time instead of a row group.
    options = {"pre_buffer": False, "buffer_size": 1 << 16, "page_checksum_verification": True}
    try:
        with parquet.ParquetFile(file.path, **options) as table:
            _check_column(table.schema_arrow, column, file.name)
            batches = table.iter_batches(ROWS, columns=[column])
            values = (value for batch in batches for value in _as_bytes(batch.column(0)))
            limit, size = DecompressionLimit(file.name), 0
            for number, value in enumerate(values, start=1):
                where = f"{file.name}, row {number}"
                if value is None:
                    raise InputError(f"{where}: {column!r} is null, not a text; correct or drop the row")
                size += len(value)
                limit.check(file.size, size)
                yield [decoder.decode_document(value, where) or "\n"]
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{file.name} cannot be read as Parquet ({error}); fetch or write it again") from error


def _as_bytes(texts: Any) -> list[bytes | None]:
    """Return the stored bytes of an Arrow string array, which may be invalid UTF-8."""
    import pyarrow

    stored: list[bytes | None] = texts.cast(pyarrow.large_binary()).to_pylist()
    return stored


def _check_column(schema: Any, column: str, name: str) -> None:
    from pyarrow import types

    if column not in schema.names:
        raise InputError(_missing(name, column, schema.names))
    kind = schema.field(column).type
    values = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(values) or types.is_large_string(values) or types.is_string_view(values)):
        raise InputError(f"{name}: the column {column!r} holds {kind}, not text; name another with --column")


def _missing(where: str, column: str, columns: list[str]) -> str:
    return f"{where} has no column {column!r}; name one of these with --column: {', '.join(columns) or '(none)'}"
