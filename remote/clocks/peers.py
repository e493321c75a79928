"""Peers named by the console, with the state of the edge to each."""

from . import packet, stamps
from .histogram import EdgeBins
from .packet import ReplayWindow
from .udp_socket import canonical

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from .udp_socket import ProbeSocket, SocketAddress


class BadPeer(ValueError):
    """An invalid peer in a request; the text is the reason."""


class Peer(object):
    """One edge: to a node that this one probes (`probes`), or that probes this one."""

    def __init__(
        self, name: str, edge: int, key: bytes, source: "tuple[str, int]", destination: "SocketAddress", probes: bool
    ) -> None:
        self.name = name
        self.edge = edge
        self.source = source  # (address, port) of its packets
        self.destination = destination  # for sendto
        self.probes = probes
        self.seal = packet.sealer(key)
        self.replay_window = ReplayWindow()  # of its requests
        self.number = 0  # of the next triple
        self.bins = EdgeBins(0, 1)  # replaced by `start`
        self._pending: "dict[int, int]" = {}  # requests without a reply: number * 3 + position → t1
        self._last: "tuple[int, int, int, int] | None" = None  # (number, position, t1, t2) of the last reply

    def start(self, bin_ns: int, in_s: float) -> None:
        """Collect bins of `bin_ns`, the first one from `in_s` seconds from now."""
        self.bins = EdgeBins(stamps.mono_ns() + int(in_s * 1e9), bin_ns)

    def request(self, position: int) -> "tuple[bytes, int]":
        """(packet, key under which its reply is matched)."""
        data = packet.pack(self.seal, packet.REQUEST, self.edge, self.number & 0xFFFFFFFF, position)
        return data, (self.number & 0xFFFFFFFF) * 3 + position

    def record_sent(self, key: int, t1: int) -> None:
        """Record a request sent at t1."""
        self._pending[key] = t1
        self.bins.add_sent(t1)

    def record_reply(self, number: int, position: int, t2: int, t3: int, t4: int, is_kernel_stamp: bool) -> bool:
        """Record a reply; False if no pending request matches."""
        t1 = self._pending.pop(number * 3 + position, None)
        if t1 is None:
            return False
        self.bins.add_exchange(t1, t2, t3, t4, is_kernel_stamp)
        if self._last is not None and self._last[:2] == (number, position - 1):
            before, after = self._last[3] - self._last[2], t2 - t1
            self.bins.add_mismatch(t1, max(before, after), abs(after - before))
        self._last = (number, position, t1, t2)
        return True

    def expire_before(self, t1: int) -> None:
        """Drop the pending requests sent before t1: they are lost."""
        for key in [key for key, sent in self._pending.items() if sent < t1]:
            del self._pending[key]


def parse_peers(sock: "ProbeSocket", rows: "Iterable[dict[str, Any]]") -> "dict[int, Peer]":
    """{edge: Peer} of {edge, name, address, port, key (hex), probes}. Raises BadPeer."""
    peers = {}
    for row in rows:
        try:
            key = bytes.fromhex(row["key"])
            source = (canonical(row["address"]), int(row["port"]))
            destination = sock.resolve(row["address"], source[1])
            if len(key) != packet.KEY_BYTES or not 0 <= row["edge"] < 1 << 16:
                raise ValueError("a key of %d bytes, edge %s" % (len(key), row["edge"]))
            peers[row["edge"]] = Peer(row["name"], row["edge"], key, source, destination, bool(row["probes"]))
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise BadPeer("peer %s: %s" % (row.get("name") if isinstance(row, dict) else row, error))
    return peers
