"""Rate limit and replay protection of probe packets."""

#: Packets per second. Upper limit of every bucket, whatever the plan.
MAX_PER_S = 60000
#: Seconds of the rate that pass as one burst: all triples of a tick, of several peers together.
_BURST_S = 0.1
_MIN_BURST = 60
#: Packets. A request that was overtaken by more than this (UDP reorders) is not answered.
_WINDOW = 64


class TokenBucket(object):
    """Limits packets to `rate` per second on average. `now` is time.monotonic() in seconds."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = min(float(rate), MAX_PER_S)
        self.burst = max(_MIN_BURST, self.rate * _BURST_S)
        self._tokens = self.burst
        self._filled = now

    def acquire(self, now: float) -> bool:
        """Take one token; False if there is none."""
        self._fill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def wait_s(self, now: float) -> float:
        """Seconds until the next token; 1.0 at rate 0 (no peers)."""
        self._fill(now)
        if self.rate <= 0.0:
            return 0.0 if self._tokens >= 1.0 else 1.0
        return max(0.0, (1.0 - self._tokens) / self.rate)

    def _fill(self, now: float) -> None:
        self._tokens = min(self.burst, self._tokens + max(0.0, now - self._filled) * self.rate)
        self._filled = now


class ReplayWindow(object):
    """Accepts each number once, in approximate order: the anti-replay window of IPsec (RFC 4303, 3.4.3)."""

    def __init__(self) -> None:
        self._highest = -1
        self._seen = 0  # bit i: highest - i was accepted

    def accept(self, number: int) -> bool:
        """Whether `number` is new and within the window; it counts as seen from now on."""
        ahead = number - self._highest
        if ahead > 0:
            self._seen = ((self._seen << ahead) | 1) & ((1 << _WINDOW) - 1) if ahead < _WINDOW else 1
            self._highest = number
            return True
        if -ahead >= _WINDOW or self._seen >> -ahead & 1:
            return False
        self._seen |= 1 << -ahead
        return True
