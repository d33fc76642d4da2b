"""The names of the `kenlm` module over our n-gram models, so that software written for it runs on them.

Lives here: opening what a path names, and whole lists of sentences in one call. Not here: what is asked word by
word (cpp/bindings/kenlm.cpp: a decoder asks too often for Python to stand between). Logarithms are to base 10.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from chainrule import artifact, native, processors
from chainrule.errors import ChainruleError, ConfigError, InputError, NotFoundError
from chainrule.ngram import arpa_reader, engine

Text = str | bytes  # a str is read as UTF-8

KENLM_MAGIC: Final = b"mmap lm http://kheafield.com/code"
MODEL_MAGIC: Final = b"chainngr"

# What the compiled classes offer, for whoever reads or checks types.
if TYPE_CHECKING:

    class State:
        """What a model remembers of the words read; a new one has read nothing."""

        def __lt__(self, other: "State") -> bool: ...
        def __copy__(self) -> "State": ...
        def __deepcopy__(self, memo: object = None) -> "State": ...

    class FullScoreReturn:
        """How a word was answered."""

        log_prob: float  # to base 10
        ngram_length: int  # words in the n-gram that answered
        oov: bool

        def __init__(self, log_prob: float, ngram_length: int, oov: bool) -> None: ...

    class Asked:
        """What is asked word by word, and of many sentences."""

        order: int

        def __init__(self, engine: engine.Engine) -> None: ...

        def __contains__(self, word: Text) -> bool: ...

        def BeginSentenceWrite(self, state: State) -> None:  # noqa: N802
            """Make a state that of the beginning of a sentence."""

        def NullContextWrite(self, state: State) -> None:  # noqa: N802
            """Make a state that of having read nothing."""

        def BaseScore(self, in_state: State, word: Text, out_state: State) -> float:  # noqa: N802
            """log10 p(word | in_state); out_state becomes that after the word."""

        def BaseFullScore(self, in_state: State, word: Text, out_state: State) -> FullScoreReturn:  # noqa: N802
            """The same, with the length of the n-gram that answered."""

        def score(self, sentence: Text, bos: bool = True, eos: bool = True) -> float:
            """log10 p(sentence `</s>` | `<s>`); without `</s>` or `<s>` where they are not wanted."""

        def full_scores(
            self, sentence: Text, bos: bool = True, eos: bool = True
        ) -> Iterator[tuple[float, int, bool]]:
            """Of each word log10 p, the length of the n-gram that answered, and whether the word is unknown."""

        def score_list(self, sentences: Sequence[Text], bos: bool, eos: bool, threads: int) -> NDArray[np.float64]:
            """What score_sentences gives."""

        def score_lines(self, path: str, bos: bool, eos: bool, threads: int) -> NDArray[np.float64]:
            """What score_file gives."""

        def full_score_list(self, sentences: Sequence[Text], bos: bool, eos: bool, threads: int) -> tuple[Any, ...]:
            """What full_score_sentences gives."""

else:
    _core = native.load()
    if _core is None:
        raise ImportError(f"chainrule.kenlm needs the compiled part of chainrule: {native.HOW_TO_BUILD}")
    State, FullScoreReturn, Asked = _core.KenlmState, _core.KenlmFullScore, _core.KenlmModel


class LoadMethod:
    """How KenLM reads its files; ours are read as they are used, whatever is chosen."""

    LAZY, POPULATE_OR_LAZY, POPULATE_OR_READ, READ, PARALLEL_READ = range(5)


class ARPALoadComplain:
    """When KenLM warns of an ARPA file; ours never does."""

    ALL, EXPENSIVE, NONE = range(3)


@dataclass(slots=True)
class Config:
    """Settings of KenLM that software may write; they change nothing here."""

    load_method: int = LoadMethod.POPULATE_OR_READ
    show_progress: bool = True
    arpa_complain: int = ARPALoadComplain.ALL


@dataclass(frozen=True, slots=True)
class WordScores:
    """Of each word of many sentences, one sentence behind the other, `</s>` among them."""

    log_prob: NDArray[np.float32]  # to base 10
    ngram_length: NDArray[np.uint8]
    oov: NDArray[np.bool_]
    ends: NDArray[np.int64]  # by sentence, where its words end


class Model(Asked):
    """A model of an ARPA file, plain or packed, of a model folder, or of its `model.ngram`."""

    path: bytes

    def __init__(self, path: str | bytes | os.PathLike[str], config: Config | None = None) -> None:
        self.path = os.path.abspath(os.fsencode(path))
        try:
            super().__init__(_engine(Path(os.fsdecode(self.path))))
        except ChainruleError as error:
            raise OSError(f"Cannot read model '{os.fsdecode(path)}' ({error})") from error

    def perplexity(self, sentence: Text) -> float:
        """10 to the power of −log10 p(sentence `</s>` | `<s>`) a word, `</s>` being one."""
        words = len(sentence.encode().split() if isinstance(sentence, str) else sentence.split()) + 1
        return float(10.0 ** (-self.score(sentence) / words))

    def score_sentences(
        self, sentences: Sequence[Text], bos: bool = True, eos: bool = True, threads: int | None = None
    ) -> NDArray[np.float64]:
        """`score` of each in one call, by default on all processors."""
        return self.score_list(sentences, bos, eos, threads or processors.threads())

    def full_score_sentences(
        self, sentences: Sequence[Text], bos: bool = True, eos: bool = True, threads: int | None = None
    ) -> WordScores:
        """`full_scores` of each in one call, by default on all processors."""
        log_prob, length, oov, ends = self.full_score_list(sentences, bos, eos, threads or processors.threads())
        return WordScores(log_prob, length, oov.view(np.bool_), ends)

    def score_file(
        self, path: str | os.PathLike[str], bos: bool = True, eos: bool = True, threads: int | None = None
    ) -> NDArray[np.float64]:
        """`score` of each line of a plain text, by default on all processors."""
        return self.score_lines(os.fspath(path), bos, eos, threads or processors.threads())

    def __repr__(self) -> str:
        return f"<Model from {os.path.basename(self.path)!r}>"

    def __reduce__(self) -> tuple[type["Model"], tuple[bytes]]:
        return type(self), (self.path,)


class LanguageModel(Model):
    """The name that old software has for Model."""


def _engine(path: Path) -> engine.Engine:
    """The compiled model of what the path names."""
    if path.is_dir():
        model = artifact.load(path)
        if model.family != "ngram":
            raise ConfigError(f"{path} is a {model.family} model; only n-gram models answer as kenlm does")
        return model.lm.engine  # type: ignore[attr-defined]
    try:
        with path.open("rb") as file:
            head = file.read(len(KENLM_MAGIC))
    except OSError as error:
        raise NotFoundError(f"{error.strerror}: {path}") from error
    if head.startswith(KENLM_MAGIC):
        raise InputError("it is a binary file of KenLM, which only KenLM reads; give the ARPA file it was made of")
    if head.startswith(MODEL_MAGIC):
        return engine.open_file(path)
    return arpa_reader.read(path).engine
