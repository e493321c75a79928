"""Limits of one client and of the server: requests per second, concurrency, bytes, timeouts."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: Bytes of a request body; a job's environment and command line fit.
MAX_BODY: Final = 1 << 20
#: Seconds. From connection, or from the first byte of a request, until its head is complete.
HEAD_S: Final = 10.0
#: Seconds. From the head of a request until its body is complete.
BODY_S: Final = 10.0
#: Seconds. A client that reads nothing for this long is disconnected.
STALL_S: Final = 30.0
#: Seconds. Idle time of a connection between two requests.
KEEP_ALIVE_S: Final = 15
#: Seconds. When the server stops, requests in progress have this long to finish.
SHUTDOWN_S: Final = 3
#: Open connections; further ones are aborted.
MAX_CONNECTIONS: Final = 512
#: Concurrent requests, and event streams among them.
MAX_CONCURRENT: Final = 64
MAX_STREAMS: Final = 32
#: Addresses with a token bucket; the least recently used one is dropped.
_MAX_ADDRESSES: Final = 1024
#: Seconds of the rate that a bucket holds.
_BURST_S: Final = 2.0
#: Requests per second and address that read; those that change something or have no valid token get a share of it.
READS_PER_S: Final = 100.0
WRITE_SHARE: Final = 0.2
UNAUTHORIZED_SHARE: Final = 0.2


@dataclass
class _TokenBucket:
    tokens: float
    updated_s: float


class RateLimit:
    """A token bucket per address: `rate_s` tokens per second, at most two seconds of them."""

    def __init__(self, rate_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate_s, self._clock = rate_s, clock
        self._buckets: OrderedDict[str, _TokenBucket] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """0 if the request may pass, which takes a token; else seconds until there is one."""
        now_s, capacity = self._clock(), max(1.0, self.rate_s * _BURST_S)
        bucket = self._buckets.pop(address, None) or _TokenBucket(capacity, now_s)
        bucket.tokens = min(capacity, bucket.tokens + (now_s - bucket.updated_s) * self.rate_s)
        bucket.updated_s = now_s
        self._buckets[address] = bucket
        if len(self._buckets) > _MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        if bucket.tokens < 1.0:
            return (1.0 - bucket.tokens) / self.rate_s
        bucket.tokens -= 1.0
        return 0.0
