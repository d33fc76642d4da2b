"""What the requests are: fields, types and ranges, each violation told by the field's name.

Lives here: the documents a client sends, and the checks that need the server's limits. Not here: what is done
with them (completions.py, tokens.py, asking.py).
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from chainrule.decoding.settings import Decoding, UnknownWord
from chainrule.errors import ConfigError
from chainrule.server.errors import ApiError
from chainrule.server.limits import Limits

# Of what a list should be, the first item that is not says enough: no list of a million complaints.
TextList = Annotated[list[str], Field(fail_fast=True)]
IdList = Annotated[list[int], Field(fail_fast=True)]
Prompt = str | TextList | IdList | Annotated[list[IdList], Field(fail_fast=True)]
Chance = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Temperature = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Stop = Annotated[str, Field(min_length=1, max_length=1024)]
MODEL = Field(default=None, description="A name of GET /v1/models; without one, the first of them.")


class Request(BaseModel):
    """No field beyond those named, no number in quotes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    model: str | None = MODEL


class StreamOptions(BaseModel):
    """What a stream tells besides its text."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    include_usage: bool = False


class CompletionRequest(Request):
    """`POST /v1/completions`, as OpenAI has it, with a few settings of chainrule's own."""

    prompt: Prompt = Field(default="", description="A text, texts, token ids, or lists of token ids.")
    max_tokens: int | None = Field(default=16, ge=0)
    temperature: Temperature | None = Field(default=1.0, description="0 takes the most probable token.")
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    min_p: Chance | None = None
    repetition_penalty: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    no_repeat_ngram: Annotated[int, Field(ge=1)] | None = None
    unk: UnknownWord = Field(
        default="exclude",
        description="Unknown words: exclude (never drawn), spell (the speller writes a word), or keep (<unk> is "
        "printed); logprobs are those of the model in each case.",
    )
    n: int | None = Field(default=1, ge=1)
    best_of: int | None = Field(default=None, ge=1, description="Only as many as n.")
    echo: bool | None = False
    logprobs: int | None = Field(default=None, ge=0, description="How many alternatives to tell with each token.")
    stop: Stop | Annotated[list[Stop], Field(max_length=64, fail_fast=True)] | None = None
    seed: int | None = Field(default=None, ge=-(2**63), le=2**64 - 1)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    suffix: str | None = Field(default=None, description="Not to be had: the models read from left to right.")
    presence_penalty: float | None = Field(default=None, description="0 only; there is repetition_penalty.")
    frequency_penalty: float | None = Field(default=None, description="0 only; there is repetition_penalty.")
    logit_bias: dict[str, float] | None = Field(default=None, description="Empty only.")

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """One text or list of ids for each prompt."""
        given: Any = self.prompt
        if isinstance(given, str):
            return [given]
        return [given] if not given or isinstance(given[0], int) else given

    @property
    def samples(self) -> int:
        """How many completions of each prompt."""
        return self.n or 1

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts before which a completion ends."""
        return () if self.stop is None else (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def has_usage(self) -> bool:
        """Whether a stream closes with the counts of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage

    def decoding(self) -> Decoding:
        """The settings of the draw; a negative seed is read as the 64 bits it is written in."""
        return Decoding(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=1.0 if self.repetition_penalty is None else self.repetition_penalty,
            no_repeat_ngram=self.no_repeat_ngram,
            unk=self.unk,
            max_tokens=16 if self.max_tokens is None else self.max_tokens,
            stop=self.stops,
            seed=None if self.seed is None else self.seed % 2**64,
        )

    def check(self, limits: Limits) -> None:
        """Refuse what this server does not give."""
        within("max_tokens", self.max_tokens, limits.tokens)
        within("logprobs", self.logprobs, limits.top)
        within("n", self.n, limits.samples)
        if len(self.prompts) > limits.prompts:
            raise ApiError(
                400, f"there are {len(self.prompts)} prompts; send at most {limits.prompts}", param="prompt"
            )
        drawn = len(self.prompts) * self.samples * (self.max_tokens or 0) * (1 + (self.logprobs or 0))
        if drawn > limits.drawn:
            raise ApiError(
                400,
                f"max_tokens times prompts, n and alternatives is {drawn}; this server gives {limits.drawn}",
                param="max_tokens",
            )
        if self.best_of is not None and self.best_of != self.samples:
            refuse("best_of", "leave it out, or choose as many as n and compare their log-probabilities")
        if self.suffix:
            refuse("suffix", "leave it out: the models read from left to right and cannot fill a gap")
        for name in ("presence_penalty", "frequency_penalty"):
            if getattr(self, name):
                refuse(name, "choose 0 and set repetition_penalty")
        if self.logit_bias:
            refuse("logit_bias", "leave it out or empty")
        if self.stream_options is not None and not self.stream:
            refuse("stream_options", "it is for streams: set stream to true")


class TokenizeRequest(Request):
    """`POST /tokenize`."""

    prompt: str
    add_special_tokens: bool = Field(default=False, description="Begin with <s>.")
    return_token_strs: bool | None = False


class DetokenizeRequest(Request):
    """`POST /detokenize`."""

    tokens: IdList


class ScoreRequest(Request):
    """`POST /v1/score`."""

    input: str | TextList = Field(description="A text, or texts; each may be several lines.")
    unit: Literal["nats", "bits", "log10"] = "nats"


class NextRequest(Request):
    """`POST /v1/next`."""

    prompt: str | IdList = ""
    top: int = Field(default=10, ge=1)
    temperature: Temperature = 1.0
    top_k: Annotated[int, Field(ge=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    min_p: Chance | None = None
    prefix: str = Field(
        default="",
        max_length=1024,
        description="Only tokens that begin so, blanks before them aside; not of characters or bytes.",
    )

    def decoding(self) -> Decoding:
        """The settings whose effect is shown; `<unk>` is shown with its probability."""
        return Decoding(
            temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p, unk="keep"
        )


def within(name: str, value: int | None, most: int) -> None:
    """Refuse a number above this server's limit."""
    if value is not None and value > most:
        raise ApiError(400, f"{name} is {value}; this server gives at most {most}", param=name)


def refuse(name: str, advice: str) -> None:
    """Say what to do instead of setting a field that has no effect here."""
    raise ApiError(400, f"{name} has no such value here; {advice}", param=name, code="unsupported_value")


def not_too_long(name: str, tokens: int, limits: Limits) -> None:
    """Refuse a text of too many tokens."""
    if tokens > limits.prompt_tokens:
        raise ApiError(
            400,
            f"{name} is {tokens} tokens long; this server reads at most {limits.prompt_tokens}",
            param=name,
            code="context_length_exceeded",
        )


def as_api_error(error: ConfigError) -> ApiError:
    """A setting out of its range, with the name it begins with."""
    return ApiError(400, str(error), param=str(error).split(" ", 1)[0])
