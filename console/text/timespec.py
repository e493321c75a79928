"""Parser of durations and points in time: one grammar for all options, dialogs and configuration keys.

- `300ms`, `90s`, `15m`, `2h`, `2d`, `4w` (Duration); as a point in time: after the start.
- `+10m`, `-5m` (Offset): from now; without a now, `+` is after the start and `-` before the end.
- `50%` (Percentage): between the start and the end.
- `14:02`, `14:02:30`, `14:02:30.250` (TimeOfDay): local time; the first within the recording, else on its first day.
- `2026-11-21T08:30:00`, `2026-11-21T08:30:00+01:00` (Timestamp): ISO 8601; local time without an offset.

Start and end are those of the recording. Now is the position of a replay on the screen: its time dialog has one;
`export --from`, `--to` and `replay --at` have none. Only a Duration is a duration. A number needs its unit.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from datetime import datetime

_UNITS_NS: Final = {
    "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86_400 * 10**9, "w": 604_800 * 10**9,
}  # fmt: skip
#: A duration with its unit, for configuration keys that are checked by a pattern.
DURATION_PATTERN: Final = r"^[0-9]{1,12}(\.[0-9]{1,9})?(ms|s|m|h|d|w)\Z"
_LENGTH: Final = re.compile(r"([+-]?)([0-9]{1,12})(?:\.([0-9]{1,9}))?(ms|s|m|h|d|w)")
_PERCENTAGE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)%")
_TIME_OF_DAY: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?")


#: The forms of an instant in the help of an option that has a start and an end, but no now.
INSTANT_FORMS: Final = "90s (after the start), -5m (before the end), 50%, 14:02:30 or 2026-11-21T08:30:00"
#: The same for the time dialog of a replay, which has a now.
INSTANT_FORMS_FROM_NOW: Final = (
    "90s (after the start), +90s or -5m (from here), 50%, 14:02:30 (local time) or 2026-11-21T08:30:00"
)


class TimeSpecError(ValueError):
    """The text is not a duration, or not an instant."""


class Duration(msgspec.Struct, frozen=True):
    """A length of time."""

    ns: int

    def __str__(self) -> str:
        if not self.ns:
            return "0s"
        unit = next(unit for unit, ns in reversed(_UNITS_NS.items()) if self.ns % ns == 0 or unit == "ms")
        whole, rest = divmod(self.ns, _UNITS_NS[unit])
        return f"{whole}{f'.{rest:06d}' if rest else ''}{unit}"


class Offset(msgspec.Struct, frozen=True):
    """A length of time forwards, or backwards where `ns` is negative."""

    ns: int
    is_backwards: bool  # tells -0s, which is the end, from +0s, which is the start

    def __str__(self) -> str:
        return f"{'-' if self.is_backwards else '+'}{Duration(abs(self.ns))}"


class Percentage(msgspec.Struct, frozen=True):
    """A share of a recording, from 0 at its start to 100 at its end."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:.9f}".rstrip("0").rstrip(".") + "%"


class TimeOfDay(msgspec.Struct, frozen=True):
    """A local time, on a day that the recording decides."""

    hour: int
    minute: int
    second: int = 0
    ns: int = 0  # within the second

    def __str__(self) -> str:
        fraction = f".{self.ns:09d}".rstrip("0") if self.ns else ""
        return f"{self.hour:02d}:{self.minute:02d}:{self.second:02d}{fraction}"


class Timestamp(msgspec.Struct, frozen=True):
    """An instant, ns since the epoch."""

    ns: int

    def __str__(self) -> str:
        from datetime import datetime  # here and below: --help need not load it

        seconds, ns = divmod(self.ns, 10**9)
        return datetime.fromtimestamp(seconds).astimezone().replace(microsecond=ns // 1000).isoformat()


TimeSpec = Duration | Offset | Percentage | TimeOfDay | Timestamp


def parse(text: str) -> TimeSpec:
    """The duration or instant that a text means. Raises TimeSpecError."""
    text = text.strip()
    if match := _LENGTH.fullmatch(text):
        ns = _length_ns(match)
        if match[1]:
            return Offset(-ns if match[1] == "-" else ns, match[1] == "-")
        return Duration(ns)
    if match := _PERCENTAGE.fullmatch(text):
        if float(match[1]) > 100:
            raise TimeSpecError(f"{text!r} is beyond the end; use 0% to 100%")
        return Percentage(float(match[1]))
    if match := _TIME_OF_DAY.fullmatch(text):
        hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
        if hour > 23 or minute > 59 or second > 59:
            raise TimeSpecError(f"{text!r} is not a time of day; use 00:00:00 to 23:59:59")
        return TimeOfDay(hour, minute, second, int((match[4] or "").ljust(9, "0")))
    from datetime import datetime

    try:
        return Timestamp(_epoch_ns(datetime.fromisoformat(text).astimezone()))
    except (ValueError, OverflowError, OSError) as error:  # the last two for years that have no local time
        raise TimeSpecError(
            f"{_quoted(text)} is not a time; use 14:02:30, 90s, -5m, 50% or 2026-11-21T08:30:00"
        ) from error


def duration_s(text: str) -> float:
    """A duration in seconds. Raises TimeSpecError."""
    text = text.strip()
    match = _LENGTH.fullmatch(text)
    if match is None or match[1]:
        raise TimeSpecError(f"{_quoted(text)} is not a duration; use 90s, 15m or 2h")
    return _length_ns(match) / 1e9


def instant_ns(text: str, start: int, end: int, *, now: int | None = None, earliest: int | None = None) -> int:
    """The instant that a text means in a recording from `start` to `end`, ns since the epoch; may be outside of it.

    `now` is the position of a replay. A time of day is the first one not before `earliest`. Raises TimeSpecError.
    """
    match parse(text):
        case Duration(ns):
            return start + ns
        case Offset(ns, is_backwards):
            return ns + (now if now is not None else end if is_backwards else start)
        case Percentage(value):
            return start + int((end - start) * value / 100)
        case TimeOfDay() as time_of_day:
            return _on_a_day(time_of_day, start, end, start if earliest is None else earliest)
        case Timestamp(ns):
            return ns


def _on_a_day(wanted: TimeOfDay, start: int, end: int, earliest: int) -> int:
    """The first such local time from `earliest` to `end`; else that of the first day."""
    first = time.localtime(start // 10**9)
    days = range((end - start) // _UNITS_NS["d"] + 2)
    instants = (
        int(time.mktime((first.tm_year, first.tm_mon, first.tm_mday + day, wanted.hour, wanted.minute, wanted.second,
                         0, 0, -1))) * 10**9 + wanted.ns
        for day in days
    )  # fmt: skip
    # a time without a fraction means the whole of its second
    tolerance = 0 if wanted.ns else 10**9 - 1
    on_first_day = next(instants)
    if earliest - tolerance <= on_first_day <= end:
        return on_first_day
    return next((instant for instant in instants if earliest - tolerance <= instant <= end), on_first_day)


def _length_ns(match: re.Match[str]) -> int:
    unit = _UNITS_NS[match[4]]
    return int(match[2]) * unit + int((match[3] or "").ljust(9, "0")) * unit // 10**9


def _epoch_ns(moment: datetime) -> int:
    """Exactly, which a float of seconds is not."""
    return int(moment.replace(microsecond=0).timestamp()) * 10**9 + moment.microsecond * 1000


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")
