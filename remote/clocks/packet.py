"""Probe packets: 64 bytes in both directions, each with a keyed tag.

magic 4 | version 1 | type 1 | edge 2 | number 4 | position 1 | stamps 1 | zero 2 | t2 8 | t3 8 | zero 24 | tag 8

`number` counts the triples of one edge, `position` (0 to 2) the packets of a triple. t2 and t3 are receive and send
time of the replying node, ns of its MONOTONIC_RAW, and zero in a request; the sender keeps t1.
"""

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import blake2b
    from hmac import compare_digest

    Head = tuple[int, int, int, int, int]  # (type, edge, number, position, stamps)
else:
    try:  # without hashlib, which loads OpenSSL: 4 MB of RSS
        from _blake2 import blake2b
        from _operator import _compare_digest as compare_digest
    except ImportError:  # an interpreter other than CPython
        from hashlib import blake2b
        from hmac import compare_digest

SIZE = 64
MAGIC = b"gcCk"
VERSION = 1
REQUEST, REPLY = 0, 1
#: Bit of `stamps`: t2 is a kernel timestamp.
KERNEL = 1
KEY_BYTES = 16
#: Packets of one triple.
PACKETS = 3

_HEAD = struct.Struct("!4sBBHIBBH")  # 16 bytes
_TIMES = struct.Struct("!qq24x")  # 40 bytes
_TAG_BYTES = 8


def sealer(key: bytes) -> "blake2b":
    """Keyed BLAKE2b with 8-byte tags: a forged packet passes with probability 2**-64."""
    return blake2b(key=key, digest_size=_TAG_BYTES)


def pack(
    seal: "blake2b", kind: int, edge: int, number: int, position: int, stamps: int = 0, t2: int = 0, t3: int = 0
) -> bytes:
    """The 64 bytes of a packet."""
    body = _HEAD.pack(MAGIC, VERSION, kind, edge, number, position, stamps, 0) + _TIMES.pack(t2, t3)
    tag = seal.copy()
    tag.update(body)
    return body + tag.digest()


def head(data: bytes) -> "Head | None":
    """(type, edge, number, position, stamps) of a well-formed packet, tag unchecked; else None."""
    if len(data) != SIZE:
        return None
    magic, version, kind, edge, number, position, stamps, _ = _HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION or position > 2:
        return None
    return kind, edge, number, position, stamps


def is_genuine(seal: "blake2b", data: bytes) -> bool:
    """Whether the tag was made with the key of `seal`."""
    tag = seal.copy()
    tag.update(data[:-_TAG_BYTES])
    return compare_digest(tag.digest(), data[-_TAG_BYTES:])


def times(data: bytes) -> "tuple[int, int]":
    """(t2, t3), ns."""
    return _TIMES.unpack_from(data, _HEAD.size)


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
