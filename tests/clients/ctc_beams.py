"""Beams of pyctcdecode with one language-model module, as JSON: run once per module and compare.

    python ctc_beams.py MODULE MODEL ARPA > beams.json

MODULE replaces `kenlm` before pyctcdecode is imported. The frames are synthetic: each letter of a sentence spans
one to three frames, separated by blanks, with noise that leaves several words possible.
"""

import importlib
import json
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from chainrule.lm import Floats

LABELS: Final = ["", " ", *"abcdefghijklmnopqrstuvwxyz'"]
SETTINGS: Final = [(0.0, 0.0), (0.5, 1.5), (1.0, 0.5), (2.5, 3.0)]  # alpha: the model's weight, beta: per word
SENTENCES: Final = [
    "the model is trained on words",
    "each line of a text ends with a mark",
    "what was never seen has a probability as well",
    "qwertz the perplexity of the test text",
    "a tokenizer",
]


def frames(sentence: str, rng: np.random.Generator, sharpness: float = 3.0) -> Floats:
    """(T, labels): scores of every label at every frame."""
    labels: list[int] = []
    for letter in sentence:
        labels += [LABELS.index(letter)] * int(rng.integers(1, 4)) + [0]
    scores: Floats = rng.normal(0.0, 1.0, (len(labels), len(LABELS)))
    scores[np.arange(len(labels)), labels] += sharpness
    return scores


def plain(beams: list[Any]) -> list[list[Any]]:
    """Text, word positions and both scores of each beam."""
    return [[beam[0], beam[2], float(beam[3]), float(beam[4])] for beam in beams]


def decode_complete(decoder: Any, seed: int) -> Iterator[list[list[Any]]]:
    """Sentence by sentence at every setting, with and without boundaries, with hotwords."""
    rng = np.random.default_rng(seed)
    all_frames = [frames(sentence, rng) for sentence in SENTENCES]
    for alpha, beta in SETTINGS:
        decoder.reset_params(alpha=alpha, beta=beta, lm_score_boundary=True)
        for scores in all_frames:
            yield plain(decoder.decode_beams(scores, beam_width=40))
    decoder.reset_params(alpha=1.0, beta=1.0, lm_score_boundary=False)
    yield plain(decoder.decode_beams(all_frames[0], beam_width=40, prune_history=True))
    yield plain(decoder.decode_beams(all_frames[3], beam_width=40, hotwords=["qwertz"]))


def in_chunks(decoder: Any, seed: int) -> Iterator[list[list[Any]]]:
    """One sentence after another, carrying the state of the best beam."""
    rng = np.random.default_rng(seed)
    decoder.reset_params(alpha=1.0, beta=1.0, lm_score_boundary=True)
    state = None
    for sentence in SENTENCES:
        beams = decoder.decode_beams(frames(sentence, rng), beam_width=40, lm_start_state=state)
        state = beams[0][1]
        yield plain(beams)


def main(module: str, model: str, arpa: str) -> None:
    sys.modules["kenlm"] = importlib.import_module(module)
    pyctcdecode = importlib.import_module("pyctcdecode")
    unigrams = importlib.import_module("pyctcdecode.language_model").load_unigram_set_from_arpa(arpa)
    decoder = pyctcdecode.build_ctcdecoder(LABELS, model, sorted(unigrams))
    beams = [*decode_complete(decoder, seed=1), *in_chunks(decoder, seed=2)]
    if model.endswith(".arpa"):  # saved and opened again, as pyctcdecode stores a model
        with tempfile.TemporaryDirectory() as folder:
            decoder.save_to_dir(folder)
            again = pyctcdecode.BeamSearchDecoderCTC.load_from_dir(folder)
            beams += in_chunks(again, seed=3)
    json.dump({"unigrams": len(unigrams), "beams": beams}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
