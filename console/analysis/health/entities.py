"""Health of nodes, GPUs and ports: what the checks read, and how they name it in findings."""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from ... import records
from ...text.format import number
from ..finding import FindingDraft
from .rank_lives import RankLife, RankLives
from .window import Window

#: Minimum clock step between two ticks, ns, beyond the maximum slew (adjtimex(2)). ntpd steps from 128 ms (RFC 5905).
_STEP_NS: Final = 100_000_000
_SLEWED: Final = 500e-6
#: Gaps of a node that are held.
MOST_GAPS: Final = 64
#: Samples do not change the findings of a GPU under this condition alone.
_USUAL: Final = "loaded"


class Xid(msgspec.Struct):
    """One XID of one GPU: last event and count."""

    event: records.GpuEvent
    count: int = 1


class GpuHealth(msgspec.Struct):
    """One GPU or MIG device. Sums of `window`, in seconds of the node's clock:

    `busy`, of these `held.REASON`; `power` and `clock`: W and MHz × busy seconds, known for `powered`
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
    links_now_up: int = 0  # number of these that are up
    links_unknown: int = 0  # number of these whose state is unknown
    links_up: set[int] = msgspec.field(default_factory=set)  # that were up at some time
    processes: dict[int, records.GpuProcess] = msgspec.field(default_factory=dict)
    ranks: set[tuple[str, int, int]] = msgspec.field(default_factory=set)  # (job, attempt, rank) of its users
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
    def is_notable(self) -> bool:
        """Whether its samples may make a finding or change one: all that any check of one GPU reads of them."""
        now, info = self.gpu, self.info
        if self.window.is_notable or len(self.since_s) > (_USUAL in self.since_s):
            return True
        if now is not None and (
            now.ecc_uncorrected_volatile or now.remap_failed or now.remap_pending or now.retire_pending
            or now.recovery_action not in (None, "none")
        ):  # fmt: skip
            return True
        return (  # an idle GPU lowers its PCIe generation
            self.busy_since_s is not None and info is not None and bool(info.pcie_gen and info.pcie_gen_max)
            and info.pcie_gen != info.pcie_gen_max
        )  # fmt: skip


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
    notable: set[str] = msgspec.field(default_factory=set)  # GPUs (uuids) and ports whose samples may make a finding
    gaps: deque[records.Gap] = msgspec.field(default_factory=lambda: deque(maxlen=MOST_GAPS))  # the newest
    agent_errors: dict[str, records.Log] = msgspec.field(default_factory=dict)  # of the current agent, by text
    waiting_launchers: dict[tuple[int, int], records.Process] = msgspec.field(
        default_factory=dict
    )  # without a process below them, by (pid, start_ticks)

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
