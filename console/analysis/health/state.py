"""State of nodes, GPUs and ports for the health checks: a fold over records with the recent past.

Separate from the store: it belongs to the analysis thread and keeps history that no view shows (sums of the last
window, busy since, port ever up).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ... import records
from .conditions import HELD_BY, average, conditions, held_pct, highest, lowest
from .entities import ClockHealth, GpuHealth, KernelFault, NicHealth, NodeHealth, Xid
from .rank_lives import RankLives
from .window import Window

#: States of a working port: Ethernet (kernel), RDMA (driver); and of one that is not.
_UP: Final = ("up", "active")
DOWN: Final = ("down", "init", "armed", "lowerlayerdown", "gone", "dormant")
#: The XID that states which action recovers the GPU, and the actions that end the causes of all XIDs before them.
RECOVERY: Final = 154
_RECOVERING: Final = ("RESET_GPU", "RESTART_BM")
#: Kinds of kernel messages kept per node, the newest ones.
MOST_FAULTS: Final = 256
#: Launchers without ranks that are kept per node.
MOST_LAUNCHERS: Final = 64


#: Kinds that arrive at every tick, or often; their folds mark nodes that they change.
_SAMPLES: Final = frozenset(
    {records.Gpu, records.GpuDigest, records.GpuLink, records.GpuProcess, records.Nic, records.AgentCost, records.Log,
     records.Process}
)  # fmt: skip
#: Kinds that change a node's findings, but not what nodes, GPUs and ranks are.
_EVENTS: Final = frozenset({records.GpuEvent, records.Gap})
#: Sources of logs with health data: the agent, and faults of nodes.
_LOGS: Final = ("agent", "kernel", "boot", "journal", "slurm")


class HealthState:
    """The fold. `newest` is the console's time of the newest record, ns.

    `changed`: nodes whose own findings may differ from those of the last evaluation, which clears it. `identities`
    counts changes of what nodes, GPUs and ranks are, without their samples.
    """

    def __init__(self, window_s: float, busy_pct: float) -> None:
        self.nodes: dict[str, NodeHealth] = {}
        self.changed: set[str] = set()
        self.identities = 0
        self.evaluated: Any = None  # of the last evaluation: its results
        self.newest = 0
        self.oldest: int | None = None  # console time of the first record, ns
        self.console_late: records.Log | None = None  # while the console does not keep up
        self.lost_gateways: dict[str, records.Log] = {}  # by name, until they are there again
        self._window_s, self._busy_pct = window_s, busy_pct
        self._folds: dict[type, Callable[[Any], None]] = {
            records.Node: self._node, records.NodeState: self._node_state, records.GpuInfo: self._gpu_info,
            records.Gpu: self._gpu, records.GpuDigest: self._gpu_digest, records.GpuLink: self._gpu_link,
            records.GpuProcess: self._gpu_process, records.GpuEvent: self._gpu_event, records.Nic: self._nic,
            records.Rank: self._rank, records.AgentCost: self._tick, records.Log: self._log,
            records.Process: self._process, records.Inventory: self._inventory, records.Link: self._link,
            records.Gap: self._gap,
        }  # fmt: skip

    @property
    def kinds(self) -> frozenset[type]:
        """Kinds of records with health data."""
        return frozenset(self._folds)

    def add(self, batch: Iterable[Any]) -> None:
        """Fold records in order of arrival; kinds without health data are ignored."""
        for record in batch:
            fold = self._folds.get(type(record))
            if fold is not None:
                if record.rx > self.newest:
                    self.newest = record.rx
                if self.oldest is None:
                    self.oldest = record.rx
                fold(record)
                if type(record) not in _SAMPLES:
                    self._mark(record.node, is_event=type(record) in _EVENTS)

    def _mark(self, node: str, *, is_event: bool = False) -> None:
        self.changed.add(node)
        if not is_event:
            self.identities += 1

    def _mark_notable(self, node: NodeHealth, key: str, is_notable: bool) -> None:
        """Mark a node whose sample may make, change or end a finding."""
        if is_notable:
            node.notable.add(key)
        elif key in node.notable:
            node.notable.discard(key)
        else:
            return
        self.changed.add(node.name)

    def only(self, name: str) -> HealthState:
        """The state of one node alone, at the same instant; it shares the node with this one."""
        part = HealthState(self._window_s, self._busy_pct)
        part.nodes, part.newest, part.oldest = {name: self.nodes[name]}, self.newest, self.oldest
        return part

    def gpus(self) -> Iterator[GpuHealth]:
        """GPUs that the driver can access, without MIG devices."""
        for gpu in self.all_gpus():
            if gpu.info is None or (gpu.info.lost is None and gpu.info.parent is None):
                yield gpu

    def all_gpus(self) -> Iterator[GpuHealth]:
        """All GPUs and MIG devices, including lost ones."""
        for node in self.nodes.values():
            yield from node.gpus.values()

    # -- one fold per kind ---------------------------------------------------------------------------------------------

    def _of(self, name: str) -> NodeHealth:
        health = self.nodes.get(name)
        if health is None:
            health = self.nodes[name] = NodeHealth(name)
            self._mark(name)
        return health

    def _node_state(self, record: records.NodeState) -> None:
        if record.state == "removed":
            self.nodes.pop(record.node, None)
        else:
            self._of(record.node).state = record

    def _node(self, record: records.Node) -> None:
        """Reset for a new agent run, which reports everything again; XIDs are kept unless the node rebooted."""
        of = self._of(record.node)
        before, of.node = of.node, record
        if before is None or before.agent == record.agent:
            return
        booted = before.boot_id != record.boot_id
        xids = {} if booted else {uuid: gpu.xids for uuid, gpu in of.gpus.items() if gpu.xids}
        infos = {uuid: of.gpus[uuid].info for uuid in xids}
        of.gpus, of.nics, of.unopened, of.nccl, of.agent_errors = {}, {}, {}, {}, {}
        of.inventory, of.switched, of.notable = {}, set(), set()
        for uuid, kept in xids.items():
            gpu = self._gpu_facts(record.node, uuid)
            gpu.xids, gpu.info = kept, infos[uuid]
        if booted:
            of.xids_elsewhere = {}
            of.lost, of.rebooted_at = of.lives.present(), record.rx
            of.lives, of.kernel, of.services = RankLives(), {}, {}

    def _inventory(self, record: records.Inventory) -> None:
        self._of(record.node).inventory[record.of] = record

    def _link(self, record: records.Link) -> None:
        if record.type == "nvlink" and record.b.kind == "switch" and not record.gone:
            self._of(record.node).switched.add(record.a.id)

    def _gpu_facts(self, node: str, uuid: str) -> GpuHealth:
        gpus = self._of(node).gpus
        health = gpus.get(uuid)
        if health is None:
            health = gpus[uuid] = GpuHealth(node, uuid, Window(self._window_s))
        return health

    def _gpu_info(self, record: records.GpuInfo) -> None:
        if record.parent is not None and record.lost is not None:
            self._of(record.node).gpus.pop(record.uuid, None)  # a removed MIG device
            return
        of = self._gpu_facts(record.node, record.uuid)
        if of.info is None or of.info.pcie_gen != record.pcie_gen:
            of.pcie_since_s = record.mono / 1e9
        of.info = record
        self._of(record.node).unopened.pop(record.index, None)

    def _gpu(self, record: records.Gpu) -> None:
        of = self._gpu_facts(record.node, record.uuid)
        if of.gpu is None or (of.gpu.index, of.gpu.simulated) != (record.index, record.simulated):
            self._mark(record.node)  # its name
        at_s = record.mono / 1e9
        passed = at_s - of.at_s if of.at_s is not None else 0.0
        if not 0 < passed <= self._window_s:
            passed = 0.0  # first sample, or a gap
        since_s = _first_s(record, of.at_s if passed else None)
        of.gpu, of.at_s = record, at_s
        busy = self._is_busy(record)
        if not busy:
            of.busy_since_s = None
        elif of.busy_since_s is None or not passed:
            of.busy_since_s = since_s
        before = of.since_s if passed else {}
        of.since_s = {name: before.get(name, since_s) for name in conditions(record, of.info)}
        sums = _grown(record)
        notable = bool(sums)
        if passed:
            used = average(record, "mem_used_bytes")
            if used is not None:
                sums["memory"], sums["sized"] = used * passed, passed
            if busy:
                _add_work(sums, record, passed)
                notable |= _add_held(sums, record, passed)
        peak = highest(record, "mem_used_bytes")
        peaks = {"memory": float(peak)} if peak is not None else None
        of.window.add(at_s, sums, peaks, notable=notable)
        self._mark_notable(self.nodes[record.node], record.uuid, of.is_notable)

    def _is_busy(self, record: records.Gpu) -> bool:
        util = lowest(record, "util_pct" if record.util_pct is not None else "sm_pct")
        return util is not None and util >= self._busy_pct and "gpu_idle" not in record.clocks_event_reasons

    def _gpu_digest(self, record: records.GpuDigest) -> None:
        if record.mem_used_bytes is not None:
            of = self._gpu_facts(record.node, record.uuid)
            of.window.add(record.mono / 1e9, {}, {"memory": record.mem_used_bytes.max})
            self._mark_notable(self.nodes[record.node], record.uuid, of.is_notable)

    def _gpu_link(self, record: records.GpuLink) -> None:
        of = self._gpu_facts(record.node, record.uuid)
        earlier = of.links.get(record.link)
        of.links[record.link] = record
        if record.up:
            of.links_up.add(record.link)
        if record.grown:
            gained = {f"grown.{name}.{record.link}": float(gain) for name, gain in record.grown.items()}
            of.window.add(record.mono / 1e9, gained, notable=True)
            self._mark_notable(self.nodes[record.node], record.uuid, True)
        if earlier is None or earlier.up != record.up:  # the same every 10 s otherwise
            of.links_now_up = sum(link.up is True for link in of.links.values())
            of.links_unknown = sum(link.up is None for link in of.links.values())
            self.changed.add(record.node)

    def _gpu_process(self, record: records.GpuProcess) -> None:
        of = self._gpu_facts(record.node, record.uuid)
        earlier = of.processes.pop(record.pid, None)
        if not record.gone:
            of.processes[record.pid] = record
        if earlier is None or record.gone or _rank_of(earlier) != _rank_of(record):
            of.ranks = {rank for rank in map(_rank_of, of.processes.values()) if rank is not None}

    def _gpu_event(self, record: records.GpuEvent) -> None:
        of = self._of(record.node)
        if record.event == "xid" and record.xid is not None:
            if record.uuid:
                _count_xid(self._gpu_facts(record.node, record.uuid).xids, record)
            else:
                _count_xid(of.xids_elsewhere.setdefault(record.pci_bus_id or "?", {}), record)
            if record.xid == RECOVERY and record.severity == "info":
                here = _pci_numbers(record.pci_bus_id)
                for key in [key for key in of.kernel if key[0] == "xid" and _pci_numbers(key[1]) == here]:
                    del of.kernel[key]
        elif record.event == "lost" and not record.uuid and record.index is not None:
            of.unopened[record.index] = record
        elif record.event == "back":
            self._gpu_facts(record.node, record.uuid).xids.clear()  # GPU was reset

    def _gap(self, record: records.Gap) -> None:
        """Note records that did not arrive, or were not recorded; what a sampler missed is not about the node."""
        if record.node and (record.source in ("link", "buffer") or record.source.startswith("recording ")):
            self._of(record.node).gaps.append(record)

    def _log(self, record: records.Log) -> None:
        if record.source in _LOGS:
            self._mark(record.node, is_event=record.source != "boot")
        if record.source == "agent" and record.severity == "error":
            errors = self._of(record.node).agent_errors
            if any(error.agent != record.agent for error in errors.values()):
                errors.clear()
            if len(errors) < MOST_FAULTS:
                errors[record.text] = record
        if record.source == "console" and record.fault == "console_late":
            self.console_late = None if record.is_over else record
        if record.source == "console" and record.fault == "gateway_lost" and record.subject:
            self.lost_gateways.pop(record.subject, None)
            if not record.is_over:
                self.lost_gateways[record.subject] = record
        of = self._of(record.node) if record.source in _LOGS[1:] else None
        if of is None or record.fault is None:
            return
        if record.source == "boot":
            of.boot = record
            return
        faults = of.kernel if record.source == "kernel" else of.services
        key = (record.fault, record.subject or "")
        if key in faults and (record.at or record.t) < (faults[key].last.at or faults[key].last.t):
            return  # of an earlier boot, or read late from the journal
        if record.fault == "xid" and record.severity != "error" and not record.is_over and _is_error(faults.get(key)):
            return  # such as XID 45 after 48: the GPU still needs its reset
        earlier = faults.pop(key, None)  # the newest last
        faults[key] = KernelFault(record, earlier.count + 1 if earlier and not record.is_over else 1)
        if len(faults) > MOST_FAULTS:
            del faults[next(iter(faults))]

    def _nic(self, record: records.Nic) -> None:
        nics = self._of(record.node).nics
        key = (record.device, record.port)
        of = nics.get(key)
        if of is None:
            of = nics[key] = NicHealth(record, Window(self._window_s))
        of.nic = record
        of.was_up = of.was_up or record.state in _UP
        grown = _grown(record)
        if grown or of.window.is_notable:  # else there is nothing to add, and nothing that may expire
            of.window.add(record.mono / 1e9, grown, notable=bool(grown))
        port = f"port {record.device}/{record.port}"
        self._mark_notable(self.nodes[record.node], port, of.window.is_notable or record.state in DOWN)

    def _tick(self, record: records.AgentCost) -> None:
        of = self._of(record.node)
        if of.clock is None or of.clock.agent != record.agent:  # after a reboot MONOTONIC_RAW begins anew
            of.clock = ClockHealth(record.agent, record.mono, record.t - record.mono)
        else:
            before = of.clock.set_at
            of.clock.append(record)
            if of.clock.set_at != before:
                self.changed.add(record.node)

    def _process(self, record: records.Process) -> None:
        if record.role == "launcher":
            waiting = self._of(record.node).waiting_launchers
            waiting.pop((record.pid, record.start_ticks), None)
            if record.has_children is False and not record.gone and len(waiting) < MOST_LAUNCHERS:
                waiting[record.pid, record.start_ticks] = record
            self._mark(record.node)
        if record.rank is not None:
            self._of(record.node).lives.add_process(record)
            self._mark(record.node)

    def _rank(self, record: records.Rank) -> None:
        self._of(record.node).lives.add_rank(record)
        versions = self._of(record.node).nccl
        key = (record.pid, record.start_ticks)
        if record.nccl is not None and record.status == "present":
            versions[key] = (record.job or "", record.nccl)
        else:
            versions.pop(key, None)


def _grown(record: records.Gpu | records.Nic) -> dict[str, float]:
    """Window sums of the counters that increased."""
    return {f"grown.{name}": float(gain) for name, gain in record.grown.items()} if record.grown else {}


def _add_work(sums: dict[str, float], record: records.Gpu, passed: float) -> None:
    """Add the window sums of a GPU that was busy for `passed` seconds."""
    sums["busy"] = passed
    power_w, clock_mhz = average(record, "power_w"), average(record, "sm_clock_mhz")
    if power_w is not None:
        sums["power"], sums["powered"] = power_w * passed, passed
    if clock_mhz is not None:
        sums["clock"], sums["clocked"] = clock_mhz * passed, passed


def _first_s(record: records.Gpu, before_s: float | None) -> float:
    """When the first sample of a record was taken, after the previous record of its GPU."""
    at_s, first_s = record.mono / 1e9, record.first_mono / 1e9
    is_digest = record.samples > 1 and before_s is not None and before_s < first_s < at_s
    return first_s if is_digest else at_s


def _add_held(sums: dict[str, float], record: records.Gpu, passed: float) -> bool:
    """Add for how long clocks were throttled; whether they were."""
    if not record.clocks_event_share_pct and not record.clocks_event_reasons:
        return False
    is_held = False
    for reason in HELD_BY:
        share = held_pct(record, reason, record.mean)
        if share:
            sums[f"held.{reason}"] = share / 100 * passed
            is_held = True
    return is_held


def _rank_of(process: records.GpuProcess) -> tuple[str, int, int] | None:
    """(job, attempt, rank) of a process; None if it belongs to no rank."""
    if process.job is None or process.rank is None:
        return None
    return process.job, process.attempt or 0, process.rank


def _is_error(fault: KernelFault | None) -> bool:
    return fault is not None and not fault.last.is_over and fault.last.severity == "error"


def _pci_numbers(address: str | None) -> list[str]:
    """Domain, bus and device of an address, the same for the notations of the kernel and of NVML."""
    return [part.lstrip("0") for part in (address or "").lower().partition(".")[0].split(":")]


def _count_xid(xids: dict[int, Xid], record: records.GpuEvent) -> None:
    number = record.xid or 0
    earlier = xids.get(number)
    if number == RECOVERY and earlier and record.severity == "info" and earlier.event.action in _RECOVERING:
        xids.clear()  # the reset or reboot that the driver required is done
    xids[number] = Xid(record, earlier.count + 1 if earlier else 1)
