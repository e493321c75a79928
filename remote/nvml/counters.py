"""Counters that grow, wrap and start again: what they gained since the last look, and how fast."""


class Counters(object):
    """The last value of each counter of one thing, by name."""

    def __init__(self):
        self._last = {}  # name: (value, time)

    def gained(self, name, value, bits, now):
        """(gain, seconds) since the last look; None at the first one, and where the counter has started again.

        A fall of a 16- or 32-bit counter from its upper half to its lower half is a wrap; any other fall is a start
        from 0 (a reset of the driver), about whose gain nobody knows.
        """
        before = self._last.get(name)
        self._last[name] = (value, now)
        if before is None or now <= before[1]:
            return None
        gain = value - before[0]
        if gain < 0:
            half = 1 << bits - 1
            if bits == 64 or not value < half <= before[0]:
                return None
            gain += 1 << bits
        return gain, now - before[1]

    def rate(self, name, value, bits, now, unit=1):
        """How fast it grows, in units of `unit` per second, or None."""
        gained = self.gained(name, value, bits, now)
        return None if gained is None else gained[0] * unit / gained[1]

    def forget(self):
        self._last.clear()
