import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from chainrule.errors import InputError, MissingExtra
from chainrule.text.corpus import Corpus
from chainrule.text.readers import ROWS, Decoder, find_files, read_documents


def read(file: Path, column: str = "text", decoder: Decoder | None = None) -> list[str]:
    (text_file,) = find_files(file)
    return ["".join(document) for document in read_documents(text_file, column, decoder or Decoder())]


def write(file: Path, text: str) -> Path:
    file.write_text(text, newline="")
    return file


def write_table(file: Path, **columns: object) -> Path:
    parquet.write_table(pyarrow.table(columns), file)
    return file


def test_plain_text_is_one_document(tmp_path: Path) -> None:
    assert read(write(tmp_path / "text", "a\r\nb")) == ["a\r\nb"]


def test_json_lines_are_one_document_each(tmp_path: Path) -> None:
    records = '\ufeff{"text": "a\\nb", "n": 1}\r\n\n  \n{"n": 2, "text": ""}\n{"text": "\u2028\\ud83d\\ude00"}'
    assert read(write(tmp_path / "x.JSONL", records)) == [
        "a\nb",
        "\n",
        "\u2028😀",
    ]  # an empty text is one blank line
    assert read(write(tmp_path / "y.ndjson", '{"body": "a"}'), column="body") == ["a"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ('{"text": null}', "'text' is null, not a text"),
        ('{"text": 5}', "'text' is 5, not a text"),
        ('{"text": ["a"]}', "not a text"),
        ('{"body": "a", "id": 1}', "no column 'text'.*--column: body, id"),
        ("{}", r"no column 'text'.*\(none\)"),
        ('["text"]', "not a JSON object"),
        ('{"text": "a"', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"text": "\\ud800"}', "lone surrogate"),
    ],
)
def test_json_record_without_text_is_rejected_with_line_number(tmp_path: Path, record: str, message: str) -> None:
    file = write(tmp_path / "x.jsonl", f'{{"text": "fine"}}\n\n{record}\n')
    with pytest.raises(InputError, match=rf"x\.jsonl, line 3.*{message}"):
        read(file)


def test_replaced_json_surrogates_are_counted(tmp_path: Path) -> None:
    decoder = Decoder("replace")
    assert read(write(tmp_path / "x.jsonl", '{"text": "a\\ud800"}'), decoder=decoder) == ["a\ufffd"]
    assert decoder.replaced == 1


def test_parquet_rows_are_one_document_each(tmp_path: Path) -> None:
    texts = [f"row {row}\né" for row in range(3 * ROWS + 1)]
    file = write_table(tmp_path / "x.parquet", id=list(range(len(texts))), text=texts)
    assert read(file) == texts


@pytest.mark.parametrize(
    "kind",
    [pyarrow.large_string(), pyarrow.string_view(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())],
    ids=str,
)
def test_parquet_string_types_are_all_read(tmp_path: Path, kind: pyarrow.DataType) -> None:
    file = write_table(tmp_path / "x.parquet", body=pyarrow.array(["a", "é", "a"]).cast(kind))
    assert read(file, column="body") == ["a", "é", "a"]


def test_parquet_null_text_is_rejected_with_row_number(tmp_path: Path) -> None:
    file = write_table(tmp_path / "x.parquet", text=["a"] * ROWS + [None])
    with pytest.raises(InputError, match=rf"x\.parquet, row {ROWS + 1}: 'text' is null"):
        read(file)


def test_parquet_column_must_exist_and_hold_text(tmp_path: Path) -> None:
    file = write_table(tmp_path / "x.parquet", id=[1], body=["a"])
    with pytest.raises(InputError, match=r"x\.parquet has no column 'text'.*--column: id, body"):
        read(file)
    with pytest.raises(InputError, match=r"x\.parquet: the column 'id' contains int64"):
        read(file, column="id")


def test_invalid_utf8_in_parquet_is_rejected_or_counted(tmp_path: Path) -> None:
    stored = pyarrow.array([b"fine", b"a\xffb"], pyarrow.binary()).view(pyarrow.string())
    file = write_table(tmp_path / "x.parquet", text=stored)
    with pytest.raises(InputError, match=r"x\.parquet, row 2 is not UTF-8 at byte 1 "):
        read(file)
    decoder = Decoder("replace")
    assert read(file, decoder=decoder) == ["fine", "a\ufffdb"]
    assert decoder.replaced == 1


@pytest.mark.parametrize("part", [0, 0.5, 0.99])
def test_damaged_parquet_file_is_rejected(tmp_path: Path, part: float) -> None:
    file = write_table(tmp_path / "x.parquet", text=["a", "b"])
    stored = file.read_bytes()
    file.write_bytes(stored[: int(len(stored) * part)])
    with pytest.raises(InputError, match=r"x\.parquet cannot be read as Parquet"):
        read(file)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_table(tmp_path / "x.parquet", text=["a"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'chainrule\[data\]'"):
        read(file)


def test_highly_compressed_parquet_file_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainrule.text.readers.ALWAYS_ALLOWED", 1 << 20)
    file = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"text": ["x" * 10_000] * 1000}), file)
    with pytest.raises(InputError, match=r"t\.parquet contains more than 250 times .*--max-decompressed 2G$"):
        list(Corpus.of(file))
    monkeypatch.setenv("CHAINRULE_MAX_DECOMPRESSED", "10M")
    assert len(list(Corpus.of(file))) == 1000
