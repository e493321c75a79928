"""The bytes that a rank exchanges in short intervals: the steps of its job show in them.

The console orders it of one rank of each job whose steps are not watched. Read are the counters of the two connections
of the rank that move most, of all interfaces of its network namespace if that is not the agent's, or of the RDMA port
of the node that moves most: whatever moved most between two selections.
"""

import os
import time

from ..clocks import stamps
from ..comms.sockets import inodes_of
from ..proc.net_tables import TcpCounters, same_network, table_lines, tcp_connections
from ..proc.procfs import ProcFs
from .base import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    from .base import Context, Fact, Fields, ProcessKey
    from .process_snapshot import RankRef

#: ms of one interval, and of the longest one: intervals double where sampling costs more than `MOST_PCT` of a core,
#: over `COST_TICKS` ticks.
EVERY_MS, LONGEST_MS = 50, 400
MOST_PCT, COST_TICKS = 0.5, 10
#: Intervals in which no counter could be read until what was exchanged in them is unknown.
MOST_MISSED = 4
#: Seconds at the end of a tick in which nothing is read, so that the next tick begins in time.
SPARE_S = 0.06
#: Ranks of one node.
MOST_RANKS = 8
#: Connections of one rank that are read.
CONNECTIONS = 2
#: Seconds until what moves is selected again, doubled each time, and for which what was chosen may move nothing.
SELECT_S, LONGEST_SELECT_S, QUIET_S = 2.0, 60.0, 20.0
#: Seconds without anything to read after which the sampler needs no thread of its own.
UNREAD_S = 60.0
#: Bytes that something has moved at least between two selections.
LEAST_BYTES = 4096
_RDMA_FILES = ("counters/port_xmit_data", "counters/port_rcv_data")
_RDMA_WORD = 4  # bytes


class TrafficSampler(Sampler):
    """`rank_traffic` of the ranks in `context.shared["traffic"]`, which are (pid, start_ticks), once a second."""

    name = "traffic"

    def __init__(self, context: "Context") -> None:
        super(TrafficSampler, self).__init__(context)
        self._procfs = ProcFs(context.proc)
        self._meters: "dict[ProcessKey, Meter]" = {}
        self._every_ms = EVERY_MS
        self._cost: "tuple[float, float] | None" = None  # (time.monotonic(), CPU s) when the count began
        self._ticks = 0
        self.waits = True  # a tick reads for almost a second; many ranks have no connection to read for a long time
        self._last_read: "float | None" = None  # time.monotonic() of the last tick in which there was one to read

    def stop(self) -> None:
        """Close the counters."""
        for key in list(self._meters):
            self._meters.pop(key).close()

    def tick(self, now: float) -> "Iterable[Fact]":
        """Read for almost a second, then yield what was exchanged: see `waits`."""
        ranks = self._ranks()
        for key in [key for key in self._meters if key not in ranks]:
            self._meters.pop(key).close()
        if not ranks or self.context.interval_s > self.context.configured_s:  # others come first
            self._cost, self.waits = None, False
            self.stop()
            return []
        for key in ranks:
            if key not in self._meters:
                self._meters[key] = Meter(self._procfs, self.context.sys, key[0], self._every_ms)
            self._meters[key].select(now)
        meters = [meter for meter in self._meters.values() if meter.is_reading]
        if meters and self.waits:  # else in the next tick, on a thread of its own
            self._read(meters, now + self.interval_s - SPARE_S)
        if meters or self._last_read is None:
            self._last_read = now
        self.waits = now - self._last_read < UNREAD_S
        facts = [("rank_traffic", fields) for key, rank in ranks.items() for fields in self._meters[key].records(rank)]
        self._limit_cost()
        return facts

    def _ranks(self) -> "dict[ProcessKey, RankRef]":
        """The ordered ones that live here."""
        snapshot, wanted = self.context.shared.get("processes"), self.context.shared.get("traffic", ())
        ranks = {(rank.pid, rank.start_ticks): rank for rank in snapshot.ranks} if snapshot and wanted else {}
        return {key: ranks[key] for key in wanted[:MOST_RANKS] if key in ranks}

    def _read(self, meters: "list[Meter]", until: float) -> None:
        every_s = self._every_ms / 1e3
        while True:
            for meter in meters:
                meter.read()
            now = time.monotonic()
            due = now + every_s - now % every_s
            if due > until:
                return
            time.sleep(due - now)

    def _limit_cost(self) -> None:
        """Use longer intervals where these cost too much."""
        spent = (time.monotonic(), time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID))
        self._ticks += 1
        if self._cost is None:
            self._cost, self._ticks = spent, 0
        elif self._ticks >= COST_TICKS:
            pct = 100.0 * (spent[1] - self._cost[1]) / (spent[0] - self._cost[0])
            self._cost, self._ticks = spent, 0
            if pct > MOST_PCT and self._every_ms < LONGEST_MS:
                self._every_ms *= 2
                self.stop()


class Meter(object):
    """What one rank exchanges, by interval."""

    def __init__(self, procfs: "ProcFs", sys: str, pid: int, every_ms: int) -> None:
        self._procfs, self._sys, self._pid, self._every_ms = procfs, sys, pid, every_ms
        self._intervals = Intervals(every_ms * 1000000)
        self._before: "dict[str, dict[Any, int]]" = {}  # at the last selection: bytes by source and counter
        self._source = ""
        self._total: "Callable[[], int | None] | None" = None
        self._close: "Callable[[], None]" = lambda: None
        self._select_due, self._select_s = 0.0, SELECT_S
        self._moved_at = 0.0  # time.monotonic() when what was chosen moved bytes
        self._last = -1

    @property
    def is_reading(self) -> bool:
        """Whether something was chosen."""
        return self._total is not None

    def close(self) -> None:
        """Close the counters."""
        self._close()
        self._close, self._total = lambda: None, None

    def select(self, now: float) -> None:
        """Choose what moves most, where nothing was chosen or that moves nothing any more."""
        if self._total is not None and now - self._moved_at < QUIET_S:
            return
        if now < self._select_due:
            return
        self._select_due, self._select_s = now + self._select_s, min(LONGEST_SELECT_S, 2 * self._select_s)
        counts, choices = self._counts()
        moved = {
            source: sorted(
                ((count - self._before.get(source, {}).get(name, count), name) for name, count in by_name.items()),
                key=_by_bytes,
            )[-CONNECTIONS if source == "tcp" else -1 :]
            for source, by_name in counts.items()
        }
        self._before = counts
        best = max(moved, key=lambda source: sum(count for count, _ in moved[source]), default=None)
        if best is not None and sum(count for count, _ in moved[best]) >= LEAST_BYTES:
            self.close()
            self._choose(best, [choices[best][name] for count, name in moved[best] if count > 0])
            self._moved_at, self._select_s, self._before = now, SELECT_S, {}

    def _counts(self) -> "tuple[dict[str, dict[Any, int]], dict[str, dict[Any, Any]]]":
        """By source: bytes so far by counter, and what each is read from."""
        counts: "dict[str, dict[Any, int]]" = {}
        choices: "dict[str, dict[Any, Any]]" = {}
        try:
            if same_network(self._procfs, self._pid):
                connections = tcp_connections(inodes_of(self._procfs, self._pid))
                counts["tcp"] = {inode: each.moved for inode, each in connections.items()}
                choices["tcp"] = dict(connections)
            else:
                counts["interfaces"] = {0: self._of_interfaces() or 0}
                choices["interfaces"] = {0: None}
        except OSError:
            pass  # not permitted, or ended
        ports = {folder: count for folder in _rdma_ports(self._sys) for count in [_rdma_bytes(folder)] if count}
        if ports:
            counts["rdma"] = ports
            choices["rdma"] = {folder: folder for folder in ports}
        return counts, choices

    def _choose(self, source: str, chosen: "list[Any]") -> None:
        self._source, self._last = source, -1
        self._intervals.skip()
        if source == "tcp":
            counters = TcpCounters(chosen)
            self._total, self._close = counters.total, counters.close
        elif source == "rdma":
            self._total = lambda: _rdma_bytes(chosen[0])
        else:
            self._total = self._of_interfaces

    def _of_interfaces(self) -> "int | None":
        """Bytes of all interfaces of the network namespace of the rank."""
        total = None
        for line in table_lines(self._procfs, self._pid, "dev")[1:]:
            fields = line.partition(b":")[2].split()
            if len(fields) > 8:
                total = (total or 0) + int(fields[0]) + int(fields[8])
        return total

    def read(self) -> None:
        """Read the counters once."""
        if self._total is None:
            return
        try:
            total = self._total()
        except (OSError, ValueError):
            total = None
        if total is None:
            self.close()  # another one is selected at the next tick
            return
        if total != self._last:
            self._last, self._moved_at = total, time.monotonic()
        self._intervals.add(stamps.mono_ns(), total)

    def records(self, rank: "RankRef") -> "Iterable[Fields]":
        """Fields of `rank_traffic` records of the intervals that have ended since the last call."""
        for began, moved in self._intervals.pop_runs():
            yield {
                "job": rank.job, "attempt": rank.attempt, "rank": rank.rank, "pid": rank.pid,
                "start_ticks": rank.start_ticks, "source": self._source, "began": began, "every_ms": self._every_ms,
                "moved_bytes": moved,
            }  # fmt: skip


class Intervals(object):
    """Growth of a counter in intervals that begin at whole multiples of their length, ns, by readings in between."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._last: "tuple[int, int] | None" = None  # (instant, count)
        self._edge: "tuple[int, int] | None" = None  # the newest one, and the count there
        self._runs: "list[tuple[int, list[int]]]" = []  # (instant of the first edge, growth by interval)

    def skip(self) -> None:
        """What is added next has nothing to do with what was added before."""
        self._last = self._edge = None

    def add(self, instant: int, count: int) -> None:
        """A reading. After a long pause, or a counter that began again, the intervals between are unknown."""
        last, self._last = self._last, (instant, count)
        if last is None or count < last[1] or instant - last[0] > MOST_MISSED * self._length or instant <= last[0]:
            self._edge = None
            return
        edge = last[0] - last[0] % self._length + self._length
        while edge <= instant:
            there = last[1] + (count - last[1]) * (edge - last[0]) // (instant - last[0])
            if self._edge is not None and self._edge[0] == edge - self._length:
                self._append(self._edge[0], there - self._edge[1])
            self._edge = (edge, there)
            edge += self._length

    def _append(self, began: int, growth: int) -> None:
        if not self._runs or self._runs[-1][0] + len(self._runs[-1][1]) * self._length != began:
            self._runs.append((began, []))
        self._runs[-1][1].append(growth)

    def pop_runs(self) -> "list[tuple[int, list[int]]]":
        """The runs of intervals since the last call."""
        runs, self._runs = self._runs, []
        return runs


def _by_bytes(item: "tuple[int, Any]") -> int:
    return item[0]


def _rdma_ports(sys: str) -> "Iterable[str]":
    root = sys + "/class/infiniband"
    try:
        for device in os.listdir(root):
            for number in os.listdir("%s/%s/ports" % (root, device)):
                yield "%s/%s/ports/%s" % (root, device, number)
    except OSError:
        return


def _rdma_bytes(folder: str) -> "int | None":
    """Bytes that a port has moved in both directions; None without its counters."""
    total = 0
    for name in _RDMA_FILES:
        try:
            with open("%s/%s" % (folder, name), "rb", 0) as file:
                total += int(file.read(64)) * _RDMA_WORD
        except (OSError, ValueError):
            return None
    return total
