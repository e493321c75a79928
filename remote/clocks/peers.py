"""The nodes that the console has named, and what is known of the edge to each."""

from . import packet, stamps
from .addresses import canonical
from .histogram import Bins
from .rate_limit import Once


class BadPeer(ValueError):
    """What the console said of a peer makes no sense; the text says why."""


class Peer(object):
    """One edge: to a node that we probe, or that probes us. `where` is what a socket sends to."""

    def __init__(self, name, edge, key, source, where, probes):
        self.name = name
        self.edge = edge
        self.source = source  # (address, port) that its packets come from
        self.where = where
        self.probes = probes
        self.seal = packet.sealer(key)
        self.once = Once()  # requests of theirs that were answered
        self.number = 0  # of our next triple
        self.bins = None
        self.asked = {}  # of our requests without a reply: number * 3 + position → t1
        self._last = None  # (number, position, t1, t2) of the last reply

    def begin(self, bin_ns, in_s):
        self.bins = Bins(stamps.mono_ns() + int(in_s * 1e9), bin_ns)

    def request(self, position):
        """A request's bytes and what its reply will be found by."""
        data = packet.pack(self.seal, packet.REQUEST, self.edge, self.number & 0xFFFFFFFF, position)
        return data, (self.number & 0xFFFFFFFF) * 3 + position

    def sent(self, found_by, t1):
        self.asked[found_by] = t1
        self.bins.sent(t1)

    def replied(self, number, position, t2, t3, t4, kernel):
        """A reply; False where nothing was asked that it answers."""
        t1 = self.asked.pop(number * 3 + position, None)
        if t1 is None:
            return False
        self.bins.exchanged(t1, t2, t3, t4, kernel)
        if self._last is not None and self._last[:2] == (number, position - 1):
            before, after = self._last[3] - self._last[2], t2 - t1
            self.bins.mismatched(t1, max(before, after), abs(after - before))
        self._last = (number, position, t1, t2)
        return True

    def forget_before(self, t1):
        """Requests sent before that are lost."""
        for found_by in [key for key, sent in self.asked.items() if sent < t1]:
            del self.asked[found_by]


def read_peers(port, rows):
    """{edge: Peer} of what the console said: {edge, name, address, port, key (hex), probes}. Raises BadPeer."""
    peers = {}
    for row in rows:
        try:
            key = bytes.fromhex(row["key"])
            source = (canonical(row["address"]), int(row["port"]))
            where = port.resolve(row["address"], source[1])
            if len(key) != packet.KEY_BYTES or not 0 <= row["edge"] < 1 << 16:
                raise ValueError("a key of %d bytes, edge %s" % (len(key), row["edge"]))
            peers[row["edge"]] = Peer(row["name"], row["edge"], key, source, where, bool(row["probes"]))
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise BadPeer("peer %s: %s" % (row.get("name") if isinstance(row, dict) else row, error))
    return peers
