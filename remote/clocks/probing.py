"""The thread that probes and answers: it exists, with its socket, only for as long as the console asks."""

import os
import random
import select
import threading
import time

from . import packet
from . import stamps as clock
from .cost import Tallies
from .plan import PACKETS
from .rate_limit import Bucket

#: Packets read before anything else gets its turn; and the longest wait, after which a stop is noticed.
_BATCH, _LONGEST_S = 64, 0.05
_REPORT_S = 1.0
#: The first triple waits so long for the peers to be told, too: until then they answer nobody.
_SETTLE_S = 0.2
#: A bucket holds this many times what the schedule needs.
_SPARE = 2.0
#: Bins leave so long after their end.
_LATEST_NS = 250000000


class Probing(threading.Thread):
    """Answers peers on one port and probes those that it was told to, until its time is over.

    `post` takes facts for the console and gives the bytes they took; `spent` is told CPU seconds and bytes as they are
    spent. One thread does everything, so nothing here needs a lock but the plan, which is replaced as a whole.
    """

    def __init__(self, port, post, spent, until):
        super(Probing, self).__init__(name="gconsole-clock")
        self.daemon = True
        self.port = port
        self.until = until  # time.monotonic(); moved by whoever asks for more
        self._post, self._tallies = post, Tallies(spent)
        self._next = None  # (plan, peers) that the console has sent and this thread has not taken up
        self._plan, self._peers, self._probed = None, {}, []
        self._ended = threading.Event()
        self._out = self._in = Bucket(1, time.monotonic())
        self._cadence_ns = 0
        self._due = None  # time.monotonic() of the next triple
        self._ticks = self._missed = 0
        self._reported = time.monotonic()

    def follow(self, plan, named):
        """Probe and answer these peers from now on; the same session goes on undisturbed."""
        current = self._next or (self._plan, self._peers)
        if current[0] is None or current[0].session != plan.session:
            self._next = (plan, named)

    def stop(self):
        """End; returns once the socket is closed, or after a second."""
        self._ended.set()
        self.join(1.0)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self):
        _tighten_timers()
        self._tallies.begin()
        try:
            while not self._ended.is_set() and time.monotonic() < self.until:
                self._take_up()
                self._wait()
                self._drain()
                now = time.monotonic()
                if self._due is not None and now >= self._due:
                    self._triple()
                    self._plan_next(time.monotonic())
                if now - self._reported >= _REPORT_S:
                    self._report(now)
        finally:
            self.port.close()
            self._report(time.monotonic(), is_last=True)

    def _take_up(self):
        taken, self._next = self._next, None
        if taken is None:
            return
        self._plan, self._peers = taken
        self._probed = [peer for peer in self._peers.values() if peer.probes]
        for peer in self._probed:
            peer.begin(self._plan.bin_ns, _SETTLE_S)
        self._cadence_ns = self._plan.cadence_ns
        now = time.monotonic()
        rate = _SPARE * self._plan.needs_per_s(len(self._peers))
        self._out, self._in = Bucket(rate, now), Bucket(rate, now)
        self._due = now + _SETTLE_S + random.random() * self._cadence_ns / 1e9 if self._probed else None
        self._ticks = self._missed = 0
        self._reported = now

    def _wait(self):
        now = time.monotonic()
        left = _LONGEST_S if self._due is None else min(_LONGEST_S, max(0.0, self._due - now))
        pause = self._in.wait_s(now)
        if pause > 0.0:  # too much came: what does not fit the kernel's buffer is dropped there, and costs us nothing
            time.sleep(min(left, pause))
        else:
            select.select([self.port], [], [], left)

    def _plan_next(self, now):
        """The next point of the grid; what was missed is missed."""
        cadence = self._cadence_ns / 1e9
        self._ticks += 1
        self._due += cadence
        if self._due <= now:
            missed = int((now - self._due) / cadence) + 1
            self._missed += missed
            self._ticks += missed
            self._due += missed * cadence

    # -- what goes out -------------------------------------------------------------------------------------------------

    def _triple(self):
        for position in range(PACKETS):
            if position:
                time.sleep(self._plan.spacing_ns / 1e9)
            for peer in self._probed:
                self._ask(peer, position)
        for peer in self._probed:
            peer.number += 1

    def _ask(self, peer, position):
        if not self._out.take(time.monotonic()):
            self._tallies.over_rate += 1
            return
        data, found_by = peer.request(position)
        t1 = clock.mono_ns()
        self.port.send(data, peer.where)
        peer.sent(found_by, t1)
        self._tallies.sent += 1

    def _reply(self, peer, number, position, t2, stamps):
        if not self._out.take(time.monotonic()):
            self._tallies.over_rate += 1
            return
        data = packet.pack(peer.seal, packet.REPLY, peer.edge, number, position, stamps, t2, clock.mono_ns())
        self.port.send(data, peer.where)
        self._tallies.sent += 1

    # -- what comes in -------------------------------------------------------------------------------------------------

    def _drain(self):
        for _ in range(_BATCH):
            if self._in.wait_s(time.monotonic()) > 0.0:
                return
            arrived = self.port.receive()
            if arrived is None:
                return
            self._in.take(time.monotonic())
            self._tallies.received += 1
            self._take(*arrived)

    def _take(self, data, source, stamp):
        """Act on one packet. What is not of a named peer, with its tag, once, is counted and gets no answer."""
        now = clock.mono_ns()
        told = packet.head(data)
        if told is None:
            self._tallies.bad_tag += 1
            return
        kind, edge, number, position, stamps = told
        peer = self._peers.get(edge)
        if peer is None or peer.source != source:
            self._tallies.unnamed += 1
            return
        if not packet.is_genuine(peer.seal, data) or kind != (packet.REPLY if peer.probes else packet.REQUEST):
            self._tallies.bad_tag += 1
            return
        at = now if stamp is None else clock.mono_of_kernel(stamp)
        if kind == packet.REQUEST:
            if peer.once.accept(number * PACKETS + position):
                self._reply(peer, number, position, at, 0 if stamp is None else packet.KERNEL)
            else:
                self._tallies.replayed += 1
            return
        t2, t3 = packet.times(data)
        if not peer.replied(number, position, t2, t3, at, stamp is not None and bool(stamps & packet.KERNEL)):
            self._tallies.replayed += 1

    # -- what the console is told --------------------------------------------------------------------------------------

    def _report(self, now, is_last=False):
        if self._plan is None:
            return
        mono, real = clock.mono_ns(), clock.realtime_ns()
        if is_last:
            mono += _LATEST_NS  # nothing will come any more
        facts = [fact for peer in self._probed for fact in self._bins_of(peer, mono, real - clock.mono_ns())]
        self._ticks = self._missed = 0
        elapsed = now - self._reported
        self._reported = now
        self._tallies.records(self._post(facts) if facts else 0)
        cost, cpu_pct = self._tallies.take(max(elapsed, 1e-3), self.port.dropped)
        if elapsed < _REPORT_S / 2:  # the end: rates over so little would say nothing
            return
        if self._probed and not is_last:
            self._respect_cap(cpu_pct)
        cost["cadence_us"] = self._cadence_ns // 1000 if self._probed else 0
        self._tallies.records(self._post([("clock_cost", cost)]))

    def _bins_of(self, peer, mono, real_ahead):
        peer.forget_before(mono - 4 * _LATEST_NS)
        kernel = peer.bins.kernel
        taken = peer.bins.take(mono)
        if taken is None:
            return
        base, ahead, bins = taken
        yield "clock_bins", {
            "dst": peer.name, "stamps": "kernel_rx" if kernel else "user", "family": self.port.family_name,
            "base": base, "base_real": base + real_ahead, "ahead": ahead, "bin_ms": self._plan.bin_ns // 1000000,
            "bins": bins, "cadence_us": self._cadence_ns // 1000, "ticks": self._ticks, "missed": self._missed,
        }  # fmt: skip

    def _respect_cap(self, cpu_pct):
        """Probe less often while that costs more than it may, as often as asked again when it costs far less."""
        cap, asked = self._plan.cpu_cap_pct, self._plan.cadence_ns
        if cpu_pct > cap:
            self._cadence_ns = int(min(self._cadence_ns * min(2.0, cpu_pct / cap), 1e9))
        elif cpu_pct < cap / 2.0 and self._cadence_ns > asked:
            self._cadence_ns = max(asked, int(self._cadence_ns / 1.5))


def _tighten_timers():
    """Have this thread's sleeps end when they should: the kernel may be 50 us late, which is half a spacing."""
    try:
        own = os.readlink("/proc/thread-self").rpartition("/")[2]
        with open("/proc/%s/timerslack_ns" % own, "w") as f:
            f.write("1")
    except OSError:
        pass  # a kernel before 4.6: the triples are a little wider
