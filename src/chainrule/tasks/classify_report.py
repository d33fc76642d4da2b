"""Label statistics, temperature scaling, evaluation report and HTML explanation page of text classifiers.

Shapes and symbols: N texts, K labels, T temperature.
"""

import html
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from chainrule.errors import ChainruleWarning, InputError
from chainrule.evaluation.classification import Calibration, ClassificationReport, calibration, evaluate
from chainrule.lm import Floats, Ids
from chainrule.plots.html import CONTROL_PICTURES, MAX_OPACITY
from chainrule.text.labelled import LabelledTexts

MIN_TEMPERATURE: Final = 0.5  # a validation set classified without errors would give 0
MAX_TEMPERATURE: Final = 20.0
MIN_SUSPICIOUS_TEXTS: Final = 10  # minimum number of texts for the swapped-column check
SUSPICIOUS_LABEL_RATIO: Final = 0.9  # ratio of distinct labels to texts that suggests swapped columns

POSITIVE_RGB: Final = "0,114,178"
NEGATIVE_RGB: Final = "213,94,0"
STYLE: Final = (
    ":root{color-scheme:light dark}body{max-width:60em;margin:2em auto;padding:0 1em;font:1rem/1.9 sans-serif}"
    "span{padding:.1em .2em;border-radius:.2em;white-space:pre-wrap;unicode-bidi:plaintext}"
    "article{border-top:1px solid;padding:.5em 0}article div{white-space:pre-wrap}"
    ".unknown{text-decoration:underline dotted}.unread{opacity:.5}"
)
NOTE: Final = (
    "Hover over a token to see its weight. Dotted underlines mark unknown words, which the model reads as "
    "&lt;unk&gt;; pale text was not read; &lt;/s&gt; is the end of a line or text."
)
CONTROL_SYMBOLS: Final = {code: symbol for code, symbol in CONTROL_PICTURES.items() if chr(code) not in "\t\n"}

Span = tuple[int, int]


class Legend(NamedTuple):
    """Meaning of the token weights of an explanation method."""

    colors: str
    weight: str
    sign: str

    @property
    def colored(self) -> str:
        """Legend of output in colour."""
        return f"{self.colors} {self.weight}."

    @property
    def plain(self) -> str:
        """Legend of output without colour."""
        return f"{self.weight}; {self.sign}."


_SIGNED: Final = (
    "Blue tokens support the predicted label, orange tokens the second most probable one; the stronger the colour, "
    "the larger the weight relative to the others of the text."
)
_SIGN: Final = "positive weights support the predicted label, negative weights the second most probable one"
LEGENDS: Final[Mapping[str, Legend]] = {
    "gradient": Legend(_SIGNED, "Weights are integrated gradients in nats", _SIGN),
    "evidence": Legend(
        _SIGNED,
        "Weights are in nats: log p(token | predicted label) − log p(token | second label), given the preceding "
        "tokens",
        _SIGN,
    ),
    "attention": Legend(
        "The stronger the blue, the more attention the token received relative to the others of the text; "
        "attention does not show which label a token supports.",
        "Weights are attention weights, the share of each token in the vector of the text",
        "they do not show which label a token supports",
    ),
}
"""Legend by explanation method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierReport:
    """Evaluation of predicted labels against the true ones."""

    classes: ClassificationReport
    calibration: Calibration  # after temperature scaling
    majority: str  # most frequent label in the training data
    majority_accuracy: float  # accuracy of always predicting it
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """JSON document of all figures."""
        c, k = self.classes, self.calibration
        columns = zip(c.labels, c.precision, c.recall, c.f1, c.support, strict=True)
        return {
            "texts": int(c.support.sum()),
            "accuracy": c.accuracy,
            "macro_precision": c.macro_precision,
            "macro_recall": c.macro_recall,
            "macro_f1": c.macro_f1,
            "micro_f1": c.micro_f1,
            "majority": {"label": self.majority, "accuracy": self.majority_accuracy},
            "log_loss": k.log_loss,
            "brier": k.brier,
            "expected_calibration_error": k.expected_error,
            "maximum_calibration_error": k.maximum_error,
            "labels": {
                label: {"precision": float(p), "recall": float(r), "f1": float(f), "texts": int(n)}
                for label, p, r, f, n in columns
            },
            "confusion": {
                label: dict(zip(c.labels, row, strict=True))
                for label, row in zip(c.labels, c.confusion.tolist(), strict=True)
            },
            "reliability": [
                {"above": b.low, "to": b.high, "texts": b.count, "confidence": b.confidence, "accuracy": b.accuracy}
                for b in k.bins
            ],
            "seconds": self.seconds,
        }


def count_labels(examples: LabelledTexts) -> dict[str, int]:
    """Count texts per label, sorted by label; raise or warn if the data look wrong."""
    counts, total = dict(sorted(Counter(examples.labels).items())), len(examples)
    if not total:
        raise InputError(f"{examples.name} contains no examples; give texts of two labels or more")
    if "" in counts:
        number = list(examples.labels).index("") + 1
        raise InputError(f"{examples.name}: text {number} has an empty label; give every text a label")
    if total >= MIN_SUSPICIOUS_TEXTS and len(counts) >= SUSPICIOUS_LABEL_RATIO * total:
        message = f"{examples.name} has {len(counts)} different labels for {total} texts"
        if len(set(examples.texts)) <= total / 2:
            raise InputError(
                f"{message}: label and text look swapped; put the label first, or name the columns in a header line"
            )
        warnings.warn(f"{message}: is the label the first column?", ChainruleWarning, stacklevel=3)
    if len(counts) < 2:
        raise InputError(
            f"{examples.name} has only one label, '{next(iter(counts), '')}'; a classifier needs two or more"
        )
    return counts


def encode_labels(examples: LabelledTexts, counts: dict[str, int]) -> Ids:
    """(N,) label ids; raise for a label that is not in `counts`."""
    label_ids = {label: k for k, label in enumerate(counts)}
    for i, label in enumerate(examples.labels, start=1):
        if label not in label_ids:
            raise InputError(
                f"{examples.name}, example {i} has the label {label!r}, which the training texts do not; "
                f"they have {', '.join(list(counts)[:10])}: correct or drop it"
            )
    return np.array([label_ids[label] for label in examples.labels], dtype=np.int64)


def find_unknown_labels(examples: LabelledTexts, counts: dict[str, int]) -> list[str]:
    """Sorted labels that are not in `counts`, listed in a warning."""
    unknown = sorted(set(examples.labels) - counts.keys())
    if unknown:
        listed = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        message = f"{examples.name}: not in the training data: {listed}; such labels count as errors"
        warnings.warn(f"{message}, and the log loss is infinite", ChainruleWarning, stacklevel=3)
    return unknown


def apply_temperature(log_p: Floats, temperature: float) -> Floats:
    """log softmax(log p / T): (N, K) -> (N, K)."""
    z = log_p / temperature
    return np.asarray(z - np.logaddexp.reduce(z, axis=1, keepdims=True))


def fit_temperature(log_p: Floats, gold: Ids) -> float:
    """Temperature between 0.5 and 20 that maximizes Σ log p_T(true label) (Guo et al. 2017).

    With β = 1/T the negative log-likelihood is convex in β with slope Σ (Σ_k p_k z_k − z_true), z = log p; its zero
    is found by bisection. Texts whose true label has probability 0 are ignored: no T changes that.
    """
    is_possible = np.isfinite(log_p[np.arange(len(gold)), gold])
    z, truth = log_p[is_possible], gold[is_possible]
    if not len(truth):
        return 1.0

    def slope(temperature: float) -> float:
        p = np.exp(apply_temperature(z, temperature))
        mean = (p * np.where(p > 0, z, 0.0)).sum(axis=1)  # 0 · −∞ = 0
        return float((mean - z[np.arange(len(z)), truth]).sum())

    low, high = np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)
    for _ in range(50):
        middle = (low + high) / 2
        # The slope decreases with T: if it is negative, a larger β (smaller T) still lowers the loss.
        low, high = (low, middle) if slope(float(np.exp(middle))) < 0 else (middle, high)
    return float(np.exp((low + high) / 2))


def validation_metrics(log_p: Floats, gold: Ids, temperature: float, labels: tuple[str, ...]) -> dict[str, Any]:
    """Accuracy, macro F1 and calibration error before and after temperature scaling on the validation texts."""
    classes = evaluate([labels[k] for k in gold], [labels[k] for k in log_p.argmax(axis=1)], labels)
    before, after = (calibration(np.exp(apply_temperature(log_p, T)), gold) for T in (1.0, temperature))
    return {
        "valid_accuracy": classes.accuracy,
        "valid_macro_f1": classes.macro_f1,
        "temperature": temperature,
        "valid_calibration_error_before": before.expected_error,
        "valid_calibration_error": after.expected_error,
    }


class WeightedSpan(NamedTuple):
    """A span text[start:end] with its weight; `</s>` at the end of a text or line is an empty span."""

    text: str
    weight: float
    start: int
    end: int
    is_known: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """One classified text and the weights of its spans; `method` is the explanation method."""

    text: str
    label: str
    probability: float
    spans: list[WeightedSpan]
    method: str = "gradient"

    @property
    def shades(self) -> list[tuple[str, float]]:
        """Printable text and weight relative to the largest, −1 to 1, of each span."""
        largest = max((abs(piece.weight) for piece in self.spans), default=0.0)
        return [
            (piece.text.translate(CONTROL_PICTURES), _relative_weight(piece.weight, largest))
            for piece in self.spans
        ]


def merge_token_weights(
    text: str, spans: Sequence[Span], weights: Sequence[float], is_known: Sequence[bool], end: str
) -> list[WeightedSpan]:
    """Convert token weights to weighted character spans without surrounding white space.

    Tokens that overlap in the text (bytes of one character, or the results of lower-casing it) are merged: their
    weights are summed, and the span is known if all are. `end` is the text of a token without characters.
    """
    pieces: list[WeightedSpan] = []
    for (start, stop), weight, known in zip(spans, weights, is_known, strict=True):
        if pieces and start < pieces[-1].end:
            last = pieces.pop()
            start, weight, known = last.start, last.weight + weight, last.is_known and known
            stop = max(stop, last.end)
        start, stop = _strip_span(text, start, stop)
        pieces.append(WeightedSpan(text[start:stop] or end, weight, start, stop, known))
    return pieces


def render_page(explained: Sequence[Explanation]) -> str:
    """Render the HTML document."""
    articles = "\n".join(map(_article, explained))
    methods = dict.fromkeys(explanation.method for explanation in explained)
    legend = " ".join(html.escape(LEGENDS[method].colored) for method in methods)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Predicted labels explained</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>Predicted labels explained</h1><p>{legend} {NOTE}</p>\n"
        f"{articles}\n</body></html>\n"
    )


def _article(explanation: Explanation) -> str:
    content, position = "", 0
    for piece, (shown, shade) in zip(explanation.spans, explanation.shades, strict=True):
        css_class, remark = ("", "") if piece.is_known else (' class="unknown"', ", unknown")
        background = f"rgba({POSITIVE_RGB if shade > 0 else NEGATIVE_RGB},{MAX_OPACITY * abs(shade):.2f})"
        title = f"{piece.weight:+.4f}{remark}"
        content += _escape_text(explanation.text[position : piece.start]) + " " * (piece.start == piece.end)
        content += f'<span{css_class} style="background:{background}" title="{title}">{html.escape(shown)}</span>'
        position = piece.end
    rest = _escape_text(explanation.text[position:])
    if rest.strip():
        rest = f'<span class="unread" title="not read: the text is too long">{rest}</span>'
    head = f"<strong>{html.escape(explanation.label)}</strong> {explanation.probability:.3f}"
    return f'<article>{head}<div dir="auto">{content}{rest}</div></article>'


def _escape_text(text: str) -> str:
    return html.escape(text.replace("\r\n", "\n").replace("\r", "\n").translate(CONTROL_SYMBOLS))


def _strip_span(text: str, start: int, end: int) -> Span:
    """Strip white space from a span; a span of white space alone is unchanged."""
    inner = text[start:end].strip(" \t\r\n")
    if not inner:
        return start, end
    start = text.index(inner, start)
    return start, start + len(inner)


def _relative_weight(weight: float, largest: float) -> float:
    """Weight divided by the largest; ±1 or 0 if the largest is infinite."""
    if largest == float("inf"):
        return float(weight == largest) - float(weight == -largest)
    return weight / largest if largest else 0.0
