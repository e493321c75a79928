"""Monotonic counters that wrap or restart: gain and rate since the previous reading."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Hashable


class Counters(object):
    """The last value of each counter of one device, by name."""

    def __init__(self) -> None:
        self._last: "dict[Hashable, tuple[int, float]]" = {}
        self._totals: "dict[Hashable, int]" = {}  # counters without a rate

    def growth(self, name: "Hashable", value: int, bits: int) -> int:
        """Gain since the last reading, 0 if unknown. For error counters, which rarely change."""
        before = self._totals.get(name)
        if before == value:
            return 0
        self._totals[name] = value
        return _gain(before, value, bits) or 0 if before is not None else 0

    def gained(self, name: "Hashable", value: int, bits: int, now: float) -> "tuple[int, float] | None":
        """(gain, seconds) since the last reading; None at the first one and after a restart of the counter."""
        before = self._last.get(name)
        self._last[name] = (value, now)
        if before is None or now <= before[1]:
            return None
        gain = _gain(before[0], value, bits)
        return (gain, now - before[1]) if gain is not None else None

    def rate(self, name: "Hashable", value: int, bits: int, now: float, unit: float = 1) -> "float | None":
        """Rate in units of `unit` per second, or None."""
        gained = self.gained(name, value, bits, now)
        return None if gained is None else gained[0] * unit / gained[1]

    def reset(self) -> None:
        """Drop all previous readings."""
        self._last.clear()
        self._totals.clear()


def _gain(before: int, value: int, bits: int) -> "int | None":
    """Difference of two readings; None after a restart.

    A drop of a 16- or 32-bit counter from its upper half to its lower half is a wrap; any other drop is a restart from
    0 (driver reset), whose gain is unknown.
    """
    gain = value - before
    if gain < 0:
        half = 1 << bits - 1
        if bits == 64 or not value < half <= before:
            return None
        gain += 1 << bits
    return gain
