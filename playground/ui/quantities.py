"""Numbers as a visitor reads them.

Knows significant digits and which unit is easiest to read. Must not know what was measured.
"""


def seconds(value: float) -> str:
    """A duration: three significant digits at most, milliseconds below a second."""
    if value < 0.00095:
        return "< 1 ms"
    if value < 0.00995:
        return f"{value * 1000:.1f} ms"
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 9.95:
        return f"{value:.2f} s"
    if value < 99.5:
        return f"{value:.1f} s"
    return f"{value:.0f} s"


def as_shown(value: float) -> float:
    """The number of seconds that `seconds` writes, so that derived numbers agree with it."""
    *_, number, unit = seconds(value).split()
    return float(number) / (1000 if unit == "ms" else 1)


def seconds_or_dash(value: float | None) -> str:
    return "–" if value is None else seconds(value)


def fine_seconds(value: float) -> str:
    """A duration that may be shorter than a millisecond: then in microseconds."""
    if value < 0.0009995:
        return f"{value * 1e6:.0f} µs"
    return seconds(value)


def elapsed(value: float) -> str:
    """A duration that is still growing: whole seconds, so that it does not flicker."""
    whole = max(0, int(value))
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"


def about(value: float) -> str:
    """An estimated duration: two significant digits."""
    if value < 0.995:
        return f"{float(f'{1000 * max(value, 0.001):.2g}'):g} ms"
    if value < 99.5:
        return f"{float(f'{value:.2g}'):g} s"
    whole = 10 * round(value / 10)
    return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"


def rate(value: float | None) -> str:
    """Tokens per second, or a dash when nothing was generated."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}"


def times(value: float) -> str:
    """A factor: two significant digits, without meaningless decimals."""
    if value < 9.95:
        return f"{value:.1f}×"
    return f"{value:,.0f}×"


def count(number: int, noun: str) -> str:
    """A number with its noun: "1 token", "12 tokens"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def of_calls(n: int) -> str:
    """Where a median comes from."""
    return "one call" if n == 1 else f"median of {n}"


def file_size(size: int) -> str:
    """Bytes in megabytes, or in gigabytes from 1,000 MB on."""
    if size >= 999.5e6:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.0f} MB" if size >= 9.95e6 else f"{size / 1e6:.1f} MB"
