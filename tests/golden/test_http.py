"""What `chainrule serve` answers over HTTP, as recorded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from golden.recorded import FOLDERS, GOLDEN, NGRAM, check, check_names
from golden.transcripts import KEY, TRANSCRIPTS, served, transcript

HTTP: Final = GOLDEN / "http"


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, int]]:
    """The port of a server without a key, and of one with a key."""
    key_file: Path = tmp_path_factory.mktemp("key") / "key.txt"
    key_file.write_text(f"{KEY}\n")
    key_file.chmod(0o600)
    models = str(FOLDERS / "ngram"), str(FOLDERS / "ngram-bpe")
    with served(*models) as plain, served(models[0], "--api-key-file", str(key_file)) as with_key:
        yield {False: plain, True: with_key}


def test_http_responses_equal_the_records(ports: dict[bool, int]) -> None:
    for name, request in TRANSCRIPTS.items():
        check(HTTP / f"{name}.txt", transcript(request, ports[request.has_key]), NGRAM)
    check_names(HTTP, {f"{name}.txt" for name in TRANSCRIPTS})
