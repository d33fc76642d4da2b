"""Format sizes, durations, counts and metrics for display."""

import math


def format_size(count: int) -> str:
    """Format a number of bytes in decimal units.

    >>> format_size(980), format_size(12_345), format_size(4_200_000)
    ('980 B', '12.3 kB', '4.2 MB')
    """
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.95 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def format_count(number: int, noun: str) -> str:
    """Format a count with its noun in singular or plural.

    >>> format_count(1, "line"), format_count(1200, "line")
    ('1 line', '1,200 lines')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Format a duration in its two largest units.

    >>> format_duration(0.0421), format_duration(9.5), format_duration(75), format_duration(3720)
    ('0.04 s', '9.5 s', '1 min 15 s', '1 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60} min"


def format_perplexity(value: float) -> str:
    """Format a perplexity with about four digits; ∞ if infinite.

    >>> [format_perplexity(value) for value in (7.123, 143.21, 20345.6, float("inf"))]
    ['7.12', '143.2', '20,346', '∞']
    """
    if not math.isfinite(value):
        return "∞" if math.isinf(value) else "–"
    if value >= 1e9:
        return f"{value:.2e}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def format_bits(value: float) -> str:
    """Format bits per byte with three decimals.

    >>> format_bits(1.53249), format_bits(float("inf"))
    ('1.532', '∞')
    """
    return f"{value:.3f}" if math.isfinite(value) else "∞" if math.isinf(value) else "–"


def format_percent(fraction: float) -> str:
    """Format a fraction as a percentage; small ones keep decimals.

    >>> format_percent(0.3456), format_percent(0.0123), format_percent(0.0001)
    ('35%', '1.2%', '0.01%')
    """
    percent = 100 * fraction
    decimals = 0 if abs(percent) >= 10 else 1 if abs(percent) >= 0.1 else 2
    return f"{percent:.{decimals}f}%"


def join_words(words: list[str]) -> str:
    """Join words as an English enumeration.

    >>> join_words(["a"]), join_words(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
