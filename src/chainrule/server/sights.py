"""What a model went by when it predicted each token of a text: its guesses, its n-grams, its attention.

Lives here: one document for a text, put together from what inspection and microscope find. Not here: how that is
found, and HTTP (explaining.py).
"""

import copy
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import numpy as np

from chainrule.data.encoded import Encoded
from chainrule.inspection.reading import Predictions, Recorder, distributions
from chainrule.microscope.probability import find_orders
from chainrule.microscope.sample import Sample
from chainrule.model import Model
from chainrule.progress import Progress, silent
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.encode import encode
from chainrule.tokenizers.tokenizer import Tokenizer

MOST_TOKENS: Final = 512  # of a text that are looked at
MOST_WEIGHTS: Final = 100_000  # numbers of attention in one document
FLOOR: Final = -9999.0  # log p of what is impossible, as it is written


def look(model: Model, text: str, progress: Progress = silent) -> dict[str, Any]:
    """The first tokens of a text, each with the piece of the text it stands for; the pieces put together are it."""
    lines = split_lines(text)
    encoded = encode(Corpus.from_lines(lines), model.tokenizer)
    sample = _sample(model, encoded)
    pieces = list(chain.from_iterable(_pieces(model.tokenizer, line) for line in lines))
    if not text.endswith(("\n", "\r")):
        pieces[-1] = pieces[-1].removesuffix("\n")
    recorder = Recorder(model.lm, sample.ids)
    for places, log_p in distributions(model.lm, sample.ids, progress):
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
    """The lines of a text, cut where a corpus is cut; a break at the very end begins no other."""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def _sample(model: Model, encoded: Encoded) -> Sample:
    ids = encoded.ids[:MOST_TOKENS]
    oov = 0 if encoded.unk is None else int(np.count_nonzero(ids == encoded.unk))
    cut = replace(encoded, ids=ids, spellings=encoded.spellings[:oov])
    return Sample(name="", model=model, text=cut, tokens=tuple(model.tokenizer.tokens(ids.tolist())))


def _pieces(tokenizer: Tokenizer, line: str) -> Iterator[str]:
    """The text of each token with the blanks before it; "" for all but the first byte of a character."""
    last = 0
    for _, end in tokenizer.encoding(line).offsets:
        yield line[last : max(last, end)]
        last = max(last, end)
    yield line[last:] + "\n"  # of `</s>`


def _tokens(sample: Sample, pieces: list[str], found: Predictions) -> Iterator[dict[str, Any]]:
    tokenizer, speller = sample.model.tokenizer, sample.model.speller
    unknown = iter([-math.inf] * sample.text.oov if speller is None else speller.log_probs(sample.text.spellings))
    for t, (id_, token) in enumerate(zip(sample.ids.tolist(), sample.tokens, strict=True)):
        names = tokenizer.tokens(found.top_ids[t].tolist())
        p = np.exp(found.top_log_probs[t]).tolist()
        told = {
            "piece": pieces[t],
            "token": token,
            "id": id_,
            "log_prob": _finite(found.log_prob[t]),
            "rank": int(found.rank[t]),
            "entropy_bits": float(found.entropy_bits[t]) if found.is_normalized else None,
            "top": [
                {"token": name, "probability": probability, "is_unknown": other == tokenizer.unk}
                for name, probability, other in zip(names, p, found.top_ids[t].tolist(), strict=True)
            ],
        }
        if id_ == sample.text.unk:  # an unknown word is spelt out besides
            told["spelling_log_prob"] = _finite(next(unknown))
        yield told


def _finite(log_prob: float) -> float:
    return max(float(log_prob), FLOOR)


def _views(model: Model, encoded: Encoded) -> Iterator[dict[str, Any]]:
    """What can be seen of how it predicts, for each model of a mixture; nothing of a network without attention."""
    if model.family == "mixture":
        for part in model.lm.components:  # type: ignore[attr-defined]
            yield from _views(replace(model, lm=part.lm, family=part.family), encoded)
    elif model.family == "ngram":
        orders = find_orders(_sample(model, encoded))
        yield {
            "kind": "depth",
            "family": model.family,
            "order": orders.order,
            "found": orders.found.tolist(),
            "reason": orders.reason.tolist(),
            "reasons": list(orders.reasons),
        }
    elif hasattr(model.lm, "network"):
        yield from _attention(model, encoded)


def _attention(model: Model, encoded: Encoded) -> Iterator[dict[str, Any]]:
    """For each token what every head looked at before it was predicted.

    Weight s of a row is on place `first` + s: on what was read before token `first` + s, `<s>` at a line's start.
    """
    from chainrule.neural.attending import attended, is_attentive

    lm: Any = model.lm
    if not is_attentive(lm.network):
        return
    view = copy.copy(lm)  # the same tensors under modules of its own: others may be running these
    shared = {id(tensor): tensor for tensor in chain(lm.network.parameters(), lm.network.buffers())}
    view.network = copy.deepcopy(lm.network, shared)
    text = _sample(model, encoded).text
    heads = sum(len(part.weights) for part in attended(view, replace(text, ids=text.ids[:1])))  # of all layers
    T = math.isqrt(2 * MOST_WEIGHTS // heads)  # a triangle of T rows a head
    rows: list[dict[str, Any]] = [{"first": 0, "weights": []} for _ in text.ids[:T]]
    for part in attended(view, replace(text, ids=text.ids[:T])):  # by stretch, and in each by layer
        for t, place in enumerate(part.queries_at.tolist()):
            seen = np.flatnonzero(part.seen[t])
            rows[place]["first"] = int(part.keys_at[seen[0]]) if len(seen) else place
            kept = part.weights[:, t, seen[0] : seen[-1] + 1] if len(seen) else part.weights[:, t, :0]
            rows[place]["weights"].append(np.round(kept, 4).tolist())  # (H, S)
    yield {"kind": "attention", "family": model.family, "rows": rows}
