"""The store: folds every record into current tables, bounded history and a list of events.

One writer (the bus), any number of readers that ask what changed since a version. Independent of any screen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from ... import records
from ...records.kinds import EVENTS, SPECS, identity, is_event, is_gone
from ..versioned_table import Table, newer
from .captures import CaptureTable
from .clocks import ClockTables
from .endings import EndTables, has_run_on, is_loss
from .entities import GpuKey, GpuNow, GpuPartKey, LinkKey, NicKey, NodeNow, ProcessKey, RankTable, RetainedEntries
from .history_feed import HistoryFeed
from .jobs import JobTables
from .steps import StepTable
from .traffic import TrafficTable

if TYPE_CHECKING:
    from ..metric_history import MetricHistory

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=records.Record)

#: Findings that have cleared are kept for the report; one that opens and clears for days must not fill the memory.
CLEARED_FINDINGS: Final = SPECS[records.Finding].kept_total or 0
#: Memory for the figures of the last minutes where no history is kept: those of 1,024 nodes with 8 GPUs.
RECENT_BYTES: Final = 128 << 20
#: Unknown kinds counted by name; the rest are counted as one.
UNKNOWN_KINDS: Final = 100


class Counts(msgspec.Struct):
    """Records that could not be folded."""

    unknown_kinds: dict[str, int] = msgspec.field(
        default_factory=dict
    )  # "…" holds those beyond the first `UNKNOWN_KINDS`

    def unknown(self, kind: str) -> None:
        """Count a record of an unknown kind."""
        is_named = kind in self.unknown_kinds or len(self.unknown_kinds) < UNKNOWN_KINDS
        name = kind if is_named else "…"
        self.unknown_kinds[name] = self.unknown_kinds.get(name, 0) + 1


class Store:
    """The fold of all records. `version` grows with every batch."""

    def __init__(
        self, history_bytes: int | None = None, is_kept: Callable[[records.Record], bool] = lambda event: True
    ) -> None:
        """`is_kept`: which events are kept; fewer save memory where nothing reads them."""
        self.version = 0
        self._is_kept = is_kept
        self.nodes: Table[str, NodeNow] = Table()
        self.gpus: Table[GpuKey, GpuNow] = Table()
        self.gpu_links: Table[GpuPartKey, records.GpuLink] = Table()
        self.gpu_processes: Table[GpuPartKey, records.GpuProcess] = Table()
        self.nics: Table[NicKey, records.Nic] = Table()
        self.inventories: Table[tuple[str, str], records.Inventory] = Table()  # by node and kind of device
        self.settings: Table[tuple[str, str, str], records.NodeSetting] = Table()  # by node, name and subject
        self.capacities: Table[tuple[str, str, str], records.Capacity] = Table()  # by node, type and path
        self.links: Table[LinkKey, records.Link] = Table()
        self._ranks = RankTable()
        self.ranks = self._ranks.table
        self.rank_settings: Table[ProcessKey, records.RankSetting] = Table()  # of ranks that have not ended
        self.processes: Table[ProcessKey, records.Process] = Table()
        self.findings: Table[tuple[str, tuple[str, ...], str | None], records.Finding] = Table()
        self.captures = CaptureTable()
        self.clocks = ClockTables()
        self.steps = StepTable()
        self.traffic = TrafficTable()
        self.jobs = JobTables()
        self.endings = EndTables()
        self.events: deque[tuple[int, records.Record]] = deque(maxlen=EVENTS)  # (version, record), oldest first
        self.counts = Counts()
        self.console: records.ConsoleRecord | None = None
        self.started_rx = 0  # console time of the oldest record, ns
        self.newest_rx = 0  # console time of the newest record, ns: a view's "now", live and in replay alike
        self._cleared = RetainedEntries(self.findings, CLEARED_FINDINGS, lambda finding: finding.cleared_at is not None)
        into, versioned = self._into, self._versioned
        self._folds: dict[type, Callable[[Any], object]] = {
            records.ConsoleRecord: self._console, records.NodeState: self._node_state, records.Node: self._node,
            records.Host: self._host, records.AgentCost: self._cost, records.GpuInfo: self._gpu_info,
            records.Gpu: self._gpu, records.GpuDigest: self._gpu_digest, records.GpuLink: into(self.gpu_links),
            records.GpuProcess: into(self.gpu_processes), records.Nic: self._nic, records.Link: into(self.links),
            records.Inventory: into(self.inventories), records.NodeSetting: into(self.settings),
            records.Capacity: into(self.capacities), records.RankSetting: into(self.rank_settings),
            records.Process: self._process, records.Rank: self._rank,
            records.RankStat: self._rank_stat, records.Place: versioned(self._ranks.add_place),
            records.RankTraffic: self.traffic.add,
            records.Output: versioned(self.endings.outputs.add),
            records.Stack: self._stack,
            records.Connection: versioned(self.captures.add_connection),
            records.Collective: versioned(self.captures.add_flight),
            records.PgStatus: versioned(self.captures.add_flight),
            records.Log: self._log, records.Finding: self._finding, records.Job: versioned(self.jobs.add),
            records.JobNode: versioned(self.jobs.add_node), records.ClockSnapshot: versioned(self.clocks.add_snapshot),
            records.ClockSource: into(self.clocks.sources), records.GpuClock: versioned(self.clocks.add_gpu),
            records.ClockCost: into(self.clocks.costs), records.ClockWindow: versioned(self.clocks.add_window),
            records.ClockNode: versioned(self.clocks.add_node),
            # at most events; probe bins are the clock estimator's
            **dict.fromkeys((records.GpuEvent, records.Mark, records.Gap, records.ClockBins), lambda record: None),
        }  # fmt: skip
        self._curves = HistoryFeed(history_bytes, self._warn) if history_bytes is not None else None
        self._recent = self._curves

    @property
    def history(self) -> MetricHistory | None:
        """Metrics over time; None where they are not kept."""
        return self._curves.history if self._curves is not None else None

    def recent(self) -> MetricHistory:
        """The figures of the last minutes in which the steps of jobs show; kept from the first call on."""
        if self._recent is None:
            self._recent = self._curves or HistoryFeed(RECENT_BYTES, self._warn, is_recent=True)
        return self._recent.history

    def apply(self, batch: Sequence[records.Record | records.RawRecord]) -> None:
        """Fold a batch of records; a sink of the bus."""
        self.version += 1
        for record in batch:
            if isinstance(record, records.RawRecord):
                self.counts.unknown(record.kind)
                continue
            if not self.started_rx:
                self.started_rx = record.rx
            if record.rx > self.newest_rx:
                self.newest_rx = record.rx
            self._folds[type(record)](record)
            if is_event(record):
                self._event(record)

    def events_since(self, version: int) -> list[records.Record]:
        """Events of the batches after that version, oldest first."""
        return newer(self.events, version)

    def backfill(self, other: Store) -> None:
        """Take history, steps, idle times and missing entities from another store of the same instant."""
        self.version += 1
        self._curves, self._recent, self.traffic = other._curves, other._recent, other.traffic
        self.steps = other.steps
        self.steps.touch(self.version)
        self._ranks.backfill(other._ranks, self.version)
        for name, now in self.nodes.items():
            past = other.nodes.get(name)
            if past is not None and (now.host is None or now.cost is None):
                now.host, now.cost = now.host or past.host, now.cost or past.cost
                self.nodes.touch(name, self.version)
        for key, gpu in self.gpus.items():
            past_gpu = other.gpus.get(key)
            if past_gpu is not None and (gpu.gpu is None or gpu.digest is None):
                gpu.gpu, gpu.digest = gpu.gpu or past_gpu.gpu, gpu.digest or past_gpu.digest
                self.gpus.touch(key, self.version)
        for capture, _ in self.captures.table.items():  # its verdict depends on the idle times of ranks
            self.captures.table.touch(capture, self.version)
        self.gpus.take_missing(other.gpus, self.version)
        self.gpu_links.take_missing(other.gpu_links, self.version)
        self.nics.take_missing(other.nics, self.version)

    # -- one fold a kind -----------------------------------------------------------------------------------------------

    def _console(self, record: records.ConsoleRecord) -> None:
        self.console = record

    def _node_now(self, record: records.Record) -> NodeNow:
        now = self.nodes.get(record.node)
        if now is None:
            now = NodeNow(record.node)
            self.nodes.put(record.node, now, self.version)
        else:
            self.nodes.touch(record.node, self.version)
        return now

    def _update_last_rx(self, record: records.Record) -> NodeNow:
        now = self._node_now(record)
        now.last_rx = max(now.last_rx, record.rx)
        return now

    def _node_state(self, record: records.NodeState) -> None:
        if record.state == "removed":
            self._forget_node(record.node)
            return
        now = self._node_now(record)
        before = now.state
        now.state = record
        if record.state not in ("expected", "connecting"):
            now.failure = record.error
        if before is None or before.state != record.state:
            self._event(record)
        if is_loss(before, record):
            ranks = [now.rank for now in self.ranks.values() if now.rank.node == record.node]
            live = tuple(rank for rank in ranks if rank.status != "exited")
            if live:
                self.endings.add_loss(record, now.node.agent if now.node else "", now.last_rx, live, self.version)

    def _node(self, record: records.Node) -> None:
        now = self._update_last_rx(record)
        if now.node is None or now.node.agent != record.agent:
            now.agent_rx = record.rx
        if now.node is not None and now.node.agent != record.agent:
            if has_run_on(now.node, record):
                self.endings.restarted_agent(record, self.version)
            now.host = now.cost = None
            self._ranks.keep_past(record.node)
            self._drop_facts(record.node)
            if self._recent is not None and now.node.boot_id != record.boot_id:
                self._recent.forget_node(record.node)
        now.node = record

    def _host(self, record: records.Host) -> None:
        self._update_last_rx(record).host = record
        self._remember("host", record.node, record)

    def _cost(self, record: records.AgentCost) -> None:
        self._update_last_rx(record).cost = record
        self.endings.same_agent(record, self.version)

    def _gpu_info(self, record: records.GpuInfo) -> None:
        self._gpu_now(record).info = record

    def _gpu(self, record: records.Gpu) -> None:
        self._gpu_now(record).gpu = record
        self._remember("gpu", identity(record), record)

    def _gpu_digest(self, record: records.GpuDigest) -> None:
        self._gpu_now(record).digest = record

    def _gpu_now(self, record: records.GpuInfo | records.Gpu | records.GpuDigest) -> GpuNow:
        key: GpuKey = identity(record)
        now = self.gpus.get(key)
        if now is None:
            now = GpuNow()
            self.gpus.put(key, now, self.version)
        else:
            self.gpus.touch(key, self.version)
        return now

    def _nic(self, record: records.Nic) -> None:
        self._put(self.nics, record)
        if not is_gone(record):
            self._remember("nic", identity(record), record)

    def _into(self, table: Table[Any, Any]) -> Callable[[Any], None]:
        """A fold that keeps the newest record of each entity."""
        return lambda record: self._put(table, record)

    def _versioned(self, add: Callable[[Any, int], object]) -> Callable[[Any], object]:
        """A fold by a table of its own."""
        return lambda record: add(record, self.version)

    def _put(self, table: Table[K, R], record: R) -> None:
        if is_gone(record):
            table.drop(identity(record), self.version)
        else:
            table.put(identity(record), record, self.version)

    def _rank(self, record: records.Rank) -> None:
        self._ranks.add(record, self.version)
        if is_gone(record):
            self.rank_settings.drop(identity(record), self.version)
            self.traffic.drop(identity(record))
        self.endings.version = self.version

    def _rank_stat(self, record: records.RankStat) -> None:
        self.steps.add(record, self.version)
        if self._ranks.add_stat(record, self.version):
            self._remember("rank_stat", identity(record), record)

    def _stack(self, record: records.Stack) -> None:
        self.captures.add(record, self.version)
        self._ranks.disturb(record)

    def _finding(self, record: records.Finding) -> None:
        key = identity(record)
        self.findings.put(key, record, self.version)
        if record.cleared_at is not None:
            self._cleared.add(key, self.version)

    def _log(self, record: records.Log) -> None:
        if record.source == "job":
            self.jobs.output.add(record, self.version)
        elif record.source == "kernel" and record.fault is not None:
            self.endings.add_fault(record, self.version)

    def _process(self, record: records.Process) -> None:
        self.endings.add_process(record, self.version)
        self._put(self.processes, record)

    def _event(self, record: records.Record) -> None:
        if self._is_kept(record):
            self.events.append((self.version, record))

    # -- history, and what goes ----------------------------------------------------------------------------------------

    def _remember(self, family: str, key: Hashable, record: records.Record) -> None:
        if self._recent is not None:
            self._recent.remember(family, key, record)

    def _drop_facts(self, node: str, *, also_ended: bool = False) -> None:
        """Drop what only the node's previous agent reported; its successor reports all but ended ranks again."""
        tables: list[Table[Any, Any]] = [self.processes, self.ranks, self.gpus, self.gpu_links]
        tables += [self.gpu_processes, self.nics, self.links, self.inventories]
        tables += [self.settings, self.capacities, self.rank_settings]
        for table in tables:
            for key in [key for key in table if key[0] == node]:
                if also_ended or table is not self.ranks or not is_gone(self.ranks[key].rank):
                    table.drop(key, self.version)
        self.traffic.forget(node)

    def _forget_node(self, node: str) -> None:
        self._drop_facts(node, also_ended=True)
        self.clocks.forget(node, self.version)
        if self._recent is not None:
            self._recent.forget_node(node)
        self.nodes.drop(node, self.version)

    def _warn(self, text: str) -> None:
        self._event(records.Log(source="console", severity="warning", text=text))
