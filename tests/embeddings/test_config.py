"""Configuration of word vectors."""

from typing import Any

import pytest

from chainrule.config import build_config
from chainrule.embeddings.config import VectorConfig
from chainrule.embeddings.train import train
from chainrule.errors import ConfigError
from chainrule.text.corpus import Corpus


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"method": "word3vec"}, "vectors.method"),
        ({"dimensions": 0}, "vectors.dimensions"),
        ({"window": 0}, "vectors.window"),
        ({"negative": -1}, "vectors.negative"),
        ({"negative": 1001}, "vectors.negative"),
        ({"epochs": 0}, "vectors.epochs"),
        ({"min_count": 0}, "vectors.min_count"),
        ({"vocab_size": 0}, "vectors.vocab_size"),
        ({"buckets": 0}, "vectors.buckets"),
        ({"learning_rate": -0.1}, "vectors.learning_rate"),
        ({"learning_rate": float("nan")}, "vectors.learning_rate"),
        ({"sample": float("inf")}, "vectors.sample"),
        ({"x_max": 0.0}, "vectors.x_max"),
        ({"alpha": -1.0}, "vectors.alpha"),
        ({"simd": "sse9"}, "vectors.simd"),
        ({"memory": "much"}, "vectors.memory"),
        ({"memory": "10K"}, "vectors.memory"),
        ({"shortest": 3}, "vectors.longest"),
        ({"shortest": 0, "longest": 6}, "vectors.shortest"),
        ({"shortest": 6, "longest": 3}, "vectors.shortest"),
        ({"method": "glove", "shortest": 3, "longest": 6}, "vectors.method"),
    ],
)
def test_invalid_vector_settings_are_named(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        VectorConfig(**wrong)


@pytest.mark.parametrize(("method", "rate"), [("skipgram", 0.025), ("cbow", 0.05), ("glove", 0.05)])
def test_each_method_has_its_default_rate(method: str, rate: float) -> None:
    assert build_config(VectorConfig, {"method": method}, "vectors").rate == rate
    assert build_config(VectorConfig, {"method": method, "learning_rate": 0.1}, "vectors").rate == 0.1


@pytest.mark.parametrize(
    ("text", "size"), [("1G", 2**30), ("1.5M", 3 * 2**19), ("2gb", 2**31), ("1048576", 2**20), ("4096 K", 2**22)]
)
def test_memory_setting_is_parsed_to_bytes(text: str, size: int) -> None:
    assert VectorConfig(memory=text).memory_bytes == size


def test_subwords_are_off_by_default() -> None:
    assert not VectorConfig().has_subwords
    assert VectorConfig(shortest=3, longest=6).has_subwords


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_zero_noise_words_are_rejected(method: str) -> None:
    with pytest.raises(ConfigError, match=r"vectors.negative is 0, .*choose 1 or more"):
        train(Corpus.from_lines(["a b c"] * 9), method=method, negative=0)
