"""Drop-in replacement of the `kenlm` Python module for chainrule n-gram models; all logarithms are base 10.

Word-by-word queries are implemented in C++ (cpp/bindings/kenlm.cpp); batch queries are added here.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule import api, system
from chainrule.errors import ChainruleError, ConfigError, InputError, NotFoundError
from chainrule.ngram import arpa, engine

Text = str | bytes  # a str is read as UTF-8

KENLM_MAGIC: Final = b"mmap lm http://kheafield.com/code"
MODEL_MAGIC: Final = b"chainngr"

# Signatures of the compiled classes.
if TYPE_CHECKING:

    class State:
        """Context of an n-gram query; a new state is the empty context."""

        def __lt__(self, other: "State") -> bool: ...
        def __copy__(self) -> "State": ...
        def __deepcopy__(self, memo: object = None) -> "State": ...

    class FullScoreReturn:
        """Result of scoring one word."""

        log_prob: float  # base 10
        ngram_length: int  # order of the n-gram matched
        oov: bool

        def __init__(self, log_prob: float, ngram_length: int, oov: bool) -> None: ...

    class CompiledModel:
        """The compiled model: word-by-word and batch queries."""

        order: int

        def __init__(self, engine: engine.Engine) -> None: ...

        def __contains__(self, word: Text) -> bool: ...

        def BeginSentenceWrite(self, state: State) -> None:  # noqa: N802
            """Set a state to the beginning of a sentence."""

        def NullContextWrite(self, state: State) -> None:  # noqa: N802
            """Set a state to the empty context."""

        def BaseScore(self, in_state: State, word: Text, out_state: State) -> float:  # noqa: N802
            """Return log10 p(word | in_state) and write the next state to `out_state`."""

        def BaseFullScore(self, in_state: State, word: Text, out_state: State) -> FullScoreReturn:  # noqa: N802
            """Return the score with the length of the n-gram matched."""

        def score(self, sentence: Text, bos: bool = True, eos: bool = True) -> float:
            """Return log10 p(sentence `</s>` | `<s>`); `bos=False` and `eos=False` omit `<s>` and `</s>`."""

        def full_scores(
            self, sentence: Text, bos: bool = True, eos: bool = True
        ) -> Iterator[tuple[float, int, bool]]:
            """Yield log10 p, the length of the n-gram matched, and whether the word is unknown, for each word."""

        def score_list(self, sentences: Sequence[Text], bos: bool, eos: bool, threads: int) -> NDArray[np.float64]:
            """Implement `score_sentences`."""

        def score_lines(self, path: str, bos: bool, eos: bool, threads: int) -> NDArray[np.float64]:
            """Implement `score_file`."""

        def full_score_list(self, sentences: Sequence[Text], bos: bool, eos: bool, threads: int) -> tuple[Any, ...]:
            """Implement `full_score_sentences`."""

else:
    _core = system.load_extension()
    State, FullScoreReturn, CompiledModel = _core.KenlmState, _core.KenlmFullScore, _core.KenlmModel


class LoadMethod:
    """Load methods of KenLM, accepted and ignored: model files are always memory-mapped."""

    LAZY, POPULATE_OR_LAZY, POPULATE_OR_READ, READ, PARALLEL_READ = range(5)


class ARPALoadComplain:
    """Warning levels of KenLM for ARPA files, accepted and ignored."""

    ALL, EXPENSIVE, NONE = range(3)


@dataclass(slots=True)
class Config:
    """Settings of KenLM, accepted and ignored."""

    load_method: int = LoadMethod.POPULATE_OR_READ
    show_progress: bool = True
    arpa_complain: int = ARPALoadComplain.ALL


@dataclass(frozen=True, slots=True)
class WordScores:
    """Scores of all words of several sentences, concatenated, `</s>` included."""

    log_prob: NDArray[np.float32]  # base 10
    ngram_length: NDArray[np.uint8]
    oov: NDArray[np.bool_]
    ends: NDArray[np.int64]  # end offset of each sentence


class Model(CompiledModel):
    """N-gram model loaded from an ARPA file (optionally compressed), a model folder, or its `model.ngram`."""

    path: bytes

    def __init__(self, path: str | bytes | os.PathLike[str], config: Config | None = None) -> None:
        self.path = os.path.abspath(os.fsencode(path))
        try:
            super().__init__(_engine(Path(os.fsdecode(self.path))))
        except ChainruleError as error:
            raise OSError(f"Cannot read model '{os.fsdecode(path)}' ({error})") from error

    def perplexity(self, sentence: Text) -> float:
        """Return 10 ** (−log10 p(sentence `</s>` | `<s>`) / N), where N counts `</s>`."""
        words = len(sentence.encode().split() if isinstance(sentence, str) else sentence.split()) + 1
        return float(10.0 ** (-self.score(sentence) / words))

    def score_sentences(
        self, sentences: Sequence[Text], bos: bool = True, eos: bool = True, threads: int | None = None
    ) -> NDArray[np.float64]:
        """Return `score` of each sentence, computed on all processors by default."""
        return self.score_list(sentences, bos, eos, threads or system.thread_count())

    def full_score_sentences(
        self, sentences: Sequence[Text], bos: bool = True, eos: bool = True, threads: int | None = None
    ) -> WordScores:
        """Return `full_scores` of each sentence, computed on all processors by default."""
        log_prob, length, oov, ends = self.full_score_list(sentences, bos, eos, threads or system.thread_count())
        return WordScores(log_prob, length, oov.view(np.bool_), ends)

    def score_file(
        self, path: str | os.PathLike[str], bos: bool = True, eos: bool = True, threads: int | None = None
    ) -> NDArray[np.float64]:
        """Return `score` of each line of a text file, computed on all processors by default."""
        return self.score_lines(os.fspath(path), bos, eos, threads or system.thread_count())

    def __repr__(self) -> str:
        return f"<Model from {os.path.basename(self.path)!r}>"

    def __reduce__(self) -> tuple[type["Model"], tuple[bytes]]:
        return type(self), (self.path,)


class LanguageModel(Model):
    """Old name of `Model` in the kenlm module."""


def _engine(path: Path) -> engine.Engine:
    """Open the n-gram engine of a model folder, a `model.ngram` or an ARPA file."""
    if path.is_dir():
        model = api.load(path, kind="language model")
        if model.family != "ngram":
            raise ConfigError(f"{path} is a {model.family} model; only n-gram models support the kenlm interface")
        return model.lm.engine
    try:
        with path.open("rb") as file:
            head = file.read(len(KENLM_MAGIC))
    except OSError as error:
        raise NotFoundError(f"{error.strerror}: {path}") from error
    if head.startswith(KENLM_MAGIC):
        raise InputError(
            "it is a binary file of KenLM, which only KenLM can read; give the ARPA file it was built from"
        )
    if head.startswith(MODEL_MAGIC):
        return engine.open_file(path)
    return arpa.read(path).engine
