"""Request schemas: fields, types, ranges, and checks against the limits of the server."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from chainrule.decoding.settings import Decoding, UnknownWord
from chainrule.server.errors import ApiError, Limits

# Validation stops at the first wrong item of a list, so that an error does not list a million.
TextList = Annotated[list[str], Field(fail_fast=True)]
IdList = Annotated[list[int], Field(fail_fast=True)]
Prompt = str | TextList | IdList | Annotated[list[IdList], Field(fail_fast=True)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Temperature = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Stop = Annotated[str, Field(min_length=1, max_length=1024)]
MAX_CHARACTERS: Final = 1 << 16  # of the prompt of a beam search or a text to explain
MODEL = Field(default=None, description="Name of a model (see GET /v1/models); default: the first.")


class Request(BaseModel):
    """Base of all requests: no unknown fields, no type coercion."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    model: str | None = MODEL


class StreamOptions(BaseModel):
    """Options of a streamed completion."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    include_usage: bool = False


class CompletionRequest(Request):
    """Body of `POST /v1/completions`: OpenAI's fields and a few of chainrule."""

    prompt: Prompt = Field(default="", description="A text, texts, token ids, or lists of token ids.")
    max_tokens: int | None = Field(default=16, ge=0)
    temperature: Temperature | None = Field(
        default=1.0, description="Sampling temperature; 0 takes the most probable token."
    )
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    min_p: Probability | None = None
    repetition_penalty: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    no_repeat_ngram: Annotated[int, Field(ge=1)] | None = None
    unk: UnknownWord = Field(
        default="exclude",
        description="Unknown words: exclude (never generated), spell (replaced by a spelling), or keep (printed as "
        "<unk>); logprobs are always those of the model.",
    )
    n: int | None = Field(default=1, ge=1)
    best_of: int | None = Field(default=None, ge=1, description="Must equal n.")
    echo: bool | None = False
    logprobs: int | None = Field(default=None, ge=0, description="Number of alternatives per token.")
    stop: Stop | Annotated[list[Stop], Field(max_length=64, fail_fast=True)] | None = None
    seed: int | None = Field(default=None, ge=-(2**63), le=2**64 - 1)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    suffix: str | None = Field(default=None, description="Not supported: the models generate from left to right.")
    presence_penalty: float | None = Field(default=None, description="Must be 0; use repetition_penalty.")
    frequency_penalty: float | None = Field(default=None, description="Must be 0; use repetition_penalty.")
    logit_bias: dict[str, float] | None = Field(default=None, description="Must be empty.")

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """The prompts, each a text or a list of ids."""
        prompt: Any = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        return [prompt] if not prompt or isinstance(prompt[0], int) else prompt

    @property
    def samples(self) -> int:
        """Number of completions per prompt."""
        return self.n or 1

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return () if self.stop is None else (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def has_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage

    def decoding(self) -> Decoding:
        """Return the decoding settings; a negative seed is read as unsigned 64-bit."""
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
        """Raise ApiError for values that exceed a limit or are not supported."""
        check_limit("max_tokens", self.max_tokens, limits.tokens)
        check_limit("logprobs", self.logprobs, limits.top)
        check_limit("n", self.n, limits.samples)
        if len(self.prompts) > limits.prompts:
            raise ApiError(
                400, f"there are {len(self.prompts)} prompts; send at most {limits.prompts}", param="prompt"
            )
        drawn = len(self.prompts) * self.samples * (self.max_tokens or 0) * (1 + (self.logprobs or 0))
        if drawn > limits.drawn:
            raise ApiError(
                400,
                f"max_tokens × prompts × n × (1 + logprobs) is {drawn}; "
                f"the limit of this server is {limits.drawn}: "
                "lower one of them",
                param="max_tokens",
            )
        if self.best_of is not None and self.best_of != self.samples:
            reject_value("best_of", "leave it out, or choose as many as n and compare their log-probabilities")
        if self.suffix:
            reject_value("suffix", "leave it out: the models read from left to right and cannot fill a gap")
        for name in ("presence_penalty", "frequency_penalty"):
            if getattr(self, name):
                reject_value(name, "choose 0 and set repetition_penalty")
        if self.logit_bias:
            reject_value("logit_bias", "leave it out or empty")
        if self.stream_options is not None and not self.stream:
            reject_value("stream_options", "it is for streams: set stream to true")


class TokenizeRequest(Request):
    """Body of `POST /tokenize`."""

    prompt: str
    add_special_tokens: bool = Field(default=False, description="Prepend <s>.")
    return_token_strs: bool | None = False


class DetokenizeRequest(Request):
    """Body of `POST /detokenize`."""

    tokens: IdList


class ScoreRequest(Request):
    """Body of `POST /v1/score`."""

    input: str | TextList = Field(description="A text or a list of texts; each may have several lines.")
    unit: Literal["nats", "bits", "log10"] = "nats"


class NextRequest(Request):
    """Body of `POST /v1/next`."""

    prompt: str | IdList = ""
    top: int = Field(default=10, ge=1)
    temperature: Temperature = 1.0
    top_k: Annotated[int, Field(ge=1)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    min_p: Probability | None = None
    prefix: str = Field(
        default="",
        max_length=1024,
        description="Only tokens that start with this, ignoring leading blanks; not for char and byte tokenizers.",
    )

    def decoding(self) -> Decoding:
        """Return the decoding settings to apply; `<unk>` is kept."""
        return Decoding(
            temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p, unk="keep"
        )


class PrefixesRequest(Request):
    """Body of `POST /v1/shards/prefixes`."""

    words: str = Field(description="Rows of n word ids, padded with -1, as little-endian int32 in base64.")


class ExtensionsRequest(Request):
    """Body of `POST /v1/shards/extensions`."""

    contexts: str = Field(description="Rows of n word ids of contexts, padded with -1, as int32 in base64.")


class BeamRequest(Request):
    """Body of `POST /v1/beam`: a prompt and the beam-search settings."""

    prompt: Annotated[str, Field(max_length=MAX_CHARACTERS)] = ""
    beam_size: Annotated[int, Field(ge=1, le=16)] = 4
    max_tokens: Annotated[int, Field(ge=1, le=64)] = 12
    length_penalty: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0


class ContextRequest(Request):
    """Body of `POST /v1/context`: the text to explain."""

    text: Annotated[str, Field(max_length=MAX_CHARACTERS)]


def check_limit(name: str, value: int | None, most: int) -> None:
    """Raise ApiError if a number exceeds its limit."""
    if value is not None and value > most:
        raise ApiError(400, f"{name} is {value}; this server gives at most {most}", param=name)


def reject_value(name: str, advice: str) -> None:
    """Raise ApiError for a field value that is not supported."""
    raise ApiError(400, f"this value of {name} is not supported; {advice}", param=name, code="unsupported_value")


def check_length(name: str, tokens: int, limits: Limits) -> None:
    """Raise ApiError for a text of too many tokens."""
    if tokens > limits.prompt_tokens:
        raise ApiError(
            400,
            f"{name} is {tokens} tokens long; this server reads at most {limits.prompt_tokens}",
            param=name,
            code="context_length_exceeded",
        )
