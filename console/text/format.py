"""Figures as text, for screens, text output, findings and pages. Unknown is `–`, never 0.

JSON does not use them: it has numbers in base units, and instants as `iso` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .cells import clean

UNKNOWN = "–"
_SECOND = 1_000_000_000


# -- numbers -----------------------------------------------------------------------------------------------------------


def count(value: float | None) -> str:
    """A whole number, its thousands apart: "18,204"."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def number(value: float | None) -> str:
    """At most one decimal, and none from 100 on: "18,204", "91", "41.2"."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:.1f}"


def value(value: int | float | str | None) -> str:
    """A variable of a training program: 18204 → "18,204", 0.0123456 → "0.01235"."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return clean(value) if isinstance(value, str) else count(value)


def plural(value: float | None, noun: str, many: str = "") -> str:
    """A number and its noun: "1 sample", "18,204 samples", "2 processes". `many` is an irregular plural."""
    regular = f"{noun}es" if noun.endswith(("s", "x", "ch")) else f"{noun}s"
    return f"{number(value)} {noun if value == 1 else many or regular}"


def some(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are: "node1, node2 and 3 more"."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def seen(seen: int | None, expected: int | None) -> str:
    """A part of what is expected: "62/64", "62/–" if it is unknown how many there should be."""
    return f"{UNKNOWN if seen is None else seen}/{UNKNOWN if expected is None else expected}"


def percent(value: float | None) -> str:
    """A percentage without its sign: "97", and below ten with a decimal, "0.4"."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if 0 < value < 9.95 else f"{value:.0f}"


def whole(value: float | None) -> str:
    """A figure without decimals."""
    return UNKNOWN if value is None else f"{value:.0f}"


def rate(value: float | None) -> str:
    """Events per second in decimal units: "840", "12k"."""
    if value is None:
        return UNKNOWN
    for unit in ("", "k", "M"):
        if value < 9_999.5 or (unit and value < 999.5):
            return f"{value:.0f}{unit}"
        value /= 1000
    return f"{value:.0f}G"


# -- bytes -------------------------------------------------------------------------------------------------------------


#: Prefixes of sizes, on the screen and as typed: the power of 1024.
SIZE_PREFIXES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def parse_size(text: str) -> int:
    """Bytes of a size in binary units, with or without "iB": "40G", "40 GiB", "1.5t". Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ?([KMGTP]?)(?:(?<=[KMGTP])I?B|B)?", text.strip().upper())
    if match is None:
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise ValueError(f"{shown!r} is not a size; use 40G or 512MiB")
    return int(float(match[1]) * 1024 ** SIZE_PREFIXES[match[2]])


def size(value: float | None) -> str:
    """Bytes in binary units: "812 B", "42.0 GiB"."""
    if value is None:
        return UNKNOWN
    if value < 1024:
        return f"{value:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1023.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} PiB"


def size_compact(value: float | None) -> str:
    """Bytes in binary units for a narrow column, five characters at most: "812B", "42.0G"; per second under "/s"."""
    if value is None:
        return UNKNOWN
    for unit in ("B", "K", "M", "G", "T"):
        if value < 999.5:
            return f"{value:.0f}{unit}" if value >= 99.5 or unit == "B" else f"{value:.1f}{unit}"
        value /= 1024
    return f"{value:.0f}P" if value >= 99.5 else f"{value:.1f}P"


def byte_rate(value: float | None) -> str:
    """Bytes per second in binary units: "1.2 GiB/s"."""
    return UNKNOWN if value is None else f"{size(value)}/s"


def bandwidth(bytes_s: float) -> str:
    """The bandwidth of an NVLink or PCIe link in decimal GB/s, as vendors state it: "478 GB/s", "26.6 GB/s"."""
    amount = bytes_s / 1e9
    return f"{amount:.0f} GB/s" if amount >= 99.5 else f"{amount:.3g} GB/s"


def link_rate(bytes_s: float | None) -> str:
    """Traffic of an NVLink or PCIe link in the unit of its bandwidth, nine characters at most: "24.7 GB/s"."""
    if bytes_s is None:
        return UNKNOWN
    amount = bytes_s / 1e9
    digits = 0 if amount >= 99.95 or not amount else 1 if amount >= 9.995 else 2
    return f"{amount:.{digits}f} GB/s"


def port_speed(bytes_s: float) -> str:
    """The speed of a network port in bits, as vendors state it: "400 Gb/s"."""
    return f"{bytes_s * 8 / 1e9:g} Gb/s"


# -- durations ---------------------------------------------------------------------------------------------------------


def duration(ns: int | None) -> str:
    """A length of time in its two largest units: "30 ms", "0.4 s", "12 s", "2 min 30 s", "1 h 12 min", "3 d 4 h"."""
    if ns is None:
        return UNKNOWN
    seconds = max(0, ns) / _SECOND
    if 0.0005 <= seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0", "")
    total = round(seconds)
    units = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
    first = next(i for i, (_, length) in enumerate(units) if total >= length)
    parts = [(total // units[first][1], units[first][0])]
    if first + 1 < len(units):
        parts.append((total % units[first][1] // units[first + 1][1], units[first + 1][0]))
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount)


def seconds(value: float | None) -> str:
    """A length of time given in seconds, as `duration` prints it."""
    return UNKNOWN if value is None else duration(round(value * _SECOND))


def step_time(value: float) -> str:
    """How long a step takes, given in seconds, with three digits: "369 ms", "1.35 s", "12.4 s", "3 min 20 s"."""
    if value < 0.9995:
        return f"{1e3 * value:.3g} ms"
    return f"{value:#.3g} s" if value < 99.95 else seconds(value)


def duration_compact(ns: int | None) -> str:
    """A length of time for a column: "00:12:41" (hours, minutes, seconds)."""
    if ns is None:
        return UNKNOWN
    seconds = max(0, ns) // _SECOND
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def age(ns: int | None) -> str:
    """How long ago, in one unit: "0.4 s", "12 s", "3 min", "2 h"."""
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


# -- instants: ns since the epoch; 0 is unknown ------------------------------------------------------------------------


def clock_time(ns: int | None) -> str:
    """Local time of day: "14:02:11"."""
    return _local(ns, "%H:%M:%S")


def clock_time_ms(ns: int | None) -> str:
    """Local time of day to the millisecond: "14:02:11.042"."""
    return f"{clock_time(ns)}.{ns % _SECOND // 1_000_000:03d}" if ns else UNKNOWN


def date(ns: int | None) -> str:
    """Local date: "2026-11-21"."""
    return _local(ns, "%Y-%m-%d")


def date_time(ns: int | None) -> str:
    """Local date and time of day: "2026-11-21 14:02:11"."""
    return _local(ns, "%Y-%m-%d %H:%M:%S")


def date_time_ms(ns: int | None) -> str:
    """Local date and time of day to the millisecond: "2026-11-21 14:02:11.042"."""
    return f"{date(ns)} {clock_time_ms(ns)}" if ns else UNKNOWN


def file_stamp(ns: int) -> str:
    """Local date and time of day as a part of a file name: "20261121-140211"."""
    return _local(ns, "%Y%m%d-%H%M%S")


def iso(ns: int | None) -> str | None:
    """ISO 8601 in UTC with microseconds, for JSON; None for an unknown instant."""
    from datetime import UTC, datetime

    if not ns:
        return None
    return datetime.fromtimestamp(ns // 1000 / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _local(ns: int | None, pattern: str) -> str:
    from time import localtime, strftime

    return strftime(pattern, localtime(ns // _SECOND)) if ns else UNKNOWN


def date_time_zone(ns: int | None) -> str:
    """Local date and time of day with the name of the time zone: "2026-11-21 14:02:11 CET"."""
    return _local(ns, "%Y-%m-%d %H:%M:%S %Z")


def integer(value: int | None) -> str:
    """A number that is not a quantity: a pid, an index."""
    return UNKNOWN if value is None else str(value)


def micro(ns: float | None, *, signed: bool = False, digits: int = 3) -> str:
    """Nanoseconds as microseconds with three significant digits: "0.41", "12.3", "812", "+5,013"; or with two."""
    if ns is None:
        return UNKNOWN
    us = ns / 1000
    decimals = digits - 1
    while decimals and abs(us) >= 10 ** (digits - decimals) - 0.5 * 10**-decimals:
        decimals -= 1
    return f"{us:{'+' if signed else ''},.{decimals}f}"


def millis(ns: float | None, *, signed: bool = False) -> str:
    """Nanoseconds as milliseconds with three significant digits: "41.2", "0.203"."""
    if ns is None:
        return UNKNOWN
    ms = ns / 1e6
    size = abs(ms)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return f"{ms:{'+' if signed else ''},.{digits}f}"


def comma_words(text: str) -> tuple[str, ...]:
    """The words of a comma-separated list, without blanks and empty words."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


#: Display words of states that differ from the record.
_STATE_WORDS = {
    "moving": "running",
    "idle": "waiting",
    "uninterruptible": "D state",
    "expected": "pending",
    "found": "discovered",
    "held down": "throttled",
}


def state_word(state: str) -> str:
    """A state as the screen shows it: `running` for `moving`, underscores as blanks."""
    return _STATE_WORDS.get(state) or state.replace("_", " ")
