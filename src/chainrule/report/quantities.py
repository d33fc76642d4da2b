"""Numbers as people read them: sizes, durations, counts, figures of merit.

Lives here: number -> str, nothing of HTML.
"""

import math


def size(count: int) -> str:
    """Bytes in decimal units.

    >>> size(980), size(12_345), size(4_200_000)
    ('980 B', '12.3 kB', '4.2 MB')
    """
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.95 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def count(number: int, noun: str) -> str:
    """A number of things, with the noun in the singular or the plural.

    >>> count(1, "line"), count(1200, "line")
    ('1 line', '1,200 lines')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time span in its two largest units.

    >>> duration(0.0421), duration(9.5), duration(75), duration(3720)
    ('0.04 s', '9.5 s', '1 min 15 s', '1 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60} min"


def perplexity(value: float) -> str:
    """About four digits; ∞ where a token was impossible.

    >>> perplexity(7.123), perplexity(143.21), perplexity(20345.6), perplexity(float("inf"))
    ('7.12', '143.2', '20,346', '∞')
    """
    if not math.isfinite(value):
        return "∞" if math.isinf(value) else "–"
    if value >= 1e9:
        return f"{value:.2e}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def bits(value: float) -> str:
    """Bits per byte: three decimals tell close models apart.

    >>> bits(1.53249), bits(float("inf"))
    ('1.532', '∞')
    """
    return f"{value:.3f}" if math.isfinite(value) else "∞" if math.isinf(value) else "–"


def share(fraction: float) -> str:
    """A fraction in percent; small ones keep a decimal.

    >>> share(0.3456), share(0.0123), share(0.0001)
    ('35%', '1.2%', '0.01%')
    """
    percent = 100 * fraction
    decimals = 0 if abs(percent) >= 10 else 1 if abs(percent) >= 0.1 else 2
    return f"{percent:.{decimals}f}%"


def listing(words: list[str]) -> str:
    """Words as an English sentence lists them.

    >>> listing(["a"]), listing(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
