"""Reference implementation of the `kenlm` module from the definition of an ARPA file; slow, for tests.

log p(w | h) is what the file lists for h w, or else the back-off weight of h plus log p(w | h without its first
word). Base 10 throughout, plain files only.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

BEGIN: Final = "<s>"
END: Final = "</s>"
UNKNOWN: Final = "<unk>"
IMPOSSIBLE: Final = -100.0  # log10 p of unknown words in a file without <unk>


class State:
    """The words that the next one may depend on, oldest first."""

    def __init__(self) -> None:
        self.words: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self.words == other.words

    def __hash__(self) -> int:
        return hash(self.words)

    def __copy__(self) -> Self:
        duplicate = type(self)()
        duplicate.words = self.words
        return duplicate


class Model:
    """One ARPA file as a dictionary."""

    def __init__(self, path: str) -> None:
        self.path = str(Path(path).resolve()).encode()
        self.log_prob: dict[tuple[str, ...], float] = {}
        self.log_backoff: dict[tuple[str, ...], float] = {}
        self.order = 0
        for line in Path(path).read_text(encoding="utf-8").split("\n"):
            if line.endswith("-grams:"):
                self.order = int(line[1:].removesuffix("-grams:"))
            elif self.order and "\t" in line:
                log_prob, words, *weight = line.split("\t")
                ngram = tuple(words.split(" "))
                self.log_prob[ngram] = float(log_prob)
                self.log_backoff[ngram] = float(weight[0]) if weight else 0.0
        self.contexts = {ngram[:-1] for ngram in self.log_prob}

    def __contains__(self, word: str) -> bool:
        return word != UNKNOWN and (word,) in self.log_prob

    def BeginSentenceWrite(self, state: State) -> None:  # noqa: N802
        state.words = self._kept((BEGIN,))

    def NullContextWrite(self, state: State) -> None:  # noqa: N802
        state.words = ()

    def BaseScore(self, state: State, word: str, out: State) -> float:  # noqa: N802
        log_prob, _ = self.listed(state.words, word)
        out.words = self._kept((*state.words, word if word in self else UNKNOWN))
        return log_prob

    def full_scores(self, sentence: str, bos: bool = True, eos: bool = True) -> Iterator[tuple[float, int, bool]]:
        state = State()
        (self.BeginSentenceWrite if bos else self.NullContextWrite)(state)
        words = sentence.split()
        for word in [*words, END] if eos else words:
            yield (*self.listed(state.words, word), word not in self)
            self.BaseScore(state, word, state)

    def score(self, sentence: str, bos: bool = True, eos: bool = True) -> float:
        return sum(log_prob for log_prob, _, _ in self.full_scores(sentence, bos, eos))

    def listed(self, context: tuple[str, ...], word: str) -> tuple[float, int]:
        """log10 p(word | context), and the length of the matched n-gram."""
        ngram = (*context, word if word in self else UNKNOWN)
        if ngram in self.log_prob:
            return self.log_prob[ngram], len(ngram)
        if not context:
            return IMPOSSIBLE, 1
        log_prob, length = self.listed(context[1:], word)
        return self.log_backoff.get(context, 0.0) + log_prob, length

    def _kept(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The longest suffix of `words`, up to n−1 of them, that continues to some n-gram or has a weight."""
        words = words[max(0, len(words) - self.order + 1) :]
        while words and words not in self.contexts and not self.log_backoff.get(words):
            words = words[1:]
        return words
