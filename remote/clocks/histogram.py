"""Exchanges of one edge, reduced per bin to the extreme one-way delays and a few fast exchanges."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Point = tuple[int, int]  # (stamp of the near node, far minus near), ns

#: Exchanges with the shortest round trip that are kept per bin.
MAX_BEST = 4
#: ns. A later reply counts as lost: its bin has been sent.
REPLY_NS = 250000000
#: Timestamp noise is estimated from the fastest 1/16 of the pairs of a bin, at least 3.
_FAST_SHARE, _MIN_PAIRS = 16, 3
#: ns (146 years). Larger stamps are invalid; the difference of two smaller ones fits 64 bits.
_MAX_NS = 1 << 62
_ROUND_NS = 1000000  # `ahead` is a multiple of this


class DelayBin(object):
    """One bin of one edge; stamps in ns of their own node."""

    __slots__ = ("backward", "best", "forward", "got", "mismatches", "noncausal", "sent")

    def __init__(self) -> None:
        self.forward: "Point | None" = None
        self.backward: "Point | None" = None
        self.best: "list[tuple[int, int, int, int]]" = []  # (rtt, t1, t2 - t1, t3 - t2), shortest first
        self.sent = self.got = self.noncausal = 0
        self.mismatches: "list[tuple[int, int]]" = []  # (the longer of both delays, change of spacing)

    def add(self, t1: int, t2: int, t3: int, t4: int) -> None:
        """Add one completed exchange."""
        self.got += 1
        rtt = (t4 - t1) - (t3 - t2)
        if rtt < 0 or t3 < t2 or abs(t2) > _MAX_NS or abs(t3) > _MAX_NS:
            self.noncausal += 1
            return
        if self.forward is None or t2 - t1 < self.forward[1]:
            self.forward = (t1, t2 - t1)
        if self.backward is None or t3 - t4 > self.backward[1]:
            self.backward = (t4, t3 - t4)
        if len(self.best) < MAX_BEST or rtt < self.best[-1][0]:
            self.best.append((rtt, t1, t2 - t1, t3 - t2))
            self.best.sort()
            del self.best[MAX_BEST:]

    def encode(self, base: int, ahead: int) -> "list[Any]":
        """The wire form: see `ClockBin` of the console's records."""
        best = sorted([t1 - base, gap - ahead, turn, rtt] for rtt, t1, gap, turn in self.best)
        forward, backward = (_encode_point(point, base, ahead) for point in (self.forward, self.backward))
        return [forward, backward, best, self.sent, self.got, self.noncausal, self._noise()]

    def _noise(self) -> "int | None":
        """Median change of spacing among the fastest pairs, ns: of slow pairs, queueing changes it as well."""
        fast = sorted(self.mismatches)[: max(_MIN_PAIRS, len(self.mismatches) // _FAST_SHARE)]
        return sorted(change for _, change in fast)[len(fast) // 2] if fast else None


def _encode_point(point: "Point | None", base: int, ahead: int) -> "list[int] | None":
    return None if point is None else [point[0] - base, point[1] - ahead]


class EdgeBins(object):
    """The bins of one edge that have not been sent. `start` is the base of the first, ns."""

    def __init__(self, start: int, bin_ns: int) -> None:
        self.bin_ns = bin_ns
        self.is_kernel = True  # whether every arrival since the last `flush` has a kernel stamp
        self._start = start
        self._bins: "list[DelayBin]" = []
        self._ahead: "int | None" = None

    def add_sent(self, t1: int) -> None:
        """Count a request sent at t1."""
        target = self._bin_of(t1)
        if target is not None:
            target.sent += 1

    def add_exchange(self, t1: int, t2: int, t3: int, t4: int, is_kernel_stamp: bool) -> None:
        """Add a reply: t1 and t4 of this node, t2 and t3 of the other."""
        target = self._bin_of(t1)
        if target is None:
            return
        if self._ahead is None and abs(t2) <= _MAX_NS:
            self._ahead = (t2 - t1) // _ROUND_NS * _ROUND_NS
        self.is_kernel = self.is_kernel and is_kernel_stamp
        target.add(t1, t2, t3, t4)

    def add_mismatch(self, t1: int, delay: int, change: int) -> None:
        """Add the change of spacing, ns, of two neighbours of a triple between sending and arrival."""
        target = self._bin_of(t1)
        if target is not None and change <= _MAX_NS:
            target.mismatches.append((delay, change))

    def flush(self, now: int) -> "tuple[int, int, list[Any]] | None":
        """Remove the complete bins: (base, ahead, encoded bins), or None if nothing was sent in them."""
        count = max(0, (now - REPLY_NS - self._start) // self.bin_ns)
        complete, base = self._bins[:count], self._start
        del self._bins[:count]
        self._start += count * self.bin_ns
        if not any(delay_bin.sent for delay_bin in complete):
            return None
        ahead = self._ahead or 0
        self._ahead, self.is_kernel = None, True
        return base, ahead, [delay_bin.encode(base, ahead) for delay_bin in complete]

    def _bin_of(self, t1: int) -> "DelayBin | None":
        index = (t1 - self._start) // self.bin_ns
        if index < 0:
            return None
        while len(self._bins) <= index:
            self._bins.append(DelayBin())
        return self._bins[index]
