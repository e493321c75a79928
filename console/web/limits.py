"""How much one client may ask: requests a second, at once, and bytes of each."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: A body is an order for a job at most: its environment and its command line.
MAX_BODY: Final = 1 << 20
#: A body has so long to arrive, from the head of its request on.
BODY_S: Final = 10.0
#: A client that takes nothing off for so long is gone.
STALL_S: Final = 30.0
#: So many requests are answered at a time, and so many of them may be streams of events.
MAX_CONCURRENT: Final = 64
MAX_STREAMS: Final = 32
#: So many addresses are remembered; the one that was heard longest ago goes.
_MOST_ADDRESSES: Final = 1024
#: A burst is so many seconds of the rate.
_BURST_S: Final = 2.0
#: Of each, so many a second and address; what acts costs more than what looks, and is this share of it.
LOOKS_S: Final = 100.0
ACTS_SHARE: Final = 0.2
WRONG_SHARE: Final = 0.2  # requests that are refused at the door


@dataclass
class _Bucket:
    tokens: float
    at_s: float


class Rate:
    """A bucket of tokens an address: `rate_s` come in each second, and it holds two seconds of them."""

    def __init__(self, rate_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate_s, self._clock = rate_s, clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """0 where the request may pass, and a token is taken; else how long until there is one."""
        now_s, most = self._clock(), max(1.0, self.rate_s * _BURST_S)
        bucket = self._buckets.pop(address, None) or _Bucket(most, now_s)
        bucket.tokens = min(most, bucket.tokens + (now_s - bucket.at_s) * self.rate_s)
        bucket.at_s = now_s
        self._buckets[address] = bucket
        if len(self._buckets) > _MOST_ADDRESSES:
            self._buckets.popitem(last=False)
        if bucket.tokens < 1.0:
            return (1.0 - bucket.tokens) / self.rate_s
        bucket.tokens -= 1.0
        return 0.0
