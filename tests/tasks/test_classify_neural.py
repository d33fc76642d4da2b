"""Classifiers initialised from word vectors or a pretrained encoder."""

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from chainrule import api
from chainrule.data.training_data import RunOptions
from chainrule.tasks import classify, pretrain
from chainrule.tasks.pretrain import Segments
from chainrule.text.corpus import Corpus
from chainrule.tokenizers.encode import encode
from tasks.test_classify import TRAIN, network, train_small


def test_initialization_from_word_vectors(tmp_path: Path) -> None:
    file = tmp_path / "v.txt"
    file.write_text("a 1 2 3\nb -1 0 1\nzebra 5 5 5\n")
    classifier = train_small(vectors=file, embedding=3, hidden=8, learning_rate=1e-12, epochs=1)
    # a and b of a, b, c … g, <unk>, <s>, </s>
    assert classifier.metrics["vectors_coverage"] == pytest.approx(2 / 10)
    E = network(classifier).reader.embedding.detach().numpy()
    a, b = (E[classifier.tokenizer.vocab[word]] for word in "ab")
    assert_allclose(a / a[0], [1, 2, 3], rtol=1e-4)
    assert_allclose(b / a[0], [-1, 0, 1], atol=1e-4)
    assert (E * math.sqrt(3)).std() == pytest.approx(1, rel=1e-4)


def test_initialization_from_a_pretrained_encoder(tmp_path: Path) -> None:
    lines = tmp_path / "plain.txt"
    lines.write_text("\n".join(TRAIN.texts[:50]) + "\n")
    small: dict[str, Any] = {"hidden": 8, "embedding": 6, "layers": 1, "epochs": 1, "clip": 0.0}
    plain = pretrain.train("lstm", lines, options=RunOptions(device="cpu"), **small)
    plain.save(tmp_path / "encoder")
    settings: dict[str, Any] = {"epochs": 1, "clip": 0.0, "options": RunOptions(device="cpu")}
    classifier = classify.train("lstm", TRAIN, pretrained=tmp_path / "encoder", learning_rate=1e-12, **settings)
    assert (classifier.config.hidden, classifier.config.embedding, classifier.config.directions) == (8, 6, "apart")
    assert classifier.tokenizer.to_json() == plain.tokenizer.to_json()
    initial = dict(network(classifier).reader.named_parameters())
    for name, tensor in plain.reader.named_parameters():
        assert_allclose(initial[name].detach(), tensor.detach(), atol=1e-6)
    read: list[Any] = []
    network(classifier).reader.register_forward_hook(lambda _, inputs, __: read.append(inputs[0].tolist()))
    classifier.probabilities(["a b"])
    text = encode(Corpus.from_lines(["a b"]), plain.tokenizer)
    line, _ = Segments.of(text, plain.tokenizer.vocabulary, 9).rows(np.arange(1))
    assert read == [line.tolist()]  # as pre-training read the same line
    classifier.save(tmp_path / "m")
    shutil.rmtree(tmp_path / "encoder")
    assert_array_equal(
        api.load(tmp_path / "m", kind="classify", device="cpu").probabilities(["a b"]),
        classifier.probabilities(["a b"]),
    )
