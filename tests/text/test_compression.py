import bz2
import gzip
import io
import lzma
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from chainrule.errors import ConfigError, InputError, MissingExtra
from chainrule.text import readers
from chainrule.text.readers import BLOCK, InputStream, TextFile, find_files, read_blocks

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
TEXT = b"".join(b"%d bottles\n" % random.Random(0).randrange(i + 1) for i in range(20_000))


def unpack(file: Path) -> bytes:
    (text_file,) = find_files(file)
    blocks = list(read_blocks(text_file))
    assert all(len(block) == BLOCK for block in blocks[:-1])
    assert all(blocks)
    return b"".join(blocks)


@pytest.mark.parametrize("suffix", PACKINGS)
@pytest.mark.parametrize("name", ["text.txt", "text", "text.gz"])
def test_compression_is_detected_by_magic_bytes(tmp_path: Path, suffix: str, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(PACKINGS[suffix](TEXT))
    assert unpack(file) == TEXT


@pytest.mark.parametrize("suffix", PACKINGS)
def test_concatenated_compressed_streams_are_joined(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"text{suffix}"
    pack = PACKINGS[suffix]
    file.write_bytes(pack(b"one\n") + pack(b"") + pack(TEXT) + bytes(64) + pack(b"two\n") + bytes(4096))
    assert unpack(file) == b"one\n" + TEXT + b"two\n"


@pytest.mark.parametrize("level", range(1, 10))
def test_bzip2_is_detected_at_every_block_size(tmp_path: Path, level: int) -> None:
    file = tmp_path / "text"
    file.write_bytes(bz2.compress(TEXT, level))
    assert unpack(file) == TEXT


def test_plain_text_starting_with_bzip2_magic_is_text(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(b"BZh9 is how bzip2 files begin\n")
    assert unpack(file) == b"BZh9 is how bzip2 files begin\n"


def test_zstd_skippable_frames_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "text.zst"
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"abcd"
    file.write_bytes(skippable + zstandard.compress(TEXT) + skippable)
    assert unpack(file) == TEXT


@pytest.mark.parametrize("suffix", PACKINGS)
@pytest.mark.parametrize("part", [0.0, 0.0001, 0.1, 0.5, 0.9, 0.99999])
def test_truncated_compressed_file_is_rejected(tmp_path: Path, suffix: str, part: float) -> None:
    packed = PACKINGS[suffix](TEXT)
    file = tmp_path / f"text{suffix}"
    file.write_bytes(packed[: int(len(packed) * part)])
    with pytest.raises(InputError, match=rf"text{suffix} .*(cut short|damaged).*again"):
        unpack(file)


@pytest.mark.parametrize("suffix", PACKINGS)
def test_flipped_bit_in_compressed_file_is_rejected(tmp_path: Path, suffix: str) -> None:
    packed = bytearray(PACKINGS[suffix](TEXT))
    packed[len(packed) // 2] ^= 4
    file = tmp_path / f"text{suffix}"
    file.write_bytes(packed)
    with pytest.raises(InputError, match=rf"text{suffix} is damaged"):
        unpack(file)


@pytest.mark.parametrize("suffix", PACKINGS)
@pytest.mark.parametrize("stored", [b"plain text\n", b""])
def test_compression_suffix_without_compressed_content_is_rejected(
    tmp_path: Path, suffix: str, stored: bytes
) -> None:
    file = tmp_path / f"text{suffix}"
    file.write_bytes(stored)
    with pytest.raises(InputError, match=rf"text{suffix} is"):
        unpack(file)


@pytest.mark.parametrize("suffix", PACKINGS)
def test_trailing_bytes_after_compressed_data_are_rejected(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"text{suffix}"
    file.write_bytes(PACKINGS[suffix](TEXT) + b"more of it, unpacked")
    with pytest.raises(InputError, match=rf"text{suffix} is damaged"):
        unpack(file)


def test_zstd_without_its_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "text.zst"
    file.write_bytes(zstandard.compress(TEXT))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtra, match=r"pip install 'chainrule\[data\]'"):
        unpack(file)


def test_file_removed_before_reading_is_named(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(TEXT)
    (text_file,) = find_files(file)
    file.unlink()
    with pytest.raises(InputError, match=r"text cannot be read: No such file"):
        list(read_blocks(text_file))


def bomb(suffix: str, size: int) -> bytes:
    return PACKINGS[suffix](bytes([10]) * size)


@pytest.mark.parametrize("suffix", PACKINGS)
def test_decompression_bomb_is_rejected_naming_the_option(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "ALWAYS_ALLOWED", 1 << 20)
    file = tmp_path / f"text{suffix}"
    file.write_bytes(bomb(suffix, 8 << 20))
    blocks: list[bytes] = []
    with pytest.raises(InputError, match=rf"text{suffix} contains more than 250 times .*--max-decompressed 2G$"):
        blocks.extend(read_blocks(find_files(file)[0]))
    assert not blocks  # rejected before any block is yielded
    monkeypatch.setenv("CHAINRULE_MAX_DECOMPRESSED", "8M")
    assert len(unpack(file)) == 8 << 20
    monkeypatch.setenv("CHAINRULE_MAX_DECOMPRESSED", "5M")
    with pytest.raises(
        InputError, match=r"contains more than 5,242,880 bytes, the limit set with --max-decompressed"
    ):
        unpack(file)


def test_decompression_limit_allows_normal_ratios_and_small_files(tmp_path: Path) -> None:
    limit = readers.DecompressionLimit("text.gz")
    limit.check(1, 4 << 20)
    limit.check(1 << 20, 250 << 20)
    with pytest.raises(InputError):
        limit.check(1 << 20, (250 << 20) + 1)
    with pytest.raises(InputError):
        limit.check(1, (4 << 20) + 1)


def test_invalid_decompression_limit_is_a_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAINRULE_MAX_DECOMPRESSED", "much")
    with pytest.raises(ConfigError, match="--max-decompressed is 'much'; write it as 512M"):
        readers.DecompressionLimit("text.gz")


@pytest.mark.parametrize("suffix", PACKINGS)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_stream_is_decompressed_incrementally(suffix: str, step: int) -> None:
    packed = PACKINGS[suffix](TEXT[:5000])
    assert b"".join(read_blocks(TextFile(Path("-"), "standard input", 0, Drops(packed, step)))) == TEXT[:5000]


@pytest.mark.parametrize("text", [b"", b"(", b"(a)\n", b"B\n", b"\x1f", b"BZ", b"plain\n"])
@pytest.mark.parametrize("step", [1, 100])
def test_first_bytes_of_a_stream_are_not_lost(text: bytes, step: int) -> None:
    assert b"".join(read_blocks(TextFile(Path("-"), "standard input", 0, Drops(text, step)))) == text


class Drops(InputStream):
    """A stream that returns at most `step` bytes per read."""

    def __init__(self, data: bytes, step: int) -> None:
        super().__init__(io.BytesIO(data))
        self.step = step

    def read(self, size: int = -1) -> bytes:
        return super().read(min(size, self.step) if size > 0 else self.step)
