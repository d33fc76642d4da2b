"""Routes `GET /tokenizer_info`, `POST /tokenize` and `POST /detokenize`.

The field names are those of vLLM, which lm-evaluation-harness and other clients expect.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response

from chainrule.model import Model
from chainrule.server.errors import ApiError, Limits
from chainrule.server.json_body import json_response
from chainrule.server.logs import add_log_fields
from chainrule.server.models import ModelRegistry
from chainrule.server.prompt_encoding import decode_ids, encode_prompt
from chainrule.server.schema import DetokenizeRequest, TokenizeRequest
from chainrule.server.threads import run_in_thread_if_large
from chainrule.tokenizers.config import BOS, EOS


def add_routes(app: FastAPI, registry: ModelRegistry) -> None:
    """Add the tokenizer endpoints."""

    @app.get("/tokenizer_info")
    async def tokenizer_info(model: str | None = None) -> dict[str, Any]:
        """Describe the tokenizer of a model."""
        return describe((await registry.get(model)).model, registry.limits)

    @app.post("/tokenize", response_model=dict[str, Any])
    async def tokenize(request: TokenizeRequest) -> Response:
        """Encode a text, with `</s>` for each line break; `<s>` or `</s>` alone is encoded as its id."""
        loaded = await registry.get(request.model)
        encoded = await run_in_thread_if_large(len(request.prompt), _tokenize, loaded.model, request)
        add_log_fields(tokens_in=encoded["count"])
        return await json_response(encoded["count"], {**encoded, "max_model_len": registry.limits.prompt_tokens})

    @app.post("/detokenize", response_model=dict[str, Any])
    async def detokenize(request: DetokenizeRequest) -> Response:
        """Decode token ids, with a line break for `</s>`."""
        loaded = await registry.get(request.model)
        add_log_fields(tokens_in=len(request.tokens))
        text = await run_in_thread_if_large(len(request.tokens), _detokenize, loaded.model, request)
        return await json_response(len(text), {"prompt": text})


def describe(model: Model, limits: Limits) -> dict[str, Any]:
    """Return the kind, size and control symbols of the tokenizer."""
    tokenizer = model.tokenizer
    return {
        "tokenizer_class": tokenizer.config.kind,
        "vocab_size": tokenizer.vocab_size,
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": None,
        "unk_token": None if tokenizer.unk is None else tokenizer.config.unk,
        "bos_token_id": tokenizer.bos,
        "eos_token_id": tokenizer.eos,
        "unk_token_id": tokenizer.unk,
        "model_max_length": limits.prompt_tokens,
        "chat_template": None,
    }


def _tokenize(model: Model, request: TokenizeRequest) -> dict[str, Any]:
    tokenizer = model.tokenizer
    symbols = {BOS: tokenizer.bos, EOS: tokenizer.eos}
    if request.prompt in symbols:
        ids = [symbols[request.prompt]]
    else:
        ids = list(encode_prompt(request.prompt, tokenizer).ids)
    if request.add_special_tokens and ids[:1] != [tokenizer.bos]:
        ids.insert(0, tokenizer.bos)
    strings = tokenizer.tokens(ids) if request.return_token_strs else None
    return {"tokens": ids, "count": len(ids), "token_strs": strings}


def _detokenize(model: Model, request: DetokenizeRequest) -> str:
    size = model.tokenizer.vocab_size
    invalid = next((i for i in request.tokens if not 0 <= i < size), None)
    if invalid is not None:
        raise ApiError(400, f"there is no token {invalid}; ids run from 0 to {size - 1}", param="tokens")
    return decode_ids(request.tokens, model.tokenizer)
