"""Route `POST /v1/context`: explain each token by predictions, n-gram orders used and attention weights."""

import copy
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import numpy as np
from fastapi import FastAPI
from fastapi.responses import Response

from chainrule.data.encoded import EncodedText
from chainrule.inspection.predictions import PredictionRecorder, Predictions, next_token_distributions
from chainrule.inspection.probability import backoff_orders
from chainrule.inspection.text_excerpt import Sample
from chainrule.model import Model
from chainrule.progress import Progress, silent
from chainrule.server.json_body import clamp_log_prob, json_response
from chainrule.server.logs import add_log_fields
from chainrule.server.models import ModelRegistry
from chainrule.server.schema import ContextRequest
from chainrule.server.threads import run_cancellable
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer

MAX_TOKENS: Final = 512  # of a text that are explained
MAX_WEIGHTS: Final = 100_000  # attention weights per response


def describe_context(model: Model, text: str, progress: Progress = silent) -> dict[str, Any]:
    """Explain the first tokens of a text; the concatenated `piece` fields equal the text."""
    lines = split_lines(text)
    encoded = encode(Corpus.from_lines(lines), model.tokenizer)
    sample = _sample(model, encoded)
    pieces = list(chain.from_iterable(_pieces(model.tokenizer, line) for line in lines))
    if not text.endswith(("\n", "\r")):
        pieces[-1] = pieces[-1].removesuffix("\n")
    recorder = PredictionRecorder(model.lm, sample.ids)
    for places, log_p in next_token_distributions(model.lm, sample.ids, progress):
        recorder.add(places, log_p)
    return {
        "family": model.family,
        "tokenizer": model.tokenizer.config.kind,
        "choices": recorder.choices,
        "is_normalized": recorder.is_normalized,
        "bytes": encoded.bytes,
        "left_out": encoded.tokens - len(sample.ids),
        "tokens": list(_tokens(sample, pieces, recorder.finish())),
        "views": list(_views(model, encoded)),
    }


def split_lines(text: str) -> list[str]:
    """Split a text into lines as a corpus is split; a final line break starts no new line."""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def _sample(model: Model, encoded: EncodedText) -> Sample:
    ids = encoded.ids[:MAX_TOKENS]
    oov = 0 if encoded.unk is None else int(np.count_nonzero(ids == encoded.unk))
    cut = replace(encoded, ids=ids, spellings=encoded.spellings[:oov])
    return Sample(name="", model=model, text=cut, tokens=tuple(model.tokenizer.tokens(ids.tolist())))


def _pieces(tokenizer: Tokenizer, line: str) -> Iterator[str]:
    """Yield the text of each token with preceding blanks; "" for all but the first byte of a character."""
    last = 0
    for _, end in tokenizer.encoding(line).offsets:
        yield line[last : max(last, end)]
        last = max(last, end)
    yield line[last:] + "\n"  # text of `</s>`


def _tokens(sample: Sample, pieces: list[str], predictions: Predictions) -> Iterator[dict[str, Any]]:
    tokenizer, speller = sample.model.tokenizer, sample.model.speller
    unknown = iter([-math.inf] * sample.text.oov if speller is None else speller.log_probs(sample.text.spellings))
    for t, (id_, token) in enumerate(zip(sample.ids.tolist(), sample.tokens, strict=True)):
        names = tokenizer.tokens(predictions.top_ids[t].tolist())
        p = np.exp(predictions.top_log_probs[t]).tolist()
        document = {
            "piece": pieces[t],
            "token": token,
            "id": id_,
            "log_prob": clamp_log_prob(predictions.log_prob[t]),
            "rank": int(predictions.rank[t]),
            "entropy_bits": float(predictions.entropy_bits[t]) if predictions.is_normalized else None,
            "top": [
                {"token": name, "probability": probability, "is_unknown": other == tokenizer.unk}
                for name, probability, other in zip(names, p, predictions.top_ids[t].tolist(), strict=True)
            ],
        }
        if id_ == sample.text.unk:  # an unknown word also has a spelling probability
            document["spelling_log_prob"] = clamp_log_prob(next(unknown))
        yield document


def _views(model: Model, encoded: EncodedText) -> Iterator[dict[str, Any]]:
    """Yield n-gram orders or attention weights of each mixture component; nothing for other neural models."""
    if model.family == "mixture":
        for part in model.lm.components:  # type: ignore[attr-defined]
            yield from _views(replace(model, lm=part.lm, family=part.family), encoded)
    elif model.family == "ngram":
        orders = backoff_orders(_sample(model, encoded))
        yield {
            "kind": "depth",
            "family": model.family,
            "order": orders.order,
            "found": orders.matched_order.tolist(),
            "reason": orders.reason.tolist(),
            "reasons": list(orders.reasons),
        }
    elif model.lm.network is not None:
        yield from _attention(model, encoded)


def _attention(model: Model, encoded: EncodedText) -> Iterator[dict[str, Any]]:
    """Yield the attention weights of every head for each predicted token.

    Weight s of a row belongs to position `first` + s, the input before token `first` + s (`<s>` at a line start).
    """
    from chainrule.neural.probes.attention_weights import has_attention, iter_attention

    lm: Any = model.lm
    if not has_attention(lm.network):
        return
    view = copy.copy(lm)  # shares the tensors but not the modules, which may be in use by other threads
    shared = {id(tensor): tensor for tensor in chain(lm.network.parameters(), lm.network.buffers())}
    view.network = copy.deepcopy(lm.network, shared)
    text = _sample(model, encoded).text
    heads = sum(
        len(part.weights) for part in iter_attention(view, replace(text, ids=text.ids[:1]))
    )  # summed over layers
    T = math.isqrt(2 * MAX_WEIGHTS // heads)  # T (T + 1) / 2 weights per head
    rows: list[dict[str, Any]] = [{"first": 0, "weights": []} for _ in text.ids[:T]]
    for part in iter_attention(view, replace(text, ids=text.ids[:T])):  # by window, then by layer
        for t, position in enumerate(part.query_positions.tolist()):
            visible = np.flatnonzero(part.mask[t])
            rows[position]["first"] = int(part.key_positions[visible[0]]) if len(visible) else position
            weights = part.weights[:, t, visible[0] : visible[-1] + 1] if len(visible) else part.weights[:, t, :0]
            rows[position]["weights"].append(np.round(weights, 4).tolist())  # (H, S)
    yield {"kind": "attention", "family": model.family, "rows": rows}


def add_routes(app: FastAPI, registry: ModelRegistry) -> None:
    """Add `/v1/context`."""

    @app.post("/v1/context", response_model=dict[str, Any])
    async def context(request: ContextRequest) -> Response:
        """Explain each token of a text: surprisal, alternatives, and n-gram order or attention weights."""
        loaded = await registry.get(request.model)
        document = await run_cancellable(
            lambda check: describe_context(loaded.model, request.text, lambda what, done, of=None: check())
        )
        add_log_fields(tokens_in=len(document["tokens"]))
        size = 256 * len(document["tokens"])  # fields, alternatives and attention weights of a token
        return await json_response(size, {"object": "context", "model": loaded.name, **document})
