"""An example comparison result: five orders of ten smoothing methods, by a formula."""

import math

from chainrule.comparison.results import Curve, Results, Row, Sentence, SplitInfo, Surprisal

EXCESS = {  # bits per byte above the best smoothing, at orders 1 and 5
    "modified-kneser-ney": (0.0, 0.0),
    "kneser-ney": (0.001, 0.017),
    "absolute": (0.002, 0.046),
    "witten-bell": (0.004, 0.061),
    "jelinek-mercer": (0.003, 0.074),
    "katz": (0.006, 0.113),
    "add-k": (0.005, 0.62),
    "laplace": (0.012, 1.18),
    "mle": (0.0, 0.0),
    "stupid-backoff": (0.001, 0.0),
}
FLOOR = {1: 2.241, 2: 1.842, 3: 1.727, 4: 1.702, 5: 1.698}
HOSTILE = '<script>alert("1")</script> & so on'
BYTES_PER_TOKEN = 5.6
SAMPLE = "the module returns a new object of the same type, and the rest of the arguments are passed on to it"


def bits_of(order: int, smoothing: str) -> float:
    at_one, at_five = EXCESS[smoothing]
    return FLOOR[order] + at_one + (at_five - at_one) * math.pow((order - 1) / 4, 1.6)


def ngram_row(order: int, smoothing: str) -> Row:
    is_infinite = smoothing == "mle"
    bits = math.inf if is_infinite else bits_of(order, smoothing)
    notes = {
        "mle": "infinite: first impossible token 'mice' on line 3",
        "stupid-backoff": "a score, not a probability",
    }
    return Row(
        name=f"ngram-{order}-{smoothing}",
        family="ngram",
        parameters=9_000 * 3 ** (order - 1),
        size_bytes=120_000 * 3 ** (order - 1) + 900 * len(smoothing),
        train_seconds=0.4 * order,
        train_tokens_per_second=1_100_000 / order,
        perplexity=2 ** (bits * BYTES_PER_TOKEN),
        perplexity_per_word=2 ** (bits * BYTES_PER_TOKEN * 1.1),
        bits_per_byte=bits,
        sample=SAMPLE,
        is_ranked=smoothing not in notes,
        note=notes.get(smoothing, ""),
        facets={"order": order, "smoothing": smoothing},
    )


def neural_row(name: str, bits: float) -> Row:
    return Row(
        name=name,
        family=name,
        parameters=1_200_000,
        size_bytes=4_800_000,
        train_seconds=312.0,
        train_tokens_per_second=8_000.0,
        perplexity=2 ** (bits * BYTES_PER_TOKEN),
        perplexity_per_word=2 ** (bits * BYTES_PER_TOKEN * 1.1),
        bits_per_byte=bits,
        sample="and the function is called",
        is_ranked=True,
        facets={"layers": 2},
    )


def curve(order: int, smoothing: str) -> Curve:
    tokens = tuple(440_000 // 2**halvings for halvings in range(6, -1, -1))
    full = bits_of(order, smoothing)
    bits = tuple(full + 0.035 * order * math.log2(tokens[-1] / some) for some in tokens)
    size = tuple(round(some * BYTES_PER_TOKEN) for some in tokens)
    return Curve(name=f"ngram-{order}-{smoothing}", tokens=tokens, bytes=size, bits_per_byte=bits)


def sentence(text: str, *costs: tuple[float, ...]) -> Sentence:
    tokens = (*text.split(), "</s>")
    names = ("ngram-1-modified-kneser-ney", "ngram-5-modified-kneser-ney", "ngram-5-mle")
    readings = zip(names, costs, strict=False)
    return Sentence(
        text=text, by_model=tuple(Surprisal(name=name, tokens=tokens, bits=bits) for name, bits in readings)
    )


SENTENCES = (
    sentence(
        "the function returns a list of strings",
        (4.1, 9.3, 9.9, 5.2, 10.4, 5.0, 11.2, 4.3),
        (2.8, 6.1, 3.2, 1.4, 4.9, 0.4, 3.3, 1.1),
        (2.7, 6.0, 2.9, 1.3, 4.4, 0.2, math.inf, math.inf),
    ),
    sentence("mice return <b>nothing</b> &amp;", (16.5, 9.0, 17.2, 14.1, 4.3), (15.1, 12.4, 18.0, 13.2, 5.0)),
    sentence(
        "הפונקציה מחזירה רשימה של מחרוזות",
        (15.0, 13.1, 11.0, 5.1, 12.2, 4.4),
        (14.0, 8.1, 4.2, 1.1, 5.2, 1.0),
    ),
)

SPLIT = SplitInfo(
    train_lines=16_320,
    valid_lines=1_020,
    test_lines=1_020,
    train_tokens=440_000,
    test_tokens=27_500,
    test_bytes=154_000,
    seed=1,
)


def results(
    rows: tuple[Row, ...] | None = None,
    curves: tuple[Curve, ...] | None = None,
    sentences: tuple[Sentence, ...] = SENTENCES,
    text: str = "The Python documentation",
) -> Results:
    grid = tuple(ngram_row(order, smoothing) for order in FLOOR for smoothing in EXCESS)
    chosen = tuple(curve(order, "modified-kneser-ney") for order in FLOOR)
    return Results(
        text=text,
        text_sha256="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        tokenizer="word, 9,214 types",
        split=SPLIT,
        rows=grid if rows is None else rows,
        curves=chosen if curves is None else curves,
        sentences=sentences,
        command="chainrule compare --out runs/compare --seed 1",
        versions={"chainrule": "0.1.0", "python": "3.11.9", "numpy": "2.4.6"},
        seconds=83.2,
    )
