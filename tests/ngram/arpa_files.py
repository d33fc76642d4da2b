"""Small ARPA files and helpers to score text with a model read from one."""

from pathlib import Path

import numpy as np
from numpy.testing import assert_allclose

from chainrule.lm import Batch, Vocabulary
from chainrule.ngram.arpa import Arpa, read
from chainrule.ngram.model import NgramModel

TINY = r"""\data\
ngram 1=5
ngram 2=2
ngram 3=1

\1-grams:
-1	<unk>
-99	<s>	-0.5
-0.6	</s>
-0.3	a	-0.2
-0.4	b	-0.1

\2-grams:
-0.1	<s> a
-0.2	a b	-0.05

\3-grams:
-0.07	<s> a b

\end\
"""

PRUNED = r"""\data\
ngram 1=5
ngram 2=1
ngram 3=0
ngram 4=1
\1-grams:
-1 </s>
-0.9 <s> -0.5
-0.8 a -0.3
-0.7 b -0.2
-0.6 c -0.1
\2-grams:
-0.4 b c -0.15
\3-grams:
\4-grams:
-0.2 a b c </s>
\end\
"""


Entries = dict[tuple[str, ...], tuple[float, float]]


def model_of(arpa: Arpa) -> NgramModel:
    V = len(arpa.words) + 3
    return NgramModel(arpa.engine, Vocabulary(V, bos=V - 2, eos=V - 1, unk=0, closed=not arpa.has_unk))


def read_text(folder: Path, text: str | bytes) -> Arpa:
    path = folder / "model.arpa"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(path)


def log10_scores(arpa: Arpa, sentence: str) -> list[float]:
    """log10 p of each word and of `</s>`."""
    lm = model_of(arpa)
    names = [arpa.unk, *arpa.words, "<s>", "</s>"]
    ids = np.array([[names.index(word) if word in names else 0 for word in [*sentence.split(), "</s>"]]])
    inputs = np.insert(ids[:, :-1], 0, lm.vocabulary.bos, axis=1)
    log_p, _ = lm.score(Batch(inputs, ids, np.ones(ids.shape, dtype=bool)), lm.start(1))
    return (log_p[0] / np.log(10)).tolist()  # type: ignore[no-any-return]


def expect(arpa: Arpa, sentence: str, log10: list[float]) -> None:
    assert_allclose(log10_scores(arpa, sentence), log10, rtol=1e-6)


def arpa_text(entries: Entries, order: int) -> str:
    """The ARPA file of these n-grams: (log10 p, log10 back-off weight)."""
    by_order = [{g: v for g, v in entries.items() if len(g) == n} for n in range(1, order + 1)]
    lines = ["\\data\\", *(f"ngram {n}={len(some)}" for n, some in enumerate(by_order, start=1))]
    for n, some in enumerate(by_order, start=1):
        lines.append(f"\\{n}-grams:")
        lines += [f"{p}\t{' '.join(g)}" + (f"\t{b}" if n < order else "") for g, (p, b) in some.items()]
    return "\n".join([*lines, "\\end\\"])
