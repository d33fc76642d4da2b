"""Requests generated from the OpenAPI description, valid and invalid, never cause a server error."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from chainrule.server.app import create_app
from chainrule.server.errors import Limits
from server.running_server import RunningServer, run_server

LIMITS = Limits(tokens=32, samples=4, prompts=8)
PATHS = (
    "/health",
    "/v1/models",
    "/v1/models/{model}",
    "/v1/completions",
    "/v1/score",
    "/v1/next",
    "/v1/beam",
    "/v1/context",
    "/tokenizer_info",
    "/tokenize",
    "/detokenize",
    "/v1/shards",
    "/v1/shards/prefixes",
    "/v1/shards/extensions",
)
REFUSED = ("/v1/models/{model}", "/v1/shards/prefixes", "/v1/shards/extensions")
"""Paths for which no random request is valid: names of models, and ids in base64."""
EXAMPLES = int(os.environ.get("CHAINRULE_EXAMPLES", "20"))  # per path; more find more


@pytest.fixture(scope="module")
def server(ngram_folder: Path) -> Iterator[RunningServer]:
    with run_server(create_app([ngram_folder], limits=LIMITS)) as running_server:
        yield running_server


@pytest.fixture(scope="module")
def described(server: RunningServer) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


def test_every_path_is_fuzzed(described: schemathesis.BaseSchema) -> None:
    assert set(described) == set(PATHS)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("path", PATHS)
def test_no_request_causes_a_server_error(
    described: schemathesis.BaseSchema, path: str, mode: GenerationMode
) -> None:
    ((_, operation),) = described[path].items()
    has_body = bool(operation.body)
    if not has_body and mode is GenerationMode.NEGATIVE:
        return  # every model name is a string, valid or not
    answered = 0

    @given(operation.as_strategy(mode))
    @settings(
        max_examples=EXAMPLES if has_body else 5,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check_case(case: schemathesis.Case[Any]) -> None:
        nonlocal answered
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = "ngram"  # otherwise most would get 404 without reaching the model
        response = case.call_and_validate(checks=[not_a_server_error, response_schema_conformance])
        answered += response.status_code == 200

    check_case()
    if path not in REFUSED and mode is GenerationMode.POSITIVE:
        assert answered, "no example was right"
