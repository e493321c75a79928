"""Counters that grow, wrap and start again: what they gained since the last look, and how fast."""


class Counters(object):
    """The last value of each counter of one thing, by name."""

    def __init__(self):
        self._last = {}  # name: (value, time)
        self._totals = {}  # name: value, of those whose pace nobody asks for

    def growth(self, name, value, bits):
        """What it gained since the last look; 0 where nobody knows. For counters of errors: they stand still."""
        before = self._totals.get(name)
        if before == value:
            return 0
        self._totals[name] = value
        return _gain(before, value, bits) or 0 if before is not None else 0

    def gained(self, name, value, bits, now):
        """(gain, seconds) since the last look; None at the first one, and where the counter has started again."""
        before = self._last.get(name)
        self._last[name] = (value, now)
        if before is None or now <= before[1]:
            return None
        gain = _gain(before[0], value, bits)
        return (gain, now - before[1]) if gain is not None else None

    def rate(self, name, value, bits, now, unit=1):
        """How fast it grows, in units of `unit` per second, or None."""
        gained = self.gained(name, value, bits, now)
        return None if gained is None else gained[0] * unit / gained[1]

    def forget(self):
        self._last.clear()
        self._totals.clear()


def _gain(before, value, bits):
    """A fall of a 16- or 32-bit counter from its upper half to its lower half is a wrap; any other fall is a start from
    0 (a reset of the driver), about whose gain nobody knows: None.
    """
    gain = value - before
    if gain < 0:
        half = 1 << bits - 1
        if bits == 64 or not value < half <= before:
            return None
        gain += 1 << bits
    return gain
