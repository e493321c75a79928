"""The three things that the console may ask about probes: listen, probe, stop."""

import threading
import time

from .addresses import choose
from .peers import read_peers
from .plan import Plan, seconds
from .probing import Probing
from .udp_socket import Port


class Desk(object):
    """At most one probing thread, and its port. Asked from any thread."""

    def __init__(self, agent):
        self._agent = agent
        self._lock, self._counting = threading.Lock(), threading.Lock()
        self._probing = None
        self._interface = None
        agent.on_end(self.stop)

    def listen(self, args):
        """Open a port for `for_s` seconds, or keep the one that is open: {address, port, family, stamps}."""
        interface, for_s = str(args.get("interface", "")), seconds(args)
        with self._lock:
            if not self._is_open() or self._interface != interface:
                self._close()
                port = Port(*choose(interface))
                self._interface = interface
                self._probing = Probing(port, self._agent.outbox.post, self.spent, time.monotonic() + for_s)
                self._probing.start()
            self._probing.until = time.monotonic() + for_s
            port = self._probing.port
            return {
                "address": port.address, "port": port.number, "family": port.family_name,
                "stamps": "kernel_rx" if port.stamps else "user",
            }  # fmt: skip

    def probe(self, args):
        """Probe and answer the peers of a plan for `for_s` seconds; the same `session` again only prolongs it.

        {"probing": false} where the port is no longer open: then listen first.
        """
        plan, for_s = Plan(args), seconds(args)
        with self._lock:
            if not self._is_open():
                return {"probing": False}
            self._probing.until = time.monotonic() + for_s
            self._probing.follow(plan, read_peers(self._probing.port, args.get("peers") or []))
            return {"probing": True}

    def stop(self):
        """Close the port; nothing is answered any more when this returns."""
        with self._lock:
            self._close()
        return {"probing": False}

    @property
    def is_probing(self):
        """Whether a socket is open now; asked without waiting for anybody."""
        probing = self._probing
        return probing is not None and probing.is_alive()

    def spent(self, cpu_s, size):
        """Probing has a budget of its own: the agent's cost and its brake leave this out."""
        shared = self._agent.context.shared
        with self._counting:
            cpu, sent = shared.get("probing", (0.0, 0))
            shared["probing"] = (cpu + cpu_s, sent + size)

    def _is_open(self):
        return self._probing is not None and self._probing.is_alive()

    def _close(self):
        if self._probing is not None:
            self._probing.stop()
            self._probing = None
