"""GET /tokenizer_info, POST /tokenize, POST /detokenize: the tokenizer, for clients that count or send tokens.

The names of the fields are those lm-evaluation-harness and others read of vLLM.
"""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from chainrule.model import Model
from chainrule.server.aside import aside, json_response
from chainrule.server.errors import ApiError
from chainrule.server.limits import Limits
from chainrule.server.logs import note
from chainrule.server.pieces import Pieces, prompt_of_text, text_of_ids
from chainrule.server.schema import DetokenizeRequest, TokenizeRequest
from chainrule.server.service import Service
from chainrule.tokenizers.config import BOS, EOS


def router(service: Service) -> APIRouter:
    """The three routes."""
    routes = APIRouter()

    @routes.get("/tokenizer_info")
    async def tokenizer_info(model: str | None = None) -> dict[str, Any]:
        """What there is to know of a model's tokenizer."""
        return describe((await service.loaded(model)).model, service.limits)

    @routes.post("/tokenize", response_model=dict[str, Any])
    async def tokenize(request: TokenizeRequest) -> Response:
        """The ids of a text, `</s>` for each line break; of `<s>` or `</s>` alone the id of that symbol."""
        loaded = await service.loaded(request.model)
        found = await aside(len(request.prompt), _tokenize, loaded.model, request)
        note(tokens_in=found["count"])
        return await json_response(found["count"], {**found, "max_model_len": service.limits.prompt_tokens})

    @routes.post("/detokenize", response_model=dict[str, Any])
    async def detokenize(request: DetokenizeRequest) -> Response:
        """The text of ids, a line break for `</s>`."""
        loaded = await service.loaded(request.model)
        note(tokens_in=len(request.tokens))
        text = await aside(len(request.tokens), _detokenize, loaded.model, request)
        return await json_response(len(text), {"prompt": text})

    return routes


def describe(model: Model, limits: Limits) -> dict[str, Any]:
    """The tokenizer's kind, size and control symbols."""
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
        ids = list(prompt_of_text(request.prompt, tokenizer).ids)
    if request.add_special_tokens and ids[:1] != [tokenizer.bos]:
        ids.insert(0, tokenizer.bos)
    strings = tokenizer.tokens(ids) if request.return_token_strs else None
    return {"tokens": ids, "count": len(ids), "token_strs": strings}


def _detokenize(model: Model, request: DetokenizeRequest) -> str:
    size = model.tokenizer.vocab_size
    wrong = next((i for i in request.tokens if not 0 <= i < size), None)
    if wrong is not None:
        raise ApiError(400, f"there is no token {wrong}; ids run from 0 to {size - 1}", param="tokens")
    return text_of_ids(request.tokens, Pieces(model.tokenizer))
