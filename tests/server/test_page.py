"""Files of the web page: complete, self-contained, and no path traversal."""

import re

import pytest
from starlette.testclient import TestClient

from chainrule.server.page import FOLDER, MEDIA_TYPES, passages

FILES = sorted(path.name for path in FOLDER.iterdir())


def test_page_references_only_its_own_files(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    named = re.findall(r'(?:src|href)="([^"]*)"', answer.text)
    assert named
    for item in named:
        assert item.startswith(("/page/", "#"))
        if item.startswith("/page/"):
            assert client.get(item).status_code == 200
    assert not re.search(
        r"<script(?! type=\"module\" src)|style=|\son[a-z]+=", answer.text
    )  # as the policy requires


def test_page_supports_head_requests(client: TestClient) -> None:
    for path in ("/", "/page/style.css"):
        answer, whole = client.head(path), client.get(path)
        assert answer.status_code == 200
        for name in ("content-type", "content-length"):
            assert answer.headers[name] == whole.headers[name]
    assert client.head("/page/nothing.js").status_code == 404


@pytest.mark.parametrize("name", FILES)
def test_every_page_file_has_its_media_type_and_is_small(client: TestClient, name: str) -> None:
    answer = client.get(f"/page/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == MEDIA_TYPES[f".{name.rpartition('.')[2]}"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert len(answer.text.splitlines()) <= 300


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith((".js", ".css", ".html"))])
def test_page_files_load_nothing_external_and_write_no_markup(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    outside = re.sub(r'"http://www\.w3\.org/2000/svg"', "", text)  # a namespace, not a request
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", outside)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)


@pytest.mark.parametrize("name", ["../page.py", "..%2fpage.py", "%2e%2e/keys.py", "nothing.js", "style.css/"])
def test_no_other_file_is_served(client: TestClient, name: str) -> None:
    answer = client.get(f"/page/{name}", follow_redirects=False)
    assert answer.status_code in (307, 404)
    assert "import" not in answer.text


def test_passage_is_a_plain_sentence(client: TestClient) -> None:
    text = client.get("/page/passage").json()["text"]
    assert text in passages()
    assert re.fullmatch(r"[A-Z][a-zA-Z ,]+\.", text)
    assert 40 <= len(text) <= 200


def test_page_is_not_in_the_openapi_description(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert "/v1/beam" in paths
    assert "/v1/context" in paths
    assert not [path for path in paths if path.startswith("/page") or path == "/"]
