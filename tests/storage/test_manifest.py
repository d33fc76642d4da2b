"""Manifests: round trip, and errors for all other content."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.errors import ModelFileError
from chainrule.storage import verified_dir
from chainrule.storage.verified_dir import JSON, Entry, Manifest

SOURCE = Path("manifest.json")

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
FACTS: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
NAMES = st.lists(st.from_regex(r"[a-zé0-9_]{1,5}", fullmatch=True), min_size=1, max_size=3).map("/".join)
ENTRIES = st.builds(Entry, sha256=st.from_regex(r"[0-9a-f]{64}", fullmatch=True), size=st.integers(0))


def manifest_bytes(**fields: JSON) -> bytes:
    """A manifest of these fields with a valid digest, computed independently of the library."""
    content = {"format_version": 1, "files": {}} | fields
    return canonical(content | {"digest": hashlib.sha256(canonical(content)).hexdigest()})


def canonical(content: object) -> bytes:
    return (json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False) + "\n").encode()


@settings(deadline=None)  # no deadline: the machine may be busy
@given(
    st.dictionaries(TEXTS.map("fact {}".format), FACTS, max_size=4),
    st.dictionaries(NAMES, ENTRIES, max_size=4),
    st.data(),
)
def test_manifest_round_trips_and_any_flipped_bit_is_detected(
    facts: dict[str, JSON], files: dict[str, Entry], data: st.DataObject
) -> None:
    raw = verified_dir.serialize_manifest(Manifest(facts, files))
    assert verified_dir.parse_manifest(raw, SOURCE) == Manifest(facts, files)
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    changed = bytearray(raw)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ModelFileError, match=r"manifest\.json"):
        verified_dir.parse_manifest(bytes(changed), SOURCE)


def test_manifest_serialization_matches_the_format() -> None:
    written = verified_dir.serialize_manifest(Manifest({"text": "naïve", "seed": 7}, {"a/b": Entry("00", 3)}))
    assert written == manifest_bytes(text="naïve", seed=7, files={"a/b": {"sha256": "00", "size": 3}})


def test_manifest_rejects_facts_named_like_fields() -> None:
    with pytest.raises(AssertionError, match="name of a manifest field"):
        verified_dir.serialize_manifest(Manifest({"digest": "mine"}, {}))


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../up",
        "a/../../up",
        "a\\b",
        "C:up",
        "C:/x",
        "a//b",
        "./a",
        "a/",
        "..",
        ".",
        "",
        "a\0b",
    ],
)
def test_manifest_rejects_paths_outside_the_folder(name: str) -> None:
    with pytest.raises(ModelFileError, match="not a file inside the folder"):
        verified_dir.parse_manifest(manifest_bytes(files={name: {"sha256": "00", "size": 0}}), SOURCE)


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (2, "newer version of chainrule: upgrade"),
        (0, "version 0, .* retrain it"),
        (True, "version True"),
        ("1", "version '1'"),
        (None, "version None"),
    ],
)
def test_manifest_rejects_unknown_format_versions(version: JSON, reason: str) -> None:
    with pytest.raises(ModelFileError, match=reason):
        verified_dir.parse_manifest(manifest_bytes(format_version=version), SOURCE)


@pytest.mark.parametrize(
    "files",
    [None, [], {"a": None}, {"a": {"size": 0}}, {"a": {"sha256": 1, "size": 0}}, {"a": {"sha256": "00"}}],
)
def test_manifest_rejects_malformed_file_entries(files: JSON) -> None:
    with pytest.raises(ModelFileError, match=r"manifest\.json (lists no files|gives no sha256 and size for 'a')"):
        verified_dir.parse_manifest(manifest_bytes(files=files), SOURCE)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(b"", "not a manifest", id="empty"),
        pytest.param(b"[]\n", "not a JSON object", id="list"),
        pytest.param(b"\xff\xfe", "not a manifest", id="not UTF-8"),
        pytest.param(b'{"format_version": 1, "format_version": 1}', "duplicate key", id="duplicate"),
        pytest.param(b'{"format_version": 1, "seed": NaN}', "NaN is not JSON", id="NaN"),
        pytest.param(b'{"format_version": 1, "seed": 1e999}', "not a manifest", id="infinite"),
        pytest.param(b'{"format_version": 1, "seed": "\\ud800"}', "not a manifest", id="surrogate"),
        pytest.param(b'{"seed": ' + b"[" * 100_000, "not a manifest", id="deep"),
        pytest.param(b'{"format_version": 1}', "damaged or was edited", id="no digest"),
    ],
)
def test_manifest_rejects_invalid_json(raw: bytes, reason: str) -> None:
    with pytest.raises(ModelFileError, match=rf"manifest\.json .*{reason}"):
        verified_dir.parse_manifest(raw, SOURCE)


def test_manifest_rejects_noncanonical_json() -> None:
    content = json.loads(manifest_bytes(seed=7))
    verified_dir.parse_manifest(canonical(content), SOURCE)
    with pytest.raises(ModelFileError, match="damaged or was edited"):
        verified_dir.parse_manifest(json.dumps(content).encode(), SOURCE)
