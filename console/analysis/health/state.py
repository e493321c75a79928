"""State of nodes, GPUs and ports for the health checks: a fold over records with the recent past.

Separate from the store: it belongs to the analysis thread and keeps history that no view shows (sums of the last
window, busy since, port ever up).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from ... import records
from ...text.format import number
from ..finding import FindingDraft
from .conditions import conditions
from .rank_lives import RankLife, RankLives
from .window import Window

#: Throttle reasons that indicate a cooling or power supply fault; power caps and application clocks do not.
HELD_BY: Final = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown")
#: States of a working port: Ethernet (kernel), RDMA (driver).
_UP: Final = ("up", "active")
#: Minimum clock step between two ticks, ns, beyond the maximum slew (adjtimex(2)). ntpd steps from 128 ms (RFC 5905).
_STEP_NS: Final = 100_000_000
_SLEWED: Final = 500e-6
#: The XID that states which action recovers the GPU, and the actions that end the causes of all XIDs before them.
RECOVERY: Final = 154
_RECOVERING: Final = ("RESET_GPU", "RESTART_BM")
#: Kinds of kernel messages kept per node, the newest ones.
MOST_FAULTS: Final = 256


class Xid(msgspec.Struct):
    """One XID of one GPU: last event and count."""

    event: records.GpuEvent
    count: int = 1


class GpuHealth(msgspec.Struct):
    """One GPU or MIG device. Sums of `window`, in seconds of the node's clock:

    `seen`, of these `busy`, of these `held.REASON`; `power` and `clock`: W and MHz × busy seconds, known for `powered`
    and `clocked` seconds; `memory`: bytes × seconds, known for `sized` seconds, its peak in bytes; `grown.COUNTER`:
    counter increments.
    """

    node: str
    uuid: str
    window: Window
    info: records.GpuInfo | None = None
    gpu: records.Gpu | None = None
    at_s: float | None = None  # of the last sample, on the node's clock
    busy_since_s: float | None = None  # start of the current run of busy samples
    since_s: dict[str, float] = msgspec.field(default_factory=dict)  # the same of each condition that holds
    pcie_since_s: float = 0.0  # of its PCIe generation, on the node's clock
    links: dict[int, records.GpuLink] = msgspec.field(default_factory=dict)
    links_up: set[int] = msgspec.field(default_factory=set)  # that were up at some time
    processes: dict[int, records.GpuProcess] = msgspec.field(default_factory=dict)
    xids: dict[int, Xid] = msgspec.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name in findings: node019:gpu4, or node019:gpu4/mig1."""
        record = self.info or self.gpu
        part = f"/mig{self.info.mig_index}" if self.info and self.info.mig_index is not None else ""
        return f"{self.node}:gpu{record.index if record else '?'}{part}"

    def held_s(self, condition: str) -> float:
        """Seconds for which a condition has held in every sample; -1 if it does not."""
        since = self.since_s.get(condition)
        return -1.0 if since is None or self.at_s is None else self.at_s - since

    @property
    def is_simulated(self) -> bool:
        """Whether its figures are simulated."""
        return bool((self.info and self.info.simulated) or (self.gpu and self.gpu.simulated))

    @property
    def ranks(self) -> set[tuple[str, int, int]]:
        """(job, attempt, rank) of its users."""
        return {
            (process.job, process.attempt or 0, process.rank)
            for process in self.processes.values()
            if process.job is not None and process.rank is not None
        }


class NicHealth(msgspec.Struct):
    """One port. The window's sums: `grown.COUNTER`."""

    nic: records.Nic
    window: Window
    was_up: bool = False

    @property
    def name(self) -> str:
        """Name in findings: node019:mlx5_0, or node019:mlx5_0/2 for another port than 1."""
        port = f"/{self.nic.port}" if self.nic.rdma and self.nic.port != 1 else ""
        return f"{self.nic.node}:{self.nic.device}{port}"


class KernelFault(msgspec.Struct):
    """One class of kernel messages about one subject: the last message and their count."""

    last: records.Log
    count: int = 1


class ClockHealth(msgspec.Struct):
    """CLOCK_REALTIME of a node against its CLOCK_MONOTONIC_RAW, which is never set and stops during suspend."""

    agent: str
    mono: int  # of the last accepted tick, ns
    ahead_ns: int  # REALTIME minus RAW then
    suspect_ns: int | None = None  # the same after a large change at a single tick, which may be a delayed read
    set_by_ns: int = 0
    set_at: int | None = None  # console time, ns; None: not stepped

    def append(self, tick: records.AgentCost) -> None:
        """Add the next tick of the same agent."""
        ahead_ns = tick.t - tick.mono
        moved_ns = ahead_ns - self.ahead_ns
        if abs(moved_ns) >= _STEP_NS + (tick.mono - self.mono) * _SLEWED:
            if self.suspect_ns is None or abs(ahead_ns - self.suspect_ns) >= _STEP_NS:
                self.suspect_ns = ahead_ns
                return
            self.set_by_ns, self.set_at = moved_ns, tick.rx
        self.mono, self.ahead_ns, self.suspect_ns = tick.mono, ahead_ns, None


class NodeHealth(msgspec.Struct):
    """One node, with everything on it."""

    name: str
    node: records.Node | None = None
    state: records.NodeState | None = None
    gpus: dict[str, GpuHealth] = msgspec.field(default_factory=dict)
    nics: dict[tuple[str, int], NicHealth] = msgspec.field(default_factory=dict)
    unopened: dict[int, records.GpuEvent] = msgspec.field(
        default_factory=dict
    )  # GPUs that the driver lists but cannot open
    #: By PCI address, of devices that are no known GPU.
    xids_elsewhere: dict[str, dict[int, Xid]] = msgspec.field(default_factory=dict)
    kernel: dict[tuple[str, str], KernelFault] = msgspec.field(default_factory=dict)  # by class and subject
    services: dict[tuple[str, str], KernelFault] = msgspec.field(default_factory=dict)  # the same of other sources
    lives: RankLives = msgspec.field(default_factory=RankLives)
    boot: records.Log | None = None  # the last boot of which the node reported
    lost: list[RankLife] = msgspec.field(default_factory=list)  # ranks that lived when the node rebooted
    rebooted_at: int | None = None  # console time of the first record after that reboot, ns
    nccl: dict[tuple[int, int], tuple[str, str]] = msgspec.field(
        default_factory=dict
    )  # (job, version) of the ranks, by (pid, start_ticks)
    clock: ClockHealth | None = None
    inventory: dict[str, records.Inventory] = msgspec.field(default_factory=dict)  # by kind of device
    switched: set[str] = msgspec.field(default_factory=set)  # uuids of GPUs with a link to an NVSwitch
    agent_errors: dict[str, records.Log] = msgspec.field(default_factory=dict)  # of the current agent, by text

    @property
    def gpu_total(self) -> int | None:
        """GPUs that the node should have, also those that the driver lacks or cannot open; None if unknown."""
        gpus = self.inventory.get("gpu")
        return None if gpus is None or gpus.count is None else gpus.count + len(gpus.missing)

    @property
    def has_all_gpus(self) -> bool:
        """Whether the identity of every GPU has arrived that has records."""
        gpus = self.inventory.get("gpu")
        if gpus is None or gpus.count is None:
            return False
        return sum(gpu.info is not None and gpu.info.parent is None for gpu in self.gpus.values()) >= gpus.count


class HealthState:
    """The fold. `newest` is the console's time of the newest record, ns."""

    def __init__(self, window_s: float, busy_pct: float) -> None:
        self.nodes: dict[str, NodeHealth] = {}
        self.newest = 0
        self.oldest: int | None = None  # console time of the first record, ns
        self.console_late: records.Log | None = None  # while the console does not keep up
        self._window_s, self._busy_pct = window_s, busy_pct
        self._folds: dict[type, Callable[[Any], None]] = {
            records.Node: self._node, records.NodeState: self._node_state, records.GpuInfo: self._gpu_info,
            records.Gpu: self._gpu, records.GpuDigest: self._gpu_digest, records.GpuLink: self._gpu_link,
            records.GpuProcess: self._gpu_process, records.GpuEvent: self._gpu_event, records.Nic: self._nic,
            records.Rank: self._rank, records.AgentCost: self._tick, records.Log: self._log,
            records.Process: self._process, records.Inventory: self._inventory, records.Link: self._link,
        }  # fmt: skip

    def add(self, batch: Iterable[Any]) -> None:
        """Fold records in order of arrival; kinds without health data are ignored."""
        for record in batch:
            fold = self._folds.get(type(record))
            if fold is not None:
                self.newest = max(self.newest, record.rx)
                self.oldest = record.rx if self.oldest is None else self.oldest
                fold(record)

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
        of.inventory, of.switched = {}, set()
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
        at_s = record.mono / 1e9
        passed = at_s - of.at_s if of.at_s is not None else 0.0
        if not 0 < passed <= self._window_s:
            passed = 0.0  # first sample, or a gap
        of.gpu, of.at_s = record, at_s
        busy = self._is_busy(record)
        if not busy:
            of.busy_since_s = None
        elif of.busy_since_s is None or not passed:
            of.busy_since_s = at_s
        before = of.since_s if passed else {}
        of.since_s = {name: before.get(name, at_s) for name in conditions(record, of.info)}
        sums = {f"grown.{name}": float(gain) for name, gain in record.grown.items()}
        if passed:
            sums["seen"] = passed
            if record.mem_used_bytes is not None:
                sums["memory"], sums["sized"] = record.mem_used_bytes * passed, passed
            if busy:
                sums.update(_of_work(record, passed))
        peaks = {"memory": float(record.mem_used_bytes)} if record.mem_used_bytes is not None else None
        of.window.add(at_s, sums, peaks)

    def _is_busy(self, record: records.Gpu) -> bool:
        util = record.util_pct if record.util_pct is not None else record.sm_pct
        return util is not None and util >= self._busy_pct and "gpu_idle" not in record.clocks_event_reasons

    def _gpu_digest(self, record: records.GpuDigest) -> None:
        if record.mem_used_bytes is not None:
            of = self._gpu_facts(record.node, record.uuid)
            of.window.add(record.mono / 1e9, {}, {"memory": record.mem_used_bytes.max})

    def _gpu_link(self, record: records.GpuLink) -> None:
        of = self._gpu_facts(record.node, record.uuid)
        of.links[record.link] = record
        if record.up:
            of.links_up.add(record.link)
        if record.grown:
            gained = {f"grown.{name}.{record.link}": float(gain) for name, gain in record.grown.items()}
            of.window.add(record.mono / 1e9, gained)

    def _gpu_process(self, record: records.GpuProcess) -> None:
        processes = self._gpu_facts(record.node, record.uuid).processes
        if record.gone:
            processes.pop(record.pid, None)
        else:
            processes[record.pid] = record

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

    def _log(self, record: records.Log) -> None:
        if record.source == "agent" and record.severity == "error":
            errors = self._of(record.node).agent_errors
            if any(error.agent != record.agent for error in errors.values()):
                errors.clear()
            if len(errors) < MOST_FAULTS:
                errors[record.text] = record
        if record.source == "console" and record.fault == "console_late":
            self.console_late = None if record.is_over else record
        of = self._of(record.node) if record.source in ("kernel", "boot", "journal", "slurm") else None
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
        of.window.add(record.mono / 1e9, {f"grown.{name}": float(gain) for name, gain in record.grown.items()})

    def _tick(self, record: records.AgentCost) -> None:
        of = self._of(record.node)
        if of.clock is None or of.clock.agent != record.agent:  # after a reboot MONOTONIC_RAW begins anew
            of.clock = ClockHealth(record.agent, record.mono, record.t - record.mono)
        else:
            of.clock.append(record)

    def _process(self, record: records.Process) -> None:
        if record.rank is not None:
            self._of(record.node).lives.add_process(record)

    def _rank(self, record: records.Rank) -> None:
        self._of(record.node).lives.add_rank(record)
        versions = self._of(record.node).nccl
        key = (record.pid, record.start_ticks)
        if record.nccl is not None and record.status == "present":
            versions[key] = (record.job or "", record.nccl)
        else:
            versions.pop(key, None)


def about_gpu(
    gpu: GpuHealth, id: str, severity: records.Severity, text: str, evidence: list[str], *,
    confidence: records.Confidence = "certain", rank: str = "", parts: tuple[str, ...] = (),
) -> FindingDraft:  # fmt: skip
    """A finding on one GPU; `evidence` lines are "record.field value". `rank` becomes a culprit, too."""
    sim = "SIM " if gpu.is_simulated else ""
    return FindingDraft(
        id, severity, confidence, (rank, gpu.name) if rank else (gpu.name,), f"{sim}{gpu.name}: {text}",
        tuple(f"{sim}{line}" for line in evidence), parts=parts,
    )  # fmt: skip


def at(gpu: GpuHealth, field: str, value: object) -> str:
    """Evidence line: `gpu.temp_c node019:gpu4 91`."""
    return f"{field} {gpu.name} {figure(value)}"


def figure(value: object) -> str:
    """A number with thousands separators and at most one decimal."""
    if value is None:
        return "unknown"
    return str(value) if isinstance(value, bool) or not isinstance(value, int | float) else number(value)


def times(count: int) -> str:
    """ ", 3 times"; nothing for once."""
    return f", {count} times" if count > 1 else ""


def _of_work(record: records.Gpu, passed: float) -> dict[str, float]:
    """Window sums of a GPU that was busy for `passed` seconds."""
    sums = {"busy": passed}
    if record.power_w is not None:
        sums["power"], sums["powered"] = record.power_w * passed, passed
    if record.sm_clock_mhz is not None:
        sums["clock"], sums["clocked"] = record.sm_clock_mhz * passed, passed
    for reason in HELD_BY:
        share = record.clocks_event_share_pct.get(reason)
        if share is None:  # no counter: the sampled state is assumed for the whole interval
            share = 100.0 if reason in record.clocks_event_reasons else 0.0
        if share:
            sums[f"held.{reason}"] = share / 100 * passed
    return sums


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
