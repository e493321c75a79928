"""What is kept of the exchanges of one edge: per bin the extreme one-way delays and a few fast exchanges."""

#: The exchanges of the least round trip that are kept, per bin.
BESTS = 4
#: A reply that takes longer than this is lost: its bin has left.
REPLY_NS = 250000000
#: Of the pairs of a bin the share that travelled fastest tells how noisy stamps are, and so many at least.
_FAST_SHARE, _LEAST_PAIRS = 16, 3
#: No clock has run for so long (146 years); a difference to any other stamp still fits 64 bits.
_MOST_NS = 1 << 62
_ROUND_NS = 1000000  # `ahead` is a multiple of this


class Bin(object):
    """One bin of one edge, as it fills; all stamps are as they were taken."""

    __slots__ = ("backward", "best", "forward", "got", "mismatches", "noncausal", "sent")

    def __init__(self):
        self.forward = self.backward = None  # (at, far minus near)
        self.best = []  # (rtt, t1, t2 - t1, t3 - t2), the least first
        self.sent = self.got = self.noncausal = 0
        self.mismatches = []  # (the longer of both delays, how much the spacing changed)

    def add(self, t1, t2, t3, t4):
        """One exchange that came back."""
        self.got += 1
        rtt = (t4 - t1) - (t3 - t2)
        if rtt < 0 or t3 < t2 or abs(t2) > _MOST_NS or abs(t3) > _MOST_NS:
            self.noncausal += 1
            return
        if self.forward is None or t2 - t1 < self.forward[1]:
            self.forward = (t1, t2 - t1)
        if self.backward is None or t3 - t4 > self.backward[1]:
            self.backward = (t4, t3 - t4)
        if len(self.best) < BESTS or rtt < self.best[-1][0]:
            self.best.append((rtt, t1, t2 - t1, t3 - t2))
            self.best.sort()
            del self.best[BESTS:]

    def said(self, base, ahead):
        """As it travels: see `ClockBin` of the console's records."""
        best = sorted([t1 - base, gap - ahead, turn, rtt] for rtt, t1, gap, turn in self.best)
        return [_said(self.forward, base, ahead), _said(self.backward, base, ahead), best, self.sent, self.got,
                self.noncausal, self._noise()]  # fmt: skip

    def _noise(self):
        """The median change of spacing among the few pairs that travelled fastest; queues change it, too."""
        fast = sorted(self.mismatches)[: max(_LEAST_PAIRS, len(self.mismatches) // _FAST_SHARE)]
        return sorted(change for _, change in fast)[len(fast) // 2] if fast else None


def _said(point, base, ahead):
    return None if point is None else [point[0] - base, point[1] - ahead]


class Bins(object):
    """The bins of one edge from the one that is oldest and has not been said. `start` is the base of the first, ns."""

    def __init__(self, start, bin_ns):
        self.bin_ns = bin_ns
        self.kernel = True  # every stamp of an arrival since the last `take` was the kernel's
        self._start = start
        self._bins = []
        self._ahead = None

    def sent(self, t1):
        found = self._at(t1)
        if found is not None:
            found.sent += 1

    def exchanged(self, t1, t2, t3, t4, kernel):
        """A reply: t1 and t4 of this node, t2 and t3 of the other."""
        found = self._at(t1)
        if found is None:
            return
        if self._ahead is None and abs(t2) <= _MOST_NS:
            self._ahead = (t2 - t1) // _ROUND_NS * _ROUND_NS
        self.kernel = self.kernel and kernel
        found.add(t1, t2, t3, t4)

    def mismatched(self, t1, delay, change):
        """Two neighbours of a triple arrived that much closer or further apart (ns) than they were sent."""
        found = self._at(t1)
        if found is not None and change <= _MOST_NS:
            found.mismatches.append((delay, change))

    def take(self, now):
        """(base, ahead, bins as they travel) of the bins to which nothing will come any more; they are forgotten here.

        None where nothing was sent in them.
        """
        count = max(0, (now - REPLY_NS - self._start) // self.bin_ns)
        taken = self._bins[:count]
        if not any(one.sent for one in taken):
            del self._bins[:count]
            self._start += count * self.bin_ns
            return None
        base, ahead = self._start, self._ahead or 0
        said = [one.said(base, ahead) for one in taken]
        del self._bins[:count]
        self._start += count * self.bin_ns
        self._ahead, self.kernel = None, True
        return base, ahead, said

    def _at(self, t1):
        index = (t1 - self._start) // self.bin_ns
        if index < 0:
            return None
        while len(self._bins) <= index:
            self._bins.append(Bin())
        return self._bins[index]
