import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.errors import InputError
from chainrule.text.readers import Decoder


def blocks_of(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def count_sequences(data: bytes) -> int:
    """Number of invalid sequences that Python's codec reports."""
    errors: list[UnicodeError] = []

    def record_error(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        errors.append(error)
        return "\ufffd", error.end

    codecs.register_error("count-sequences", record_error)
    data.decode("utf-8", "count-sequences")
    return len(errors)


# Mostly bytes that begin, continue or break a sequence, including the byte order mark and U+FFFD.
awkward = st.lists(st.sampled_from([b"a", b"\xef", b"\xbb", b"\xbf", b"\xbd", b"\xf0\x9f", b"\x98\x80"])).map(
    b"".join
)


@given(data=awkward | st.binary(), size=st.integers(1, 5))
def test_decoding_does_not_depend_on_block_size(data: bytes, size: int) -> None:
    decoder = Decoder("replace")
    text = "".join(decoder.decode_blocks(blocks_of(data, size), "file"))
    assert text == data.decode("utf-8", "replace").removeprefix("\ufeff")
    assert decoder.replaced == count_sequences(data)


@given(data=awkward | st.binary(), size=st.integers(1, 5))
def test_invalid_byte_offset_counts_from_the_file_start(data: bytes, size: int) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        with pytest.raises(InputError, match=rf"^file is not UTF-8 at byte {error.start} \("):
            list(Decoder().decode_blocks(blocks_of(data, size), "file"))
    else:
        assert "".join(Decoder().decode_blocks(blocks_of(data, size), "file")) == data.decode().removeprefix(
            "\ufeff"
        )


def test_decode_document_keeps_the_bom_and_names_its_source() -> None:
    assert Decoder().decode_document(b"\xef\xbb\xbfa", "file, row 1") == "\ufeffa"
    with pytest.raises(InputError, match=r"^file, row 2 is not UTF-8 at byte 1 \(0xff\); .*--errors replace"):
        Decoder().decode_document(b"a\xff", "file, row 2")


def test_lone_surrogates_are_rejected_or_replaced_and_counted() -> None:
    with pytest.raises(InputError, match=r"line 3 contains the lone surrogate U\+D800.*--errors replace"):
        Decoder().check("a\ud800", "line 3")
    decoder = Decoder("replace")
    assert decoder.check("a\ud800b\udfff\ufffd", "line 3") == "a\ufffdb\ufffd\ufffd"
    assert decoder.replaced == 2
