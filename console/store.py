"""What is true now, and what was: every record folded into current tables, bounded history and a list of events.

One writer (the hub), any number of readers that ask "what changed since version N". Nothing here knows a screen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from .captures import Captures
from .clockbook import ClockBook
from .records import (
    AgentCost,
    ClockBins,
    ClockCost,
    ClockNode,
    ClockSnapshot,
    ClockSource,
    ClockWindow,
    Collective,
    Console,
    Finding,
    Gap,
    Gpu,
    GpuDigest,
    GpuEvent,
    GpuInfo,
    GpuLink,
    GpuProcess,
    Host,
    Link,
    Log,
    Mark,
    Nic,
    Node,
    NodeState,
    PgStatus,
    Process,
    Rank,
    RankStat,
    RawRecord,
    Record,
    Stack,
)
from .stepbook import StepBook
from .table import Table

if TYPE_CHECKING:
    from .history import History

EVENTS: Final = 10_000
#: Ranks that have ended are kept, for whoever asks why; a job that restarts all night must not fill the memory.
ENDED_RANKS: Final = 16_384
#: Findings that are no longer true are kept, for the report; one that comes and goes for days must not fill the memory.
CLEARED_FINDINGS: Final = 4_096
#: So many unknown kinds are counted by name, the rest as one.
UNKNOWN_KINDS: Final = 100
#: How far two clocks may drift apart, as a share: crystals do by 1e-5, seldom 1e-4.
DRIFT: Final = 1e-4

#: The metrics whose history is kept, per family: fields of the record of that name.
FAMILIES: dict[str, tuple[str, ...]] = {
    "host": ("cpu_pct", "mem_used_bytes", "cpu_stall_pct", "io_stall_pct", "net_rx_bytes_s", "net_tx_bytes_s"),
    "gpu": (
        "util_pct", "mem_used_bytes", "power_w", "temp_c", "sm_clock_mhz",
        "pcie_rx_bytes_s", "pcie_tx_bytes_s", "nvlink_rx_bytes_s", "nvlink_tx_bytes_s", "sm_pct", "tensor_pct",
    ),
    "nic": ("rx_bytes_s", "tx_bytes_s"),
    "rank_stat": ("cpu_pct", "rss_bytes"),
}

#: States in which a rank's process does nothing.
STILL: Final = ("idle", "stopped", "uninterruptible")
#: What the other threads of a rank whose main thread sleeps may take of a core: those of gloo and of the store tick on,
#: and the kernel accounts whole ticks of 10 ms.
BACKGROUND_PCT: Final = 5.0

#: A rank with such a status is over, or never was.
ENDED: Final = ("exited", "withdrawn")

#: A process for ever: (node, pid, start_ticks).
ProcessKey = tuple[str, int, int]
#: A GPU: (node, uuid).
GpuKey = tuple[str, str]
#: One of its links: (node, uuid, link). A process on it: (node, uuid, pid).
GpuPartKey = tuple[str, str, int]
#: A network port: (node, device, port).
NicKey = tuple[str, str, int]
#: An edge of a node's topology: (node, type, kind and id of one end, of the other).
LinkKey = tuple[str, str, str, str, str, str]


@dataclass(slots=True)
class NodeNow:
    """All that is known of one node now."""

    name: str
    state: NodeState | None = None
    node: Node | None = None
    host: Host | None = None
    cost: AgentCost | None = None  # None until the agent's first full tick
    heard: int = 0  # console time of its last record, ns; 0 for never


@dataclass(slots=True)
class GpuNow:
    """All that is known of one GPU now."""

    info: GpuInfo | None = None
    gpu: Gpu | None = None
    digest: GpuDigest | None = None  # of the last second, where it was looked at several times


@dataclass(slots=True)
class RankNow:
    """One process that is, or was, a rank."""

    rank: Rank
    stat: RankStat | None = None
    still_since: int | None = None  # `mono` of the first of the figures that say, without a break, that nothing moves
    broken: tuple[int, int] | None = None  # when that had its last break (`t`), and since when it had held
    disturbed: int = 0  # when the agent had last stopped it to read its native calls (`t`)


@dataclass
class Counts:
    """What could not be folded."""

    unknown_kinds: dict[str, int] = field(default_factory=dict)  # "…" holds those beyond the first `UNKNOWN_KINDS`

    def unknown(self, kind: str) -> None:
        known = kind in self.unknown_kinds or len(self.unknown_kinds) < UNKNOWN_KINDS
        name = kind if known else "…"
        self.unknown_kinds[name] = self.unknown_kinds.get(name, 0) + 1


def _watch(now: RankNow, record: RankStat) -> None:
    """Whether the rank still stands still. What the agent's own reading did to it is no movement."""
    sleeps = record.proc_state == "S" and record.ctx_switches_s == 0.0 and (record.cpu_pct or 0.0) < BACKGROUND_PCT
    if record.state in STILL or sleeps:
        now.still_since = now.still_since or record.mono
    elif now.stat is None or now.stat.t > now.disturbed:
        if now.still_since is not None:
            now.broken = (record.t, now.still_since)
        now.still_since = None


@dataclass(slots=True)
class _Anchor:
    """How far console time is ahead of the clock that one agent stamps with (its `mono`, which nobody ever sets).

    The smallest difference seen, that of the record that travelled fastest; it gives way slowly, because clocks drift.
    """

    agent: str
    ahead_ns: int
    mono: int

    def console_time(self, record: Record) -> int:
        """When a record was made, in ns of the console's clock; never after it arrived."""
        slack = int(max(0, record.mono - self.mono) * DRIFT)
        self.mono = max(self.mono, record.mono)
        self.ahead_ns = min(self.ahead_ns + slack, record.rx - record.mono)
        return record.mono + self.ahead_ns


class Store:
    """The fold of all records. `version` grows with every batch; `history` is None where nobody draws curves."""

    def __init__(self, history_bytes: int | None = None) -> None:
        self.version = 0
        self.nodes: Table[str, NodeNow] = Table()
        self.gpus: Table[GpuKey, GpuNow] = Table()
        self.gpu_links: Table[GpuPartKey, GpuLink] = Table()
        self.gpu_processes: Table[GpuPartKey, GpuProcess] = Table()
        self.nics: Table[NicKey, Nic] = Table()
        self.links: Table[LinkKey, Link] = Table()
        self.ranks: Table[ProcessKey, RankNow] = Table()
        self.processes: Table[ProcessKey, Process] = Table()
        self.findings: Table[tuple[str, tuple[str, ...]], Finding] = Table()
        self.captures = Captures()
        self.clocks = ClockBook()
        self.steps = StepBook()
        self.events: deque[tuple[int, Record]] = deque(maxlen=EVENTS)  # (version, record), oldest first
        self.counts = Counts()
        self.console: Console | None = None
        self.started_rx = 0  # console time of the oldest record, ns
        self.newest_rx = 0  # console time of the newest record, ns: a view's "now", live and in replay alike
        self.history: History | None = None
        self._anchors: dict[str, _Anchor] = {}  # by node
        self._ended: deque[ProcessKey] = deque()  # ranks that ended, oldest first
        self._cleared: deque[tuple[str, tuple[str, ...]]] = deque()  # findings, oldest first
        self._folds: dict[type, Callable[[Any], None]] = {
            Console: self._console, NodeState: self._node_state, Node: self._node, Host: self._host,
            AgentCost: self._cost, GpuInfo: self._gpu_info, Gpu: self._gpu, GpuDigest: self._gpu_digest,
            GpuLink: self._gpu_link, GpuProcess: self._gpu_process, GpuEvent: self._event, Nic: self._nic,
            Link: self._link, Process: self._process, Rank: self._rank, RankStat: self._rank_stat, Stack: self._stack,
            Collective: self._flight, PgStatus: self._flight, Log: self._event, Mark: self._event, Gap: self._event,
            Finding: self._finding, ClockBins: self._clock(self.clocks.add_bins),
            ClockSnapshot: self._clock(self.clocks.add_snapshot), ClockSource: self._clock(self.clocks.add_source),
            ClockCost: self._clock(self.clocks.add_cost), ClockWindow: self._clock(self.clocks.add_window),
            ClockNode: self._clock(self.clocks.add_node),
        }  # fmt: skip
        if history_bytes is not None:
            from .history import History  # numpy costs 190 ms to import; batch draws no curves

            self.history = History(FAMILIES, history_bytes, self._warn)

    def apply(self, records: Sequence[Record | RawRecord]) -> None:
        """Fold a batch; subscribe this to the hub."""
        self.version += 1
        for record in records:
            if isinstance(record, RawRecord):
                self.counts.unknown(record.kind)
                continue
            if not self.started_rx:
                self.started_rx = record.rx
            if record.rx > self.newest_rx:
                self.newest_rx = record.rx
            self._folds[type(record)](record)

    def events_since(self, version: int) -> list[Record]:
        """Events of the batches after that version, oldest first."""
        found = []
        for at, record in reversed(self.events):
            if at <= version:
                break
            found.append(record)
        return found[::-1]

    # -- one fold a kind -----------------------------------------------------------------------------------------------

    def _console(self, record: Console) -> None:
        self.console = record

    def _node_now(self, record: Record) -> NodeNow:
        now = self.nodes.get(record.node)
        if now is None:
            now = NodeNow(record.node)
            self.nodes.put(record.node, now, self.version)
        else:
            self.nodes.touch(record.node, self.version)
        return now

    def _heard(self, record: Record) -> NodeNow:
        now = self._node_now(record)
        now.heard = max(now.heard, record.rx)
        return now

    def _node_state(self, record: NodeState) -> None:
        if record.state == "removed":
            self._forget_node(record.node)
            return
        now = self._node_now(record)
        before = now.state
        now.state = record
        if before is None or before.state != record.state:
            self._event(record)

    def _node(self, record: Node) -> None:
        now = self._heard(record)
        if now.node is not None and now.node.agent != record.agent:
            now.host = now.cost = None
            self._drop_facts(record.node)
        now.node = record

    def _host(self, record: Host) -> None:
        self._heard(record).host = record
        self._remember("host", record.node, record)

    def _cost(self, record: AgentCost) -> None:
        self._heard(record).cost = record

    def _gpu_info(self, record: GpuInfo) -> None:
        self._gpu_now(record.node, record.uuid).info = record

    def _gpu(self, record: Gpu) -> None:
        self._gpu_now(record.node, record.uuid).gpu = record
        self._remember("gpu", (record.node, record.uuid), record)

    def _gpu_digest(self, record: GpuDigest) -> None:
        self._gpu_now(record.node, record.uuid).digest = record

    def _gpu_now(self, node: str, uuid: str) -> GpuNow:
        key = (node, uuid)
        now = self.gpus.get(key)
        if now is None:
            now = GpuNow()
            self.gpus.put(key, now, self.version)
        else:
            self.gpus.touch(key, self.version)
        return now

    def _gpu_link(self, record: GpuLink) -> None:
        self.gpu_links.put((record.node, record.uuid, record.link), record, self.version)

    def _gpu_process(self, record: GpuProcess) -> None:
        key = (record.node, record.uuid, record.pid)
        if record.gone:
            self.gpu_processes.drop(key, self.version)
        else:
            self.gpu_processes.put(key, record, self.version)

    def _nic(self, record: Nic) -> None:
        key = (record.node, record.device, record.port)
        if record.state == "gone":
            self.nics.drop(key, self.version)
            self._event(record)
            return
        self.nics.put(key, record, self.version)
        self._remember("nic", key, record)

    def _link(self, record: Link) -> None:
        key = (record.node, record.type, record.a.kind, record.a.id, record.b.kind, record.b.id)
        if record.gone:
            self.links.drop(key, self.version)
        else:
            self.links.put(key, record, self.version)

    def _process(self, record: Process) -> None:
        key = (record.node, record.pid, record.start_ticks)
        if record.gone:
            self.processes.drop(key, self.version)
        else:
            self.processes.put(key, record, self.version)

    def _rank(self, record: Rank) -> None:
        key = (record.node, record.pid, record.start_ticks)
        now = self.ranks.get(key)
        if record.status == "withdrawn":
            self.ranks.drop(key, self.version)
        elif now is None:
            self.ranks.put(key, RankNow(record), self.version)
        else:
            now.rank = record
            self.ranks.touch(key, self.version)
        if record.status != "present":
            self._event(record)
        if record.status in ENDED:
            self._ended.append(key)
            if len(self._ended) > ENDED_RANKS:
                self._drop_ended(self._ended.popleft())

    def _drop_ended(self, key: ProcessKey) -> None:
        now = self.ranks.get(key)
        if now is not None and now.rank.status in ENDED and key not in self._ended:
            self.ranks.drop(key, self.version)

    def _rank_stat(self, record: RankStat) -> None:
        self.steps.add(record, self.version)
        key = (record.node, record.pid, record.start_ticks)
        now = self.ranks.get(key)
        if now is not None:
            _watch(now, record)
            now.stat = record
            self.ranks.touch(key, self.version)
            self._remember("rank_stat", key, record)

    def _stack(self, record: Stack) -> None:
        self.captures.add(record, self.version)
        now = self.ranks.get((record.node, record.pid, record.start_ticks))
        if now is not None and record.mode == "blocking" and record.began is not None and record.ended is not None:
            now.disturbed = record.ended
            if now.broken is not None and now.broken[0] >= record.began:
                now.still_since = now.broken[1]

    def _flight(self, record: Collective | PgStatus) -> None:
        self.captures.add_flight(record, self.version)

    def _clock(self, add: Callable[[Any, int], None]) -> Callable[[Any], None]:
        return lambda record: add(record, self.version)

    def _finding(self, record: Finding) -> None:
        key = (record.id, record.culprits)
        self.findings.put(key, record, self.version)
        self._event(record)
        if record.cleared_at is not None:
            self._cleared.append(key)
            if len(self._cleared) > CLEARED_FINDINGS:
                self._drop_cleared(self._cleared.popleft())

    def _drop_cleared(self, key: tuple[str, tuple[str, ...]]) -> None:
        finding = self.findings.get(key)
        if finding is not None and finding.cleared_at is not None and key not in self._cleared:
            self.findings.drop(key, self.version)

    def _event(self, record: Record) -> None:
        self.events.append((self.version, record))

    # -- history, and what goes ----------------------------------------------------------------------------------------

    def _remember(self, family: str, key: Hashable, record: Record) -> None:
        if self.history is None:
            return
        anchor = self._anchors.get(record.node)
        if anchor is None or anchor.agent != record.agent:
            self._anchors[record.node] = anchor = _Anchor(record.agent, record.rx - record.mono, record.mono)
        values = [getattr(record, metric) for metric in FAMILIES[family]]
        self.history.put(family, key, anchor.console_time(record) // 1_000_000_000, values)

    def _drop_facts(self, node: str) -> None:
        """A new agent says everything anew: what only its predecessor said of this node is gone."""
        tables: tuple[Table[Any, Any], ...] = (
            self.processes, self.ranks, self.gpus, self.gpu_links, self.gpu_processes, self.nics,
            self.links,
        )
        for table in tables:
            for key in [key for key in table if key[0] == node]:
                table.drop(key, self.version)

    def _forget_node(self, node: str) -> None:
        self._drop_facts(node)
        self._anchors.pop(node, None)
        self.clocks.forget(node, self.version)
        self.nodes.drop(node, self.version)

    def _warn(self, text: str) -> None:
        self._event(Log(source="console", severity="warning", text=text))
