"""The thread that probes peers and answers their probes; it runs, with its socket, only while the console renews it."""

import os
import random
import select
import threading
import time

from ..proc.threads import Thread
from . import packet
from . import stamps as clock
from .packet import TokenBucket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from .commands import Peer, ProbePlan
    from .udp_socket import ProbeSocket

    Post = Callable[[list[tuple[str, dict[str, Any]]]], int]  # queues records, returns their bytes
    AddCost = Callable[[float, int], None]  # (CPU seconds, bytes)

#: Packets read per loop iteration; seconds of the longest wait, which bounds the reaction to `stop`.
_BATCH, _MAX_WAIT_S = 64, 0.05
_REPORT_S = 1.0
#: Seconds before the first triple, so that the peers have received their plans and answer.
_SETTLE_S = 0.2
#: Bucket rate relative to that of the schedule.
_HEADROOM = 2.0
#: ns from the end of a bin until it is sent.
_BIN_DELAY_NS = 250000000


class ProbeThread(Thread):
    """Answers peers on one socket and probes those marked `probes`, until `until`.

    `post` queues records for the console; `add_cost` receives the cost every second. The plan is replaced as a whole,
    so no state needs a lock.
    """

    def __init__(self, sock: "ProbeSocket", post: "Post", add_cost: "AddCost", until: float) -> None:
        super(ProbeThread, self).__init__(name="gconsole-clock")
        self.sock = sock
        self.until = until  # time.monotonic(); extended by requests
        self._post, self._cost = post, ProbeCost(add_cost)
        self._next: "tuple[ProbePlan, dict[int, Peer]] | None" = None  # received, not yet applied
        self._plan: "ProbePlan | None" = None
        self._peers: "dict[int, Peer]" = {}
        self._probed: "list[Peer]" = []
        self._ended = threading.Event()
        self._out = self._in = TokenBucket(1, time.monotonic())
        self._cadence_ns = 0
        self._due: "float | None" = None  # time.monotonic() of the next triple
        self._ticks = self._missed = 0
        self._reported = time.monotonic()

    def set_plan(self, plan: "ProbePlan", peers: "dict[int, Peer]") -> None:
        """Probe and answer these peers from now on; a plan of the current session changes nothing."""
        current = self._next or (self._plan, self._peers)
        if current[0] is None or current[0].session != plan.session:
            self._next = (plan, peers)

    def stop(self) -> None:
        """End the thread; returns when the socket is closed, or after 1 s."""
        self._ended.set()
        self.join(1.0)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The loop: apply a new plan, wait, receive, send triples when due, report every second."""
        _tighten_timers()
        self._cost.start()
        try:
            while not self._ended.is_set() and time.monotonic() < self.until:
                self._apply_plan()
                self._wait()
                self._receive()
                now = time.monotonic()
                if self._due is not None and now >= self._due:
                    self._send_triple()
                    self._schedule_next(self._due, time.monotonic())
                if now - self._reported >= _REPORT_S:
                    self._report(now)
        finally:
            self.sock.close()
            self._report(time.monotonic(), is_last=True)

    def _apply_plan(self) -> None:
        received, self._next = self._next, None
        if received is None:
            return
        self._plan, self._peers = plan, _ = received
        self._probed = [peer for peer in self._peers.values() if peer.probes]
        for peer in self._probed:
            peer.start(plan.bin_ns, _SETTLE_S)
        self._cadence_ns = plan.cadence_ns
        now = time.monotonic()
        rate = _HEADROOM * plan.packets_per_s(len(self._peers))
        self._out, self._in = TokenBucket(rate, now), TokenBucket(rate, now)
        self._due = now + _SETTLE_S + random.random() * self._cadence_ns / 1e9 if self._probed else None
        self._ticks = self._missed = 0
        self._reported = now

    def _wait(self) -> None:
        now = time.monotonic()
        left = _MAX_WAIT_S if self._due is None else min(_MAX_WAIT_S, max(0.0, self._due - now))
        pause = self._in.wait_s(now)
        if pause > 0.0:  # over the rate limit: the kernel drops what exceeds its buffer, at no cost here
            time.sleep(min(left, pause))
        else:
            select.select([self.sock], [], [], left)

    def _schedule_next(self, due: float, now: float) -> None:
        """Set the next point of the grid after `due`; missed points are skipped."""
        cadence = self._cadence_ns / 1e9
        self._ticks += 1
        due += cadence
        if due <= now:
            missed = int((now - due) / cadence) + 1
            self._missed += missed
            self._ticks += missed
            due += missed * cadence
        self._due = due

    # -- sending -------------------------------------------------------------------------------------------------

    def _send_triple(self) -> None:
        spacing_s = self._plan.spacing_ns / 1e9 if self._plan is not None else 0.0
        for position in range(packet.PACKETS):
            if position:
                time.sleep(spacing_s)
            for peer in self._probed:
                self._request(peer, position)
        for peer in self._probed:
            peer.number += 1

    def _request(self, peer: "Peer", position: int) -> None:
        if not self._out.acquire(time.monotonic()):
            self._cost.over_rate += 1
            return
        data, key = peer.request(position)
        t1 = clock.mono_ns()
        self.sock.send(data, peer.destination)
        peer.record_sent(key, t1)
        self._cost.sent += 1

    def _reply(self, peer: "Peer", number: int, position: int, t2: int, stamps: int) -> None:
        if not self._out.acquire(time.monotonic()):
            self._cost.over_rate += 1
            return
        data = packet.pack(peer.seal, packet.REPLY, peer.edge, number, position, stamps, t2, clock.mono_ns())
        self.sock.send(data, peer.destination)
        self._cost.sent += 1

    # -- receiving -------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        for _ in range(_BATCH):
            if self._in.wait_s(time.monotonic()) > 0.0:
                return
            arrived = self.sock.receive()
            if arrived is None:
                return
            self._in.acquire(time.monotonic())
            self._cost.received += 1
            self._process(*arrived)

    def _process(self, data: bytes, source: "tuple[str, int]", stamp: "int | None") -> None:
        """Process one packet. One from an unknown peer, with a bad tag or replayed is counted and not answered."""
        now = clock.mono_ns()
        head = packet.head(data)
        if head is None:
            self._cost.bad_tag += 1
            return
        kind, edge, number, position, stamps = head
        peer = self._peers.get(edge)
        if peer is None or peer.source != source:
            self._cost.unnamed += 1
            return
        if not packet.is_genuine(peer.seal, data) or kind != (packet.REPLY if peer.probes else packet.REQUEST):
            self._cost.bad_tag += 1
            return
        arrived = now if stamp is None else clock.mono_of_kernel(stamp)
        if kind == packet.REQUEST:
            if peer.replay_window.accept(number * packet.PACKETS + position):
                self._reply(peer, number, position, arrived, 0 if stamp is None else packet.KERNEL)
            else:
                self._cost.replayed += 1
            return
        t2, t3 = packet.times(data)
        if not peer.record_reply(number, position, t2, t3, arrived, stamp is not None and bool(stamps & packet.KERNEL)):
            self._cost.replayed += 1

    # -- records --------------------------------------------------------------------------------------

    def _report(self, now: float, is_last: bool = False) -> None:
        if self._plan is None:
            return
        mono, real = clock.mono_ns(), clock.realtime_ns()
        if is_last:
            mono += _BIN_DELAY_NS  # all bins are complete
        facts = [fact for peer in self._probed for fact in self._bins_of(peer, mono, real - clock.mono_ns())]
        self._ticks = self._missed = 0
        elapsed = now - self._reported
        self._reported = now
        self._cost.add_bytes(self._post(facts) if facts else 0)
        cost, cpu_pct = self._cost.flush(max(elapsed, 1e-3), self.sock.dropped)
        if elapsed < _REPORT_S / 2:  # at the end: too short for rates
            return
        if self._probed and not is_last:
            self._adapt_cadence(self._plan, cpu_pct)
        cost["cadence_us"] = self._cadence_ns // 1000 if self._probed else 0
        self._cost.add_bytes(self._post([("clock_cost", cost)]))

    def _bins_of(self, peer: "Peer", mono: int, real_ahead: int) -> "Iterator[tuple[str, dict[str, Any]]]":
        peer.expire_before(mono - 4 * _BIN_DELAY_NS)
        is_kernel = peer.bins.is_kernel
        complete = peer.bins.flush(mono)
        if complete is None:
            return
        base, ahead, bins = complete
        yield "clock_bins", {
            "dst": peer.name, "stamps": "kernel_rx" if is_kernel else "user", "family": self.sock.family_name,
            "base": base, "base_real": base + real_ahead, "ahead": ahead, "bin_ms": peer.bins.bin_ns // 1000000,
            "bins": bins, "cadence_us": self._cadence_ns // 1000, "ticks": self._ticks, "missed": self._missed,
        }  # fmt: skip

    def _adapt_cadence(self, plan: "ProbePlan", cpu_pct: float) -> None:
        """Probe less often above the CPU cap; return to the plan's cadence below half of it."""
        cap, planned = plan.cpu_cap_pct, plan.cadence_ns
        if cpu_pct > cap:
            self._cadence_ns = int(min(self._cadence_ns * min(2.0, cpu_pct / cap), 1e9))
        elif cpu_pct < cap / 2.0 and self._cadence_ns > planned:
            self._cadence_ns = max(planned, int(self._cadence_ns / 1.5))


class ProbeCost(object):
    """Counters since the last `flush`; CPU time of the thread that calls `start` and `flush`."""

    def __init__(self, add_cost: "AddCost") -> None:
        self._add_cost = add_cost
        self._cpu_s = 0.0
        self._dropped = 0
        self._clear()

    def _clear(self) -> None:
        self.sent = self.received = self.bad_tag = self.unnamed = self.replayed = self.over_rate = 0
        self._bytes = 0

    def start(self) -> None:
        """Count CPU time from now."""
        self._cpu_s = _thread_cpu_s()

    def add_bytes(self, size: int) -> None:
        """Count bytes of records."""
        self._bytes += size

    def flush(self, elapsed_s: float, dropped: int) -> "tuple[dict[str, Any], float]":
        """(`clock_cost` fields, percent of a core) since the last call; `dropped`: the socket's total."""
        cpu_s = _thread_cpu_s()
        used = cpu_s - self._cpu_s
        self._cpu_s = cpu_s
        lost = (dropped - self._dropped) & 0xFFFFFFFF
        self._dropped = dropped
        self._add_cost(used, self._bytes)
        cost = {
            "cpu_pct": round(100.0 * used / elapsed_s, 2),
            "tx_packets_s": round(self.sent / elapsed_s, 1),
            "rx_packets_s": round(self.received / elapsed_s, 1),
            "tx_bytes_s": round(self.sent * packet.SIZE / elapsed_s, 1),
            "records_bytes_s": round(self._bytes / elapsed_s, 1),
            "bad_tag": self.bad_tag,
            "unnamed": self.unnamed,
            "replayed": self.replayed,
            "over_rate": self.over_rate + lost,
        }
        self._clear()
        return cost, round(100.0 * used / elapsed_s, 2)


def _thread_cpu_s() -> float:
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


def _tighten_timers() -> None:
    """Set this thread's timer slack to 1 ns: the default of 50 us is half a spacing."""
    try:
        own = os.readlink("/proc/thread-self").rpartition("/")[2]
        with open("/proc/%s/timerslack_ns" % own, "w") as f:
            f.write("1")
    except OSError:
        pass  # kernel before 4.6: the triples are slightly wider
