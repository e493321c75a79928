"""Clock probe requests of the console: listen, probe, stop."""

import threading
import time

from .addresses import bind_address
from .peers import parse_peers
from .plan import ProbePlan, duration_s
from .probing import ProbeThread
from .udp_socket import ProbeSocket

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
