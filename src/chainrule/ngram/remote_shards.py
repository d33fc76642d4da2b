"""Shards on other machines: the HTTP client of a shard server, and the messages of both sides.

Requests are JSON; ids in them are little-endian int32 in base64. Responses are little-endian arrays in binary form,
one after the other, without the entries that are not defined.
"""

import base64
import binascii
import http.client
import json
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np

from chainrule.errors import ConfigError, ShardError, printable
from chainrule.lm import Ids
from chainrule.ngram.sharded import Extensions, Prefixes, ShardedModel, add_source, file_name

PREFIXES_PATH: Final = "/v1/shards/prefixes"
EXTENSIONS_PATH: Final = "/v1/shards/extensions"
SHARDS_PATH: Final = "/v1/shards"
BYTES_PER_REQUEST: Final = 1 << 20
"""Maximum size of the ids in a request; with base64 and JSON it stays below the limit of a server."""
CONTEXTS_PER_REQUEST: Final = 64
TIMEOUT_SECONDS: Final = 60.0


def pack_ids(ids: Ids) -> str:
    """Encode ids for a JSON document."""
    return base64.b64encode(np.ascontiguousarray(ids, dtype="<i4").tobytes()).decode("ascii")


def unpack_ids(text: str, columns: int) -> Ids:
    """Decode ids as rows of this length; raise ValueError if the text is not base64 of a whole number of rows."""
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"it is not base64 ({error})") from None
    if len(content) % (4 * columns):
        raise ValueError(f"it has {len(content)} bytes, which are not rows of {columns} int32")
    return np.frombuffer(content, dtype="<i4").reshape(-1, columns)


def pack_prefixes(prefixes: Prefixes) -> bytes:
    """Encode stored prefixes: lengths as uint8, then log p and log back-off weights up to these lengths."""
    is_log_prob, is_log_backoff = _defined(prefixes)
    log_probs = prefixes.log_probs[is_log_prob]
    return b"".join(
        [prefixes.lengths.tobytes(), _floats(log_probs), _floats(prefixes.log_backoffs[is_log_backoff])]
    )


def unpack_prefixes(content: bytes, rows: int, order: int) -> Prefixes:
    """Decode `pack_prefixes`; raise ValueError if the content has another size."""
    prefixes = Prefixes.empty(rows, order)
    prefixes.lengths[:] = np.frombuffer(content, dtype=np.uint8, count=rows)
    is_log_prob, is_log_backoff = _defined(prefixes)
    values = np.frombuffer(content, dtype="<f4", offset=rows)
    count = int(np.count_nonzero(is_log_prob))
    prefixes.log_probs[is_log_prob] = values[:count]
    prefixes.log_backoffs[is_log_backoff] = values[count:]
    return prefixes


def _defined(prefixes: Prefixes) -> tuple[Any, Any]:
    """Return masks of the log-probabilities and back-off weights that are defined."""
    position = np.arange(prefixes.log_probs.shape[1])
    is_defined = position < prefixes.lengths[:, None]
    return is_defined, is_defined[:, :-1]


def _floats(values: Any) -> bytes:
    return bytes(values.astype("<f4").tobytes())


def pack_extensions(results: Sequence[Extensions]) -> bytes:
    """Encode extensions: their numbers (−1: context not stored), back-off weights, words and log p."""
    sizes = np.array([len(result.words) if result.is_stored else -1 for result in results], dtype="<i4")
    weights = np.array([result.log_backoff for result in results])
    words = [np.asarray(result.words, dtype="<i4").tobytes() for result in results]
    return b"".join([sizes.tobytes(), _floats(weights), *words, *(_floats(r.log_probs) for r in results)])


def unpack_extensions(content: bytes, rows: int) -> list[Extensions]:
    """Decode `pack_extensions`; raise ValueError if the content has another size."""
    sizes = np.frombuffer(content, dtype="<i4", count=rows)
    weights = np.frombuffer(content, dtype="<f4", count=rows, offset=4 * rows)
    ends = np.cumsum(np.maximum(sizes, 0))
    total = int(ends[-1]) if rows else 0
    words = np.frombuffer(content, dtype="<i4", count=total, offset=8 * rows)
    log_probs = np.frombuffer(content, dtype="<f4", count=total, offset=8 * rows + 4 * total)
    if len(content) != 8 * rows + 8 * total:
        raise ValueError("the content has another size")
    parts = zip(np.split(words, ends[:-1]), np.split(log_probs, ends[:-1]), strict=True) if rows else ()
    return [
        Extensions(bool(size >= 0), float(weight), *part)
        for size, weight, part in zip(sizes, weights, parts, strict=True)
    ]


class RemoteShards:
    """Client of a shard server, with one connection that is kept open; calls of several threads take turns."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self._connection, self._base_path = _connection(url)
        weakref.finalize(self, self._connection.close)
        self._headers = {"Content-Type": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._lock = threading.Lock()
        self.url = url
        self.model = ""
        self.order = 0
        self.digests: Mapping[int, str] = {}
        self.requests = self.bytes_sent = self.bytes_received = 0

    def connect(self, lm: ShardedModel) -> None:
        """Find the shards of a model on the server; raise ShardError if it has none of them."""
        document = self._json(self._request("GET", SHARDS_PATH))
        try:
            entries = {
                str(entry["model"]): {int(item["shard"]): str(item["digest"]) for item in entry["shards"]}
                for entry in document["data"]
            }
        except (KeyError, TypeError, ValueError):
            raise self._error("did not send a list of shards; is it chainrule serve?") from None
        for model, digests in entries.items():
            is_same = all(
                0 <= shard < lm.config.shards and lm.digests[shard] == digest for shard, digest in digests.items()
            )
            if digests and is_same:
                self.model, self.order, self.digests = model, lm.order, digests
                return
        if any(entries.values()):
            raise self._error(f"has shards of another model; serve a copy of {lm.path} there")
        raise self._error(f"has no shards; serve a copy of {lm.path} there")

    def prefixes(self, words: Ids) -> Prefixes:
        """Look up (W, n) word sequences, padded with −1, whose first words belong to these shards."""
        result = Prefixes.empty(*words.shape)
        size = BYTES_PER_REQUEST // (4 * self.order)
        for first in range(0, len(words), size):
            part = words[first : first + size]
            content = self._request("POST", PREFIXES_PATH, {"model": self.model, "words": pack_ids(part)})
            try:
                result.fill(slice(first, first + size), unpack_prefixes(content, len(part), self.order))
            except ValueError:
                raise self._error("sent a response of another size") from None
        return result

    def extensions(self, contexts: Sequence[Ids]) -> list[Extensions]:
        """Look up the words stored after contexts whose first words belong to these shards, or after no words."""
        results: list[Extensions] = []
        for first in range(0, len(contexts), CONTEXTS_PER_REQUEST):
            part = contexts[first : first + CONTEXTS_PER_REQUEST]
            padded = np.full((len(part), self.order), -1)  # one column more: rows of order 1 are not empty
            for row, words in zip(padded, part, strict=True):
                row[: len(words)] = words
            content = self._request("POST", EXTENSIONS_PATH, {"model": self.model, "contexts": pack_ids(padded)})
            try:
                results += unpack_extensions(content, len(part))
            except ValueError:
                raise self._error("sent a response of another size") from None
        return results

    def _request(self, method: str, path: str, document: Mapping[str, str] | None = None) -> bytes:
        """Send a request and return the body of the response."""
        body = None if document is None else json.dumps(document).encode()
        with self._lock:
            is_reused = self._connection.sock is not None
            try:
                status, content = self._exchange(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if not is_reused:
                    raise self._unreachable(error) from error
                try:  # the server closes connections that were idle
                    status, content = self._exchange(method, path, body)
                except (OSError, http.client.HTTPException) as second:
                    self._connection.close()
                    raise self._unreachable(second) from second
            self.requests += 1
            self.bytes_sent += len(body or b"")
            self.bytes_received += len(content)
        if status != 200:
            raise self._refusal(status, content)
        return content

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        self._connection.request(method, self._base_path + path, body, self._headers)
        with self._connection.getresponse() as response:
            return response.status, response.read()

    def _json(self, content: bytes) -> Any:
        try:
            return json.loads(content)
        except ValueError:
            raise self._error("did not send JSON; is it chainrule serve?") from None

    def _refusal(self, status: int, content: bytes) -> ShardError:
        """Return the error for a response with another status than 200."""
        try:
            message = printable(str(json.loads(content)["error"]["message"]))[:200]
        except (ValueError, KeyError, TypeError):
            message = http.client.responses.get(status, "unknown status")
        advice = "; give its key with --shard-server-key-file" if status == 401 else ""
        return self._error(f"answered {status}: {message}{advice}")

    def _unreachable(self, error: Exception) -> ShardError:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or "no response"
        return self._error(f"cannot be reached ({reason}); start it with chainrule serve, or correct the address")

    def _error(self, message: str) -> ShardError:
        return ShardError(f"the shard server {self.url} {message}")


def _connection(url: str) -> tuple[http.client.HTTPConnection, str]:
    """Return a connection to the server of an address, not yet opened, and the path of the address."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and not (parts.query or parts.fragment)
        host, port = parts.hostname, parts.port
    except ValueError:
        is_valid, host, port = False, None, None
    if not is_valid or not host:
        raise ConfigError(f"{printable(url)} is not the address of a server; write http://HOST:PORT")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(host, port, timeout=TIMEOUT_SECONDS), parts.path.rstrip("/")


def with_servers(lm: ShardedModel, urls: Sequence[str], key: str | None = None) -> ShardedModel:
    """Return the model with these servers as further sources; raise ShardError if a shard is still missing."""
    for url in urls:
        server = RemoteShards(url, key)
        server.connect(lm)
        lm = add_source(lm, server)
    if lm.missing:
        name = file_name(lm.missing[0], lm.config.shards)
        raise ShardError(
            f"no shard server has {name} of {lm.path}; start one whose folder contains it, and give its address"
        )
    return lm
