"""Figures as people read them. What is unknown is `–`, never 0."""

from __future__ import annotations

from .cells import clean

UNKNOWN = "–"
_SECOND = 1_000_000_000


def count(value: int | None) -> str:
    """18204 → "18 204": groups of three, because one glance must give the magnitude."""
    return UNKNOWN if value is None else f"{value:,}".replace(",", " ")


def value(value: int | float | str | None) -> str:
    """Whatever a variable of somebody's program holds: 18204 → "18 204", 0.0123456 → "0.01235"."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return clean(value) if isinstance(value, str) else count(value)


def seen(found: int | None, expected: int | None) -> str:
    """Seen of expected: "62/64", "62/–" where nobody knows how many there should be."""
    return f"{UNKNOWN if found is None else found}/{UNKNOWN if expected is None else expected}"


def percent(value: float | None) -> str:
    """A share or a load without its sign: "97", "0.4" below ten where the digit says something."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if 0 < value < 9.95 else f"{value:.0f}"


def whole(value: float | None) -> str:
    """A figure without fraction."""
    return UNKNOWN if value is None else f"{value:.0f}"


def size(value: int | None) -> str:
    """Bytes in binary units, four characters and the unit at most: "1.4G", "812M"."""
    if value is None:
        return UNKNOWN
    amount = float(value)
    for unit in ("B", "K", "M", "G", "T"):
        if amount < 999.5:
            return f"{amount:.0f}{unit}" if amount >= 99.5 or unit == "B" else f"{amount:.1f}{unit}"
        amount /= 1024
    return f"{amount:.1f}P"


def byte_rate(value: float | None) -> str:
    """Bytes a second in binary units: "12M"."""
    return UNKNOWN if value is None else size(int(value))


def rate(value: float | None) -> str:
    """Something a second, in decimal units: "840", "12k"."""
    if value is None:
        return UNKNOWN
    for unit in ("", "k", "M"):
        if value < 9_999.5 or (unit and value < 999.5):
            return f"{value:.0f}{unit}"
        value /= 1000
    return f"{value:.0f}G"


def age(ns: int | None) -> str:
    """How long ago, as one number and its unit: "0.4 s", "12 s", "3 min", "2 h"."""
    if ns is None:
        return UNKNOWN
    seconds = max(0, ns) / _SECOND
    if seconds < 0.95:
        return f"{seconds:.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 99.5:
        return f"{minutes:.0f} min"
    hours = minutes / 60
    return f"{hours:.0f} h" if hours < 47.5 else f"{hours / 24:.0f} d"


def clock_time(ns: int) -> str:
    """An instant of the console's clock as local time, "14:02:11"."""
    from time import localtime, strftime

    return strftime("%H:%M:%S", localtime(ns / _SECOND))


def length(ns: int) -> str:
    """How long something takes or took: 00:12:41."""
    seconds = max(0, ns) // 1_000_000_000
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
