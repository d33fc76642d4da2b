"""Routes of a shard server: the shards of its models, and lookups for the servers that score text with them."""

from typing import Any, Final, cast

import numpy as np
from fastapi import FastAPI
from fastapi.responses import Response

from chainrule.lm import Ids
from chainrule.ngram.remote_shards import (
    CONTEXTS_PER_REQUEST,
    EXTENSIONS_PATH,
    PREFIXES_PATH,
    SHARDS_PATH,
    pack_extensions,
    pack_prefixes,
    unpack_ids,
)
from chainrule.ngram.sharded import LocalShards, ShardedModel, shards_of
from chainrule.server.errors import ApiError
from chainrule.server.json_body import printable_name
from chainrule.server.models import ModelRegistry
from chainrule.server.schema import ExtensionsRequest, PrefixesRequest
from chainrule.server.threads import run_in_thread_if_large

EXTENSIONS_COST: Final = 1 << 12
"""Assumed number of extensions of a context."""


class BinaryResponse(Response):
    """A response of arrays, one after the other."""

    media_type = "application/octet-stream"


def add_routes(app: FastAPI, registry: ModelRegistry) -> None:
    """Add `/v1/shards`, `/v1/shards/prefixes` and `/v1/shards/extensions`."""

    @app.get(SHARDS_PATH)
    async def shards() -> dict[str, Any]:
        """List the shards of the sharded models that are in the folders of this server, with their digests."""
        data = []
        for name in registry.sharded():
            lm = cast(ShardedModel, (await registry.get(name)).model.lm)
            digests = {} if lm.local is None else lm.local.digests
            listed = [{"shard": shard, "digest": digest} for shard, digest in sorted(digests.items())]
            data.append({"model": name, "order": lm.order, "shards": listed})
        return {"object": "list", "data": data}

    @app.post(PREFIXES_PATH, response_class=BinaryResponse)
    async def prefixes(request: PrefixesRequest) -> Response:
        """Return the stored prefixes of word sequences with log p and back-off weights, in binary form."""
        lm, local = await _sharded(registry, request.model)
        words = _rows("words", request.words, lm)
        _check_first_words("words", words[:, 0], lm, local)
        content = await run_in_thread_if_large(words.size, lambda: pack_prefixes(local.prefixes(words)))
        return BinaryResponse(content)

    @app.post(EXTENSIONS_PATH, response_class=BinaryResponse)
    async def extensions(request: ExtensionsRequest) -> Response:
        """Return the words stored after contexts with their log p, in binary form."""
        lm, local = await _sharded(registry, request.model)
        rows = _rows("contexts", request.contexts, lm)
        if len(rows) > CONTEXTS_PER_REQUEST:
            raise ApiError(
                400, f"there are {len(rows)} contexts; send at most {CONTEXTS_PER_REQUEST}", param="contexts"
            )
        lengths = np.argmax(np.append(rows, np.full((len(rows), 1), -1), axis=1) < 0, axis=1)
        if (lengths >= lm.order).any():
            raise ApiError(400, f"a context has at most {lm.order - 1} words", param="contexts")
        _check_first_words("contexts", rows[lengths > 0, 0], lm, local)
        contexts = [np.ascontiguousarray(row[:length]) for row, length in zip(rows, lengths, strict=True)]
        cost = EXTENSIONS_COST * len(contexts)
        content = await run_in_thread_if_large(cost, lambda: pack_extensions(local.extensions(contexts)))
        return BinaryResponse(content)


async def _sharded(registry: ModelRegistry, name: str | None) -> tuple[ShardedModel, LocalShards]:
    """Return a sharded model and its shards on this server; raise ApiError for any other model."""
    loaded = await registry.get(name)
    lm: Any = loaded.model.lm
    if not isinstance(lm, ShardedModel) or lm.local is None:
        message = f"'{printable_name(loaded.name)}' has no shards on this server; see GET {SHARDS_PATH}"
        raise ApiError(400, message, param="model", code="unsupported_value")
    return lm, lm.local


def _rows(name: str, text: str, lm: ShardedModel) -> Ids:
    """Decode rows of n ids and check their range."""
    try:
        rows = unpack_ids(text, lm.order)
    except ValueError as error:
        raise ApiError(400, f"{name}: {error}", param=name) from error
    if rows.size and (rows.max() >= lm.vocabulary.size or rows.min() < -1):
        raise ApiError(400, f"{name}: the ids of the model are 0 to {lm.vocabulary.size - 1}", param=name)
    return rows


def _check_first_words(name: str, words: Ids, lm: ShardedModel, local: LocalShards) -> None:
    """Raise ApiError unless the shards of all words are on this server."""
    numbers = set(np.unique(shards_of(words, np.asarray(lm.config.bounds))).tolist())
    absent = sorted(numbers - local.digests.keys())
    if len(words) and (words.min() < 0 or absent):
        where = "an empty row" if words.min() < 0 else f"words of shard {absent[0]}, which is not on this server"
        raise ApiError(400, f"{name} has {where}; see GET {SHARDS_PATH}", param=name)
