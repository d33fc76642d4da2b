"""Server application: names, lazy loading, keys, hosts, headers, errors, log."""

import asyncio
import hmac
import json
import logging
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from chainrule import api
from chainrule.errors import ConfigError, InputError, ModelFileError, NotFoundError, UsageError
from chainrule.server.app import create_app
from chainrule.server.errors import ApiError, Limits
from chainrule.server.logs import JsonLines
from chainrule.server.middleware import read_key
from chainrule.server.models import ModelRegistry, assign_names
from server.conftest import LOCAL
from server.faulty_app import create_faulty_app


def error_of(response: Any, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    document = response.json()
    assert list(document) == ["error"]
    assert list(document["error"]) == ["message", "type", "param", "code"]
    return dict(document["error"])


def test_health_and_models(client: TestClient, ngram_folder: Path) -> None:
    assert client.get("/health").json()["status"] == "ok"
    listed = client.get("/v1/models").json()
    created = int(ngram_folder.stat().st_mtime)
    assert listed == {
        "object": "list",
        "data": [{"id": "ngram", "object": "model", "created": created, "owned_by": "chainrule"}],
    }
    assert client.get("/v1/models/ngram").json() == listed["data"][0]
    error = error_of(client.get("/v1/models/other"), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert "ngram" in error["message"]


def test_models_are_listed_although_a_folder_was_removed(ngram_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    shutil.copytree(ngram_folder, folder)
    with TestClient(create_app([ngram_folder, folder]), base_url=LOCAL) as client:
        listed = client.get("/v1/models").json()
        shutil.rmtree(folder)
        assert client.get("/v1/models").json() == listed
        assert client.get("/v1/models/moved").json() == listed["data"][1]
        error = error_of(client.post("/v1/completions", json={"model": "moved"}), 503)
        assert error["code"] == "model_not_loaded"


def test_folders_of_the_same_name_are_distinguished_by_parent(tmp_path: Path) -> None:
    for place in ("a/ngram", "b/ngram", "c/a/ngram"):
        (tmp_path / place).mkdir(parents=True)
    names = assign_names([tmp_path / "a/ngram", tmp_path / "b/ngram", tmp_path / "c/a/ngram"])
    assert list(names) == ["ngram", "b/ngram", "a/ngram"]
    with pytest.raises(UsageError, match="given twice"):
        assign_names([tmp_path / "a/ngram", tmp_path / "b/../a/ngram"])
    with pytest.raises(NotFoundError, match="no model folder"):
        assign_names([tmp_path / "nothing"])
    with pytest.raises(UsageError, match="no model to serve"):
        assign_names([])


def test_limits_must_be_positive() -> None:
    with pytest.raises(ConfigError, match=r"limits.rows is 0"):
        Limits(rows=0)


def test_model_is_loaded_once_for_concurrent_requests(ngram_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[object] = []
    real, gate = api.load, threading.Event()

    def load(folder: Path, **options: Any) -> Any:
        loads.append(folder)
        gate.wait(5)
        return real(folder, **options)

    monkeypatch.setattr(api, "load", load)

    async def ask() -> None:
        registry = ModelRegistry([ngram_folder])
        assert loads == []  # nothing is read before it is requested
        impatient = asyncio.create_task(registry.get(None))
        others = [asyncio.create_task(registry.get(name)) for name in ("ngram", None, "ngram")]
        while not loads:
            await asyncio.sleep(0)
        impatient.cancel()  # the first is cancelled, the others are served
        gate.set()
        loaded_models = await asyncio.gather(*others)
        assert loaded_models[0] is loaded_models[1] is loaded_models[2] is await registry.get("ngram")
        assert loaded_models[0].model.family == "ngram"
        await registry.close()

    asyncio.run(ask())
    assert len(loads) == 1


def test_failed_model_load_is_reported_and_retried(
    ngram_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, failures = api.load, [ModelFileError("/home/secret/model.ngram is cut short")]

    def load(folder: Path, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(folder, **options)

    monkeypatch.setattr(api, "load", load)

    async def ask() -> None:
        registry = ModelRegistry([ngram_folder])
        with pytest.raises(ApiError, match="cannot be loaded; the server's log says why") as caught:
            await registry.get("ngram")
        assert caught.value.status == 503
        assert (await registry.get("ngram")).name == "ngram"
        await registry.close()

    asyncio.run(ask())
    assert "model.ngram is cut short" in caplog.text


def test_unknown_paths_and_methods_are_rejected(client: TestClient) -> None:
    assert error_of(client.get("/nothing"), 404)["code"] == "not_found"
    response = client.post("/health")
    assert error_of(response, 405)["type"] == "invalid_request_error"
    assert response.headers["allow"] == "GET"
    assert client.get("/docs").status_code == 404  # it would load scripts from outside


def test_route_errors_are_json(ngram_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    app, _ = create_faulty_app(ngram_folder)
    with TestClient(app, base_url=LOCAL) as client:
        assert "cannot be read" in error_of(client.get("/refused"), 400)["message"]
        error = error_of(client.get("/broken"), 500)
        assert error["type"] == "server_error"
        assert "secret" not in json.dumps(error)
    assert "ValueError at" in caplog.text
    assert "faulty_app.py" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"number": "5"}, "number", "valid integer"),
        ({"number": 5.5}, "number", "valid integer"),
        ({"number": True}, "number", "valid integer"),
        ({"prompt": [1, "2"]}, "prompt", "valid integer"),
        ({"colour": 1}, "colour", "there is no field 'colour'"),
        ({"inner": {"name": "a", "shape": 1}}, "inner.shape", "there is no field 'inner.shape'"),
        ({"inner": {"name": 1}}, "inner.name", "valid string"),
        ({"x" * 1000: 1}, "x" * 80, "there is no field"),
    ],
)
def test_invalid_field_is_named(ngram_folder: Path, body: dict[str, Any], param: str, says: str) -> None:
    app, _ = create_faulty_app(ngram_folder)
    with TestClient(app, base_url=LOCAL) as client:
        error = error_of(client.post("/try", json=body), 400)
        assert error["param"] == param
        assert says in error["message"]
        assert len(error["message"]) < 500


def test_api_key_is_required(ngram_folder: Path) -> None:
    with TestClient(create_app([ngram_folder], api_key="s3cret"), base_url=LOCAL) as client:
        response = client.get("/v1/models")
        assert error_of(response, 401)["code"] == "invalid_api_key"
        assert response.headers["www-authenticate"] == "Bearer"
        for wrong in ("Bearer s3cre", "Bearer s3crets", "Basic s3cret", "s3cret", "Bearer", "Bearer \u00e9"):
            assert client.get("/v1/models", headers={b"Authorization": wrong.encode()}).status_code == 401, wrong
        assert client.get("/v1/models", headers={"Authorization": "Bearer s3cret"}).status_code == 200
        assert client.get("/health").status_code == 200
        assert client.get("/").status_code == 200
        assert client.post("/v1/completions", json={}).status_code == 401
        assert client.get("/openapi.json").status_code == 401


def test_api_keys_are_compared_in_constant_time(ngram_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    with TestClient(create_app([ngram_folder], api_key="s3cret"), base_url=LOCAL) as client:
        for key in ("x", "s3creT"):
            client.get("/v1/models", headers={"Authorization": f"Bearer {key}"})
    assert compared == [(b"x", b"s3cret"), (b"s3creT", b"s3cret")]


def test_api_key_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("s3cret\n")
    path.chmod(0o600)
    assert read_key(path) == "s3cret"
    path.chmod(0o644)
    with pytest.warns(UserWarning, match="can be read by others; chmod 600"):
        read_key(path)
    for bad in ("", "\n", "two words\n", "schlüssel\n", "two\nlines\n"):
        path.write_text(bad)
        with pytest.raises(InputError, match="contains no valid API key"):
            read_key(path)
    with pytest.raises(NotFoundError, match="there is no file"):
        read_key(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("[::1]", 200),
        ("LOCALHOST", 200),
        ("evil.example", 400),
        ("localhost.evil.example:80", 400),
        ("evil.example:127.0.0.1", 400),
        ("", 400),
    ],
)
def test_unknown_host_names_are_rejected(client: TestClient, host: str, status: int) -> None:
    assert client.get("/health", headers={"Host": host}).status_code == status


def test_every_response_has_security_headers(client: TestClient) -> None:
    for response in (client.get("/health"), client.get("/nothing"), client.get("/health", headers={"Host": "x"})):
        assert "default-src 'self'" in response.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in response.headers


def test_log_has_each_request_without_its_text(ngram_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    app, _ = create_faulty_app(ngram_folder)
    with caplog.at_level(logging.INFO, "chainrule.server"), TestClient(app, base_url=LOCAL) as client:
        client.post("/try?private=1", json={"prompt": "a private word"})
        client.post("/try", json={"private": "a private word"})
    lines = [JsonLines().format(record) for record in caplog.records if record.name == "chainrule.server"]
    first, second = (json.loads(line) for line in lines)
    assert (first["method"], first["path"], first["status"]) == ("POST", "/try", 200)
    assert second["status"] == 400
    assert first["milliseconds"] >= 0
    assert "private" not in "".join(lines)
    assert first["time"].endswith("+00:00")


def test_openapi_description_has_no_422(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    for path, operations in described["paths"].items():
        for operation in operations.values():
            assert "422" not in operation["responses"], path
            assert "default" in operation["responses"], path
    assert "/v1/models" in described["paths"]
