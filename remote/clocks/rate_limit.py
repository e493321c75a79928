"""How many packets there may be, and none of them twice."""

#: No agent ever sends or reads more than this many packets a second.
MOST_PER_S = 60000
#: A burst of so many seconds of the rate passes at once: all triples of a tick, and those of several peers together.
_BURST_S = 0.1
_LEAST_BURST = 60
#: A request may be overtaken by so many of its fellows (UDP does not keep order); a later one is not answered.
_WINDOW = 64


class Bucket(object):
    """A token bucket: `rate` packets a second in the long run. `now` is time.monotonic() in seconds."""

    def __init__(self, rate, now):
        self.set_rate(rate)
        self._tokens = self.burst
        self._at = now

    def set_rate(self, rate):
        self.rate = min(float(rate), MOST_PER_S)
        self.burst = max(_LEAST_BURST, self.rate * _BURST_S)

    def take(self, now):
        """Whether one more may pass; it is counted."""
        self._fill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def wait_s(self, now):
        """Seconds until one may pass; a second at a time where none ever may, because there are no peers."""
        self._fill(now)
        if self.rate <= 0.0:
            return 0.0 if self._tokens >= 1.0 else 1.0
        return max(0.0, (1.0 - self._tokens) / self.rate)

    def _fill(self, now):
        self._tokens = min(self.burst, self._tokens + max(0.0, now - self._at) * self.rate)
        self._at = now


class Once(object):
    """Accepts each number once, in about their order: the window of IPsec (RFC 4303, 3.4.3)."""

    def __init__(self):
        self._highest = -1
        self._seen = 0  # bit i: highest - i has come

    def accept(self, number):
        ahead = number - self._highest
        if ahead > 0:
            self._seen = ((self._seen << ahead) | 1) & ((1 << _WINDOW) - 1) if ahead < _WINDOW else 1
            self._highest = number
            return True
        if -ahead >= _WINDOW or self._seen >> -ahead & 1:
            return False
        self._seen |= 1 << -ahead
        return True
