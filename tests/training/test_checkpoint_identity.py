"""A checkpoint of another run is rejected, naming the differences and a remedy."""

from hashlib import sha256
from typing import Any

import pytest

from chainrule.errors import InputError, UsageError
from chainrule.training.checkpoint import check_identity

IDENTITY = {
    "family": "lstm",
    "config": {"hidden": 128, "epochs": 5},
    "text": "0a1b",
    "tokenizer": "2c3d",
    "seed": 1,
    "context": "stream",
}


def changed(**fields: Any) -> dict[str, Any]:
    return IDENTITY | fields


def test_check_identity_accepts_the_same_run() -> None:
    check_identity(IDENTITY, changed())


def test_check_identity_treats_tuples_as_lists() -> None:
    check_identity({"config": {"cutoffs": [10, 20]}}, {"config": {"cutoffs": (10, 20)}})


def test_check_identity_rejects_a_changed_text() -> None:
    with pytest.raises(
        InputError, match=r"the text changed since the checkpoint was written; .* remove the checkpoint folder"
    ):
        check_identity(IDENTITY, changed(text="ffff", seed=2))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"config": {"hidden": 256, "epochs": 5}}, ["model.hidden is 256 now and was 128 then"]),
        (
            {"config": {"hidden": 256, "epochs": 6}, "seed": 2},
            ["model.hidden is 256 now", "training.epochs is 6 now and was 5 then", "seed is 2 now and was 1 then"],
        ),
        ({"config": {"hidden": 128, "epochs": 5, "layers": 2}}, ["model.layers is 2 now and was unset then"]),
        ({"config": {"hidden": 128}}, ["training.epochs is unset now and was 5 then"]),
        ({"family": "gru"}, ["family is gru now and was lstm then"]),
        ({"context": "line"}, ["context is line now and was stream then"]),
        (
            {"begun": "4e5f", "config": {"hidden": 256, "epochs": 5}},
            [
                "the pre-trained encoder or the word vectors changed since",
                "use the same ones as the original run",
            ],
        ),
        ({"tokenizer": "ffff"}, ["the tokenizer changed since the checkpoint was written"]),
    ],
)
def test_check_identity_names_differences_with_both_values(fields: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        check_identity(IDENTITY, changed(**fields))
    assert refused.value.exit_code == 2
    assert all(word in str(refused.value) for word in [*words, "remove the checkpoint folder"]), str(refused.value)


@pytest.mark.parametrize(
    ("task", "then", "now", "words"),
    [
        ("translate", ["a", "b", "c", "d"], ["a", "b"], "the validation text was left out"),
        ("translate", ["a", "b"], ["a", "b", "c", "d"], "a validation text was given"),
        ("classify", ["a", "b", "c", "d"], ["a", "b", "c", "e"], "the validation text is not that of"),
        ("translate", ["a", "b"], ["a", "c"], "the text changed"),
        ("translate", ["a", "b", "c", "d"], ["e", "b"], "the text changed"),
        ("tag", ["a", "b"], ["a", sha256().hexdigest()], "the validation text was left out"),
        (None, ["a", "b"], ["a", None], "the validation text was left out"),
        (None, ["a", None], ["b", None], "the text changed"),
    ],
)
def test_check_identity_names_the_text_that_changed(
    task: str | None, then: list[str], now: list[str], words: str
) -> None:
    with pytest.raises(InputError, match=f"^{words}.* remove the checkpoint folder"):
        check_identity({"task": task, "text": then}, {"task": task, "text": now})
