import pytest

from chainrule import families
from chainrule.errors import ConfigError
from chainrule.families import FAMILIES


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_offers_what_the_table_promises(name: str) -> None:
    module = families.get(name)
    for attribute in ("Config", "train", "files", "load", "parameters", "candidates", "facets"):
        assert hasattr(module, attribute), attribute


def test_an_unknown_family_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="no family 'lstmm'; choose one of ngram"):
        families.get("lstmm")


def test_a_mixture_does_not_learn_from_text() -> None:
    assert "mixture" not in families.trainable()
