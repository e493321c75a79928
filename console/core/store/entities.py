"""Current state of nodes, GPUs and ranks, with their keys in the store, and the retention of ended ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

import msgspec

from ...records import (
    AgentCost,
    Failure,
    Gpu,
    GpuDigest,
    GpuInfo,
    Host,
    Node,
    NodeState,
    Place,
    Rank,
    RankStat,
    RankTraffic,
    Stack,
)
from ...records.kinds import SPECS, is_gone
from ..versioned_table import Table

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: A process: (node, pid, start_ticks).
ProcessKey = tuple[str, int, int]
#: A GPU: (node, uuid).
GpuKey = tuple[str, str]
#: A GPU's link: (node, uuid, link); a process on a GPU: (node, uuid, pid).
GpuPartKey = tuple[str, str, int]
#: A network port: (node, device, port).
NicKey = tuple[str, str, int]
#: An edge of a node's topology: (node, type, kind and id of one end, of the other).
LinkKey = tuple[str, str, str, str, str, str]


class NodeNow(msgspec.Struct):
    """Newest records of one node."""

    name: str
    state: NodeState | None = None
    failure: Failure | None = None  # of the last attempt to connect, also during the next one; None once it succeeded
    node: Node | None = None
    host: Host | None = None
    cost: AgentCost | None = None  # None until the agent's first full tick
    last_rx: int = 0  # console time of its last record, ns; 0: none
    agent_rx: int = 0  # console time of the first `node` record of its agent, ns; 0: none


class GpuNow(msgspec.Struct):
    """Newest records of one GPU."""

    info: GpuInfo | None = None
    gpu: Gpu | None = None
    digest: GpuDigest | None = None  # of the last second, if it was sampled several times


class RankNow(msgspec.Struct):
    """A process that is or was a rank."""

    rank: Rank
    stat: RankStat | None = None
    still_since: int | None = None  # `mono` of the first of the consecutive samples without activity
    asleep_since: int | None = None  # `mono` of the first of the consecutive samples in which its main thread slept
    broken: tuple[int, int] | None = None  # (`t` of the last activity, previous `still_since`)
    disturbed: int = 0  # `t` at which the agent last paused it to read native frames
    active_ticks: int = 0  # consecutive samples with activity, at most `RECOVERED_TICKS`
    pause_s: float = 0.0  # the last idle time that ended, before it counts as recovered
    longest_pause_s: float = 0.0  # the longest idle time from which it recovered
    place: Place | None = None  # of its main thread in the newest sample
    places: int = 0  # samples of its place so far
    quiet_since: int | None = None  # `t` since which its data connections are silent; None: they are not, or unknown
    longest_quiet_s: float = 0.0  # the longest silence that ended
    was_loud: bool = False  # its data connections have moved more than `QUIET_BYTES_S`


class RetainedEntries(Generic[K, V]):
    """Keeps at most `most` ended entries of `table`; an entry that becomes active again no longer counts."""

    def __init__(self, table: Table[K, V], most: int, is_over: Callable[[V], bool]) -> None:
        self._table, self._most, self._is_over = table, most, is_over
        self._keys: deque[K] = deque()  # oldest first

    def add(self, key: K, version: int) -> None:
        """The entry of that key has ended."""
        self._keys.append(key)
        if len(self._keys) > self._most:
            self._drop(self._keys.popleft(), version)

    def _drop(self, key: K, version: int) -> None:
        entry = self._table.get(key)
        if entry is not None and self._is_over(entry) and key not in self._keys:
            self._table.drop(key, version)


#: Ranks that have ended are kept with their reason; a job that restarts all night must not fill the memory.
ENDED_RANKS: Final = SPECS[Rank].kept_total or 0
#: States without CPU activity.
STILL: Final = ("idle", "stopped", "uninterruptible")
#: The kernel's letters of a thread that does not run, whatever the other threads of its process do.
ASLEEP: Final = ("S", "D", "T", "t")
#: CPU percent of background threads (gloo, the TCP store) in an idle rank; the kernel accounts whole ticks of 10 ms.
BACKGROUND_PCT: Final = 5.0
#: Consecutive active samples after which an idle time was a pause that is over, not a stall that something disturbed.
RECOVERED_TICKS: Final = 3

#: Bytes per second of a rank's connections below which they are silent: keepalives, the heartbeat of a store.
QUIET_BYTES_S: Final = 1024.0


class RankTable:
    """Ranks by process."""

    def __init__(self) -> None:
        self.table: Table[ProcessKey, RankNow] = Table()
        self._ended = RetainedEntries(self.table, ENDED_RANKS, lambda now: is_gone(now.rank))
        self._past: dict[ProcessKey, RankNow] = {}  # of nodes whose agent was replaced

    def keep_past(self, node: str) -> None:
        """Keep what is known of the pauses of a node's ranks, which a new agent will report again."""
        self._past = {key: now for key, now in self._past.items() if key[0] != node}
        self._past.update((key, now) for key, now in self.table.items() if key[0] == node and not is_gone(now.rank))

    def add(self, record: Rank, version: int) -> None:
        """Add or update a rank; a withdrawn one is dropped."""
        key = key_of(record)
        now = self.table.get(key)
        if record.status == "withdrawn":
            self.table.drop(key, version)
        elif now is None:
            now, past = RankNow(record), self._past.pop(key, None)
            if past is not None:
                now.longest_pause_s, now.longest_quiet_s = past.longest_pause_s, past.longest_quiet_s
                now.was_loud = past.was_loud
            self.table.put(key, now, version)
        else:
            now.rank = record
            self.table.touch(key, version)
        if is_gone(record):
            self._ended.add(key, version)

    def add_stat(self, record: RankStat, version: int) -> bool:
        """Update a rank's figures; False for a process that is not a rank."""
        key = key_of(record)
        now = self.table.get(key)
        if now is None:
            return False
        _watch(now, record)
        now.stat = record
        self.table.touch(key, version)
        return True

    def add_place(self, record: Place, version: int) -> None:
        """Update where a rank is."""
        now = self.table.get(key_of(record))
        if now is not None:
            _follow_traffic(now, record)
            now.place, now.places = record, now.places + 1
            self.table.touch(key_of(record), version)

    def backfill(self, other: RankTable, version: int) -> None:
        """Take idle times from another table, and last figures where this one has none."""
        for key, now in self.table.items():
            past = other.table.get(key)
            if past is not None:
                now.stat = now.stat or past.stat
                now.still_since, now.broken, now.disturbed = past.still_since, past.broken, past.disturbed
                now.active_ticks, now.asleep_since = past.active_ticks, past.asleep_since
                now.pause_s, now.longest_pause_s = past.pause_s, past.longest_pause_s
                now.place, now.places = now.place or past.place, max(now.places, past.places)
                now.quiet_since, now.longest_quiet_s = past.quiet_since, past.longest_quiet_s
                now.was_loud = past.was_loud
                self.table.touch(key, version)

    def disturb(self, record: Stack) -> None:
        """Ignore progress that the agent itself caused when it paused the process to read its stack."""
        now = self.table.get(key_of(record))
        if now is not None and record.mode == "blocking" and record.began is not None and record.ended is not None:
            now.disturbed = record.ended
            if now.broken is not None and now.broken[0] >= record.began:
                now.still_since = now.broken[1]


def key_of(record: Rank | RankStat | Stack | Place | RankTraffic) -> ProcessKey:
    """The process of a record."""
    return (record.node, record.pid, record.start_ticks)


def _follow_traffic(now: RankNow, record: Place) -> None:
    """Update since when the data connections of a rank are silent."""
    before = now.place
    if record.moved_bytes is None or before is None or record.sampled <= before.sampled:
        now.quiet_since = None
        return
    most = QUIET_BYTES_S * (record.sampled - before.sampled) / 1e9
    now.was_loud |= record.moved_bytes > most
    if record.moved_bytes <= (most if now.was_loud else 0):  # small messages are all that some jobs send
        now.quiet_since = now.quiet_since or before.sampled
    elif now.quiet_since is not None:
        now.longest_quiet_s = max(now.longest_quiet_s, (before.sampled - now.quiet_since) / 1e9)
        now.quiet_since = None


def _watch(now: RankNow, record: RankStat) -> None:
    """Update since when the rank is idle; activity caused by the agent's own reads does not count."""
    main_sleeps = record.proc_state in ASLEEP and record.ctx_switches_s == 0.0
    if record.slept_s is not None and now.stat is None:
        now.asleep_since = record.mono - int(record.slept_s * 1e9)
    elif main_sleeps:
        now.asleep_since = now.asleep_since or record.mono
    elif now.stat is None or now.stat.t > now.disturbed:
        now.asleep_since = None
    sleeps = record.proc_state == "S" and main_sleeps and (record.cpu_pct or 0.0) < BACKGROUND_PCT
    if record.state in STILL or sleeps:
        now.still_since = now.still_since or record.mono
        now.active_ticks = 0
    elif now.stat is None or now.stat.t > now.disturbed:
        if now.still_since is not None:
            now.pause_s = max(now.pause_s, (record.mono - now.still_since) / 1e9)
        now.active_ticks = min(RECOVERED_TICKS, now.active_ticks + 1)
        if now.active_ticks == RECOVERED_TICKS:
            now.longest_pause_s, now.pause_s = max(now.longest_pause_s, now.pause_s), 0.0
        if now.still_since is not None:
            now.broken = (record.t, now.still_since)
        now.still_since = None
