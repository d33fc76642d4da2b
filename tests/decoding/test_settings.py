"""Invalid decoding settings raise with the value and the valid range."""

import math
from typing import Any

import pytest

from chainrule.decoding.settings import Decoding
from chainrule.errors import ConfigError

BAD: dict[str, list[Any]] = {
    "strategy": ["best", ""],
    "temperature": [-1, math.nan, math.inf, "hot", True],
    "top_k": [0, -1, 2.5, math.nan],
    "top_p": [0, 2, -0.5, math.nan],
    "min_p": [-0.1, 1.1, math.nan],
    "beam_size": [0, 1.5],
    "length_penalty": [-1, math.nan, math.inf, 11],
    "repetition_penalty": [0, -1, math.nan, math.inf],
    "no_repeat_ngram": [0, 1.5],
    "max_tokens": [-1, 3.0, math.nan],
    "stop": ["text", ("",), (1,)],
    "seed": [-1, 1.5],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_invalid_settings_are_rejected_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        Decoding(**{name: value})  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"{name} is {value!r}; choose ")


def test_error_message_gives_the_valid_range() -> None:
    with pytest.raises(ConfigError, match=r"^top_p is 2; choose a number in \(0, 1\]$"):
        Decoding(top_p=2)
    with pytest.raises(ConfigError, match=r"^top_k is 0; choose a whole number of at least 1$"):
        Decoding(top_k=0)
    with pytest.raises(ConfigError, match=r"^repetition_penalty is 0; choose a number above 0$"):
        Decoding(repetition_penalty=0)


GOOD: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1e-300},
    {"temperature": 1e300},
    {"top_p": 1},
    {"top_p": 1e-300},
    {"min_p": 0},
    {"max_tokens": 0},
    {"seed": 10**400},
    {"stop": ("\n", "END")},
]


@pytest.mark.parametrize("good", GOOD)
def test_boundary_values_are_allowed(good: dict[str, Any]) -> None:
    settings = Decoding(**good)
    assert all(getattr(settings, name) == value for name, value in good.items())


def test_defaults_do_not_truncate() -> None:
    settings = Decoding()
    assert settings.strategy == "sample"
    assert settings.temperature == settings.repetition_penalty == 1
    assert (settings.top_k, settings.top_p, settings.min_p, settings.no_repeat_ngram) == (None,) * 4
