"""Clock probe requests of the console (listen, probe, stop), and the peers they name, with the state of each edge."""

import threading
import time

from . import packet, stamps
from .histogram import EdgeBins
from .packet import ReplayWindow
from .probing import ProbeThread
from .udp_socket import ProbeSocket, bind_address, canonical

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..agent.agent import Agent
    from .udp_socket import SocketAddress


class ProbeService(object):
    """At most one probing thread with its socket. Thread-safe."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._lock, self._cost_lock = threading.Lock(), threading.Lock()
        self._thread: "ProbeThread | None" = None
        self._interface = ""
        agent.on_end(self.stop)

    def listen(self, args: "dict[str, Any]") -> "dict[str, Any]":
        """Open a socket for `for_s` seconds, or keep the open one: {address, port, family, stamps}."""
        interface, for_s = str(args.get("interface", "")), duration_s(args)
        with self._lock:
            thread = self._running()
            if thread is None or self._interface != interface:
                self._close()
                sock = ProbeSocket(*bind_address(interface))
                self._interface = interface
                thread = ProbeThread(sock, self._agent.outbox.post, self.add_cost, time.monotonic() + for_s)
                thread.start()
                self._thread = thread
            thread.until = time.monotonic() + for_s
            sock = thread.sock
            return {
                "address": sock.address, "port": sock.port, "family": sock.family_name,
                "stamps": "kernel_rx" if sock.stamps else "user",
            }  # fmt: skip

    def probe(self, args: "dict[str, Any]") -> "dict[str, Any]":
        """Probe and answer the peers of a plan for `for_s` seconds; the same `session` again extends it.

        {"probing": false} if the socket is closed: the console must send `listen` first.
        """
        plan, for_s = ProbePlan(args), duration_s(args)
        with self._lock:
            thread = self._running()
            if thread is None:
                return {"probing": False}
            thread.until = time.monotonic() + for_s
            thread.set_plan(plan, parse_peers(thread.sock, args.get("peers") or []))
            return {"probing": True}

    def stop(self) -> "dict[str, Any]":
        """Close the socket; no packet is answered after this returns."""
        with self._lock:
            self._close()
        return {"probing": False}

    @property
    def is_probing(self) -> bool:
        """Whether a socket is open; does not block."""
        return self._running() is not None

    def add_cost(self, cpu_s: float, size: int) -> None:
        """Add CPU seconds and record bytes of probing, which has its own budget outside the agent's cost limit."""
        shared = self._agent.context.shared
        with self._cost_lock:
            cpu, sent = shared.get("probing", (0.0, 0))
            shared["probing"] = (cpu + cpu_s, sent + size)

    def _running(self) -> "ProbeThread | None":
        thread = self._thread
        return thread if thread is not None and thread.is_alive() else None

    def _close(self) -> None:
        if self._thread is not None:
            self._thread.stop()
            self._thread = None


#: Microseconds between two triples. Below 500 the interpreter of most nodes skips some; above the upper one a window
#: has too few.
_CADENCE_US = (200, 1000000)
_SPACING_US = (0, 10000)
_BIN_MS = (10, 1000)
_CPU_CAP_PCT = (1, 100)
#: Seconds. Longest duration of one request; the console renews it, so that probing ends when the console is gone.
MAX_DURATION_S = 120.0


class BadProbePlan(ValueError):
    """An invalid or harmful plan; the text is the reason."""


class ProbePlan(object):
    """Cadence, spacing and bins in ns, CPU cap in percent of a core; `session` identifies the plan."""

    def __init__(self, args: "dict[str, Any]") -> None:
        self.session = str(args.get("session", ""))
        self.cadence_ns = 1000 * _whole(args, "cadence_us", _CADENCE_US)
        self.spacing_ns = 1000 * _whole(args, "spacing_us", _SPACING_US)
        self.bin_ns = 1000000 * _whole(args, "bin_ms", _BIN_MS)
        self.cpu_cap_pct = _whole(args, "cpu_cap_pct", _CPU_CAP_PCT)
        if self.cadence_ns < (packet.PACKETS + 1) * self.spacing_ns:
            raise BadProbePlan("a triple of %d us spacing does not fit a cadence of %d us"
                          % (self.spacing_ns // 1000, self.cadence_ns // 1000))  # fmt: skip

    def packets_per_s(self, edges: int) -> float:
        """Packets per second sent on this many probed or answered edges."""
        return edges * packet.PACKETS * 1e9 / self.cadence_ns


def duration_s(args: "dict[str, Any]") -> float:
    """`for_s` of a request, seconds from now. Raises BadProbePlan."""
    for_s = args.get("for_s")
    if not isinstance(for_s, (int, float)) or not 0 < for_s <= MAX_DURATION_S:
        raise BadProbePlan("for_s must be above 0 and at most %g, is %r" % (MAX_DURATION_S, for_s))
    return float(for_s)


def _whole(args: "dict[str, Any]", name: str, limits: "tuple[int, int]") -> int:
    value: "int | None" = args.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not limits[0] <= value <= limits[1]:
        raise BadProbePlan("%s must be %d to %d, is %r" % (name, limits[0], limits[1], value))
    return value


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
