"""Clock probe requests of the console: listen, probe, stop."""

import threading
import time

from . import packet
from .peers import parse_peers
from .probing import ProbeThread
from .udp_socket import ProbeSocket, bind_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..agent.agent import Agent


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
                self._thread = thread
                thread.start()
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


#: Microseconds between two triples: the lower limit is what one interpreter achieves, above the upper one a window
#: has too few.
_CADENCE_US = (500, 1000000)
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
