"""`chainrule serve` as run by a shell: address, signals, errors."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import chainrule
from chainrule.applications.convert import split_model
from chainrule.errors import NotFoundError
from chainrule.server import http
from chainrule.server.app import create_app
from cli.command import ENTRY, call
from server.running_server import (
    TIMEOUT_SECONDS,
    RunningServer,
    get,
    post,
    read_until_closed,
    run_server,
    wait_until,
)
from server.test_faults import is_served


@contextmanager
def serving_process(
    *arguments: object, descriptors: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], RunningServer]]:
    """The command in a separate process, once it has printed its address."""
    command = [ENTRY, "serve", *map(str, arguments), "--port", "0"]
    if descriptors is not None:
        command = ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh", *map(str, command)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), address
            yield process, RunningServer(int(address.rpartition(":")[2]))
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_stops_the_server_after_running_requests(ngram_folder: Path, number: int, status: int) -> None:
    long = b'{"model": "ngram", "prompt": "the", "max_tokens": 400, "stop": ["\\u0000"], "n": 8}'
    with serving_process(ngram_folder) as (process, server):
        assert server.is_healthy()
        with server.connect() as asking, server.connect() as idle:
            asking.sendall(post("/v1/completions", long))
            assert server.is_healthy()  # earlier bytes have been read
            process.send_signal(number)
            response = read_until_closed(asking)
            assert response.status == 200
            assert idle.recv(1) == b""
        assert process.wait(TIMEOUT_SECONDS) == status
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        assert process.stderr is not None
        log_lines = process.stderr.read().splitlines()
    assert log_lines[0] == "serving ngram; stop with Ctrl-C"
    assert log_lines[-1] == "stopped"
    lines = [json.loads(line) for line in log_lines if line.startswith("{")]
    models = {line["path"]: line.get("model") for line in lines}
    assert models == {"/health": None, "/v1/completions": "ngram"}
    assert not any("Traceback" in line for line in log_lines)


def test_quiet_server_with_an_api_key(ngram_folder: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    key.chmod(0o600)
    with serving_process(ngram_folder, "--quiet", "--api-key-file", key) as (process, server):
        assert server.ask(get("/v1/models")).status == 401
        assert server.ask(get("/v1/models", "Authorization: Bearer s3cret")).status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 143
        assert process.stderr is not None
        assert process.stderr.read().splitlines() == ["serving ngram; stop with Ctrl-C", "stopped"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_public_host_requires_a_key_or_a_flag(ngram_folder: Path, host: str) -> None:
    outcome = call("serve", ngram_folder, "--host", host)
    assert outcome.status == 2
    assert "--api-key-file FILE, or --allow-public" in outcome.err
    assert len(outcome.err.splitlines()) == 2
    assert outcome.out == ""


@pytest.mark.parametrize("option", ["--allow-public", "--api-key-file"])
def test_public_host_is_allowed_with_a_key_or_flag(
    ngram_folder: Path, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    key.chmod(0o600)
    served: list[object] = []
    monkeypatch.setattr(http, "run", lambda app, listener, limits: served.append(listener.close()))
    arguments = [option] if option == "--allow-public" else [option, str(key)]
    outcome = call("serve", ngram_folder, "--host", "0.0.0.0", "--port", "0", *arguments)
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("http://127.0.0.1:")  # an address that a browser can open
    assert outcome.err == "serving ngram on all addresses of this machine (0.0.0.0); stop with Ctrl-C\n"
    assert len(served) == 1


def test_port_in_use_is_reported_in_two_lines(ngram_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        outcome = call("serve", ngram_folder, "--port", port)
    assert outcome.status == 1
    assert outcome.err.splitlines() == [
        f"error: port {port} of 127.0.0.1 is in use;",
        "choose another with --port, or 0 for any that is free",
    ]


def test_sigterm_without_grace_ends_requests_with_a_quiet_log(ngram_folder: Path) -> None:
    with serving_process(ngram_folder, "--grace", "0") as (process, server), server.connect() as sending:
        sending.sendall(post("/v1/completions", b'{"prompt"', length=1000))  # the rest of the body never comes
        assert server.is_healthy()  # earlier bytes have been read
        process.send_signal(signal.SIGTERM)
        response = read_until_closed(sending)
        assert (response.status, response.error["code"]) == (503, "shutting_down")
        assert process.wait(TIMEOUT_SECONDS) == 143
        assert process.stderr is not None
        log_lines = process.stderr.read().splitlines()
    assert log_lines[-1] == "stopped"
    others = [line for line in log_lines[1:-1] if "status" not in json.loads(line)]
    assert [json.loads(line)["message"] for line in others] == [
        "requests that did not end within --grace and are aborted: 1"
    ]


def test_low_descriptor_limit_neither_floods_the_log_nor_stops_the_server(ngram_folder: Path) -> None:
    limit = 48
    with serving_process(ngram_folder, "--quiet", descriptors=limit) as (process, server):
        connections = [server.connect() for _ in range(3 * limit)]
        refused = [connection for connection in connections[limit:] if read_until_closed(connection).status == 503]
        assert len(refused) == 2 * limit
        for connection in connections:
            connection.close()
        wait_until(lambda: is_served(server))
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 143
        assert process.stderr is not None
        log_lines = process.stderr.read().splitlines()
    assert [json.loads(line)["message"][:20] for line in log_lines if line.startswith("{")] == [
        "refusing connections"
    ]


def test_serve_with_missing_files(tmp_path: Path, ngram_folder: Path) -> None:
    outcome = call("serve", tmp_path / "nothing")
    assert outcome.status == 4
    assert outcome.err == call("info", tmp_path / "nothing").err
    outcome = call("serve", ngram_folder, "--api-key-file", tmp_path / "nothing")
    assert outcome.status == 4
    assert call("serve").status == 2


@pytest.mark.parametrize("name", ["small.txt", "folder", "model.pkl"])
def test_serve_rejects_non_models_like_info(tmp_path: Path, ngram_folder: Path, name: str) -> None:
    wrong = tmp_path / name
    if name == "folder":
        wrong.mkdir()
    else:
        wrong.write_text("the cat\n")
    outcome = call("serve", ngram_folder, wrong, "--port", "0")
    assert (outcome.status, outcome.out) == (3, "")
    assert str(wrong) in outcome.err
    assert outcome.err == call("info", wrong).err


def test_tokenizer_folder_is_not_served(tmp_path: Path) -> None:
    text, folder = tmp_path / "small.txt", tmp_path / "words"
    text.write_text("the cat\n")
    assert call("tokenizer", "train", text, "--out", folder).status == 0
    outcome = call("serve", folder, "--port", "0")
    assert (outcome.status, outcome.out) == (3, "")
    assert outcome.err == f"error: {folder} contains a tokenizer, not a model; give a model folder\n"


@pytest.mark.parametrize(
    ("host", "family", "address"),
    [
        ("0.0.0.0", socket.AF_INET, "http://127.0.0.1:"),
        ("127.0.0.1", socket.AF_INET, "http://127.0.0.1:"),
        ("::", socket.AF_INET6, "http://[::1]:"),
        ("[::1]", socket.AF_INET6, "http://[::1]:"),
    ],
)
def test_printed_address_can_be_opened(host: str, family: socket.AddressFamily, address: str) -> None:
    with socket.socket(family) as listener:
        assert http.url(host, listener).startswith(address)


def test_missing_server_extra_names_the_install_command(ngram_folder: Path) -> None:
    script = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['chainrule', 'serve', sys.argv[1]];"
        "from chainrule.cli.main import run; run()"
    )
    done = subprocess.run([sys.executable, "-c", script, ngram_folder], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: serving needs fastapi and uvicorn: pip install 'chainrule[serve]'\n"


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
    ],
)
def test_is_loopback(host: str, is_loopback: bool) -> None:
    assert http.is_loopback(host) is is_loopback


def test_unknown_host_is_reported() -> None:
    with pytest.raises(NotFoundError, match="there is no host"):
        http.is_loopback("no such host")


def test_shard_servers_are_checked_at_start(
    ngram_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split_model(chainrule.load(ngram_folder), 2).save(tmp_path / "parts")
    front = Path(shutil.copytree(tmp_path / "parts", tmp_path / "front"))
    for path in (front / "shards").iterdir():
        path.unlink()
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    key.chmod(0o600)
    monkeypatch.setattr(http, "run", lambda app, listener, limits: listener.close())
    with run_server(create_app([tmp_path / "parts"], api_key="s3cret")) as server:
        options = ["--port", 0, "--shard-server", server.url]
        outcome = call("serve", front, *options, "--shard-server-key-file", key)
        assert (outcome.status, outcome.err) == (0, "serving front; stop with Ctrl-C\n")
        refused = call("serve", front, *options)
        assert (refused.status, len(refused.err.splitlines())) == (1, 1)
        assert "answered 401" in refused.err
        other = call("serve", ngram_folder, *options)
        assert (other.status, len(other.err.splitlines())) == (2, 1)
        assert "--shard-server is for sharded models" in other.err
    stopped = call("serve", front, *options)
    assert (stopped.status, stopped.out, len(stopped.err.splitlines())) == (1, "", 1)
    assert f"the shard server {server.url} cannot be reached" in stopped.err
