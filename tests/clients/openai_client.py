"""The openai package against `chainrule serve`; run by served.py: `openai_client.py ADDRESS FOLDER`."""

import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any


def check_completions(client: Any, name: str, expected: dict[str, Any], settings: dict[str, Any]) -> None:
    """Text, samples, log-probabilities and counts."""
    result = client.completions.create(model=name, prompt="the model", n=3, **settings)
    assert [choice.text for choice in result.choices] == expected["drawn"], name
    assert result.usage.completion_tokens > 0
    assert result.model == name
    assert result.system_fingerprint
    (choice,) = client.completions.create(
        model=name, prompt="the model is", echo=True, logprobs=2, max_tokens=1, temperature=0
    ).choices
    reported = choice.logprobs
    assert reported.token_logprobs[0] is None
    for log_prob, own in zip(reported.token_logprobs[1:-1], expected["log_probs"][1:-1], strict=True):
        assert math.isclose(log_prob, own, rel_tol=1e-5, abs_tol=1e-7), name
    assert "".join(token for token in reported.tokens if token != "</s>") == choice.text
    assert reported.text_offset == sorted(reported.text_offset)
    assert reported.token_logprobs[-1] == max(reported.top_logprobs[-1].values())


def check_stream(client: Any, name: str, expected: dict[str, Any], settings: dict[str, Any]) -> None:
    """The same text in pieces."""
    texts = [""] * 3
    stream = client.completions.create(
        model=name, prompt="the model", n=3, stream=True, stream_options={"include_usage": True}, **settings
    )
    usage = None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == expected["drawn"], name
    assert usage is not None
    assert usage.prompt_tokens > 0


def check_errors(openai: Any, client: Any) -> None:
    """Each as the exception that the package has for it."""
    for error, fields in (
        (openai.NotFoundError, {"model": "none", "prompt": "the"}),
        (openai.BadRequestError, {"model": "word", "prompt": "the", "temperature": -1}),
        (openai.BadRequestError, {"model": "word", "prompt": "the", "n": 2, "best_of": 5}),
        (openai.BadRequestError, {"model": "word", "prompt": "the", "suffix": "end"}),
        (openai.BadRequestError, {"model": "word", "prompt": "the", "extra_body": {"no_such_field": 1}}),
    ):
        kind = None
        try:
            client.completions.create(**fields)
        except error as found:
            kind = found.type
        assert kind == "invalid_request_error", f"{fields} was not refused"
    try:
        client.with_options(api_key="another").models.list()
    except openai.AuthenticationError:
        return
    raise AssertionError("a wrong key was let in")


def main(address: str, folder: Path) -> None:
    """All of it, for every model."""
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    openai = importlib.import_module("openai")
    client = openai.OpenAI(base_url=f"{address}/v1", max_retries=0)
    assert {model.id for model in client.models.list()} == set(expected["models"])
    assert client.models.retrieve("word").id == "word"
    for name, own in expected["models"].items():
        check_completions(client, name, own, expected["settings"])
        check_stream(client, name, own, expected["settings"])
    check_errors(openai, client)
    print(f"openai {openai.__version__}: completions, streams and errors of {len(expected['models'])} models")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
