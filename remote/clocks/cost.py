"""What probing costs the node, counted by the thread that probes."""

import time

from . import packet


class Tallies(object):
    """Counts since the last `take`; CPU is that of the thread that calls `begin` and `take`.

    `spent(cpu_s, bytes)` is told every second what probing has cost, so that it is not counted as the agent's own.
    """

    def __init__(self, spent):
        self._spent = spent
        self._cpu_s = 0.0
        self._dropped = 0
        self._clear()

    def _clear(self):
        self.sent = self.received = self.bad_tag = self.unnamed = self.replayed = self.over_rate = 0
        self._bytes = 0

    def begin(self):
        self._cpu_s = _thread_cpu_s()

    def records(self, size):
        """So many bytes of records were written."""
        self._bytes += size

    def take(self, elapsed_s, dropped):
        """(fields of a `clock_cost`, percent of a core) of the time since the last call; `dropped`: by the kernel."""
        cpu_s = _thread_cpu_s()
        used = cpu_s - self._cpu_s
        self._cpu_s = cpu_s
        lost = (dropped - self._dropped) & 0xFFFFFFFF
        self._dropped = dropped
        self._spent(used, self._bytes)
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
        return cost, cost["cpu_pct"]


def _thread_cpu_s():
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)
