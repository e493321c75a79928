"""Faults that the kernel and the services of the nodes reported, also from before they were watched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from ...config.sections import HealthConfig
from ...text.format import iso, plural
from ..finding import FindingDraft
from .entities import KernelFault, NodeHealth, times
from .rank_lives import RankLife
from .state import HealthState

SECOND_NS: Final = 1_000_000_000
#: A fault is a finding for this long after it was last reported; the clock of the kernel is about right.
LASTS_NS: Final = 3600 * SECOND_NS
#: Findings per node, the newest ones; all faults are events.
MOST_PER_NODE: Final = 8
#: A job has run for this long before a node's boot, for the boot to concern it: clocks differ.
MARGIN_NS: Final = 60 * SECOND_NS
#: Classes of faults that are findings, in words; the others are only events: a crash of any program, one
#: killed within its own memory limit, a link, heat.
WORDS: Final = {
    "oom_kill": "a process was killed for lack of memory", "hung_task": "a process is blocked in the kernel",
    "lockup": "a processor was stuck in the kernel", "kernel_bug": "the kernel failed",
    "nfs": "an NFS server does not respond", "lustre": "the connection to a Lustre server was lost",
    "ceph": "a Ceph server does not respond", "cifs": "an SMB server does not respond",
    "file_system": "a file system is damaged or read-only", "disk": "a disk reported errors",
    "ecc_uncorrected": "uncorrected memory error", "machine_check": "hardware error",
    "pcie_uncorrected": "uncorrected PCIe error", "pcie_link": "a PCIe device disappeared",
    "nic": "a network adapter reported a fault",
    "link_flap": "a network link goes down and up", "gpu_driver": "the GPU driver failed",
    "sxid": "an NVSwitch reported an error", "xid": "the GPU driver reported an error",
}  # fmt: skip


#: The same for faults that are findings only if they concern a rank.
OF_RANKS: Final = {
    "oom_kill_in_cgroup": "a process was killed at the memory limit of its cgroup", "segfault": "a process crashed",
    "oom_kill": "a process was killed for lack of memory", "machine_check": "a process was killed by a hardware error",
}  # fmt: skip
#: Classes of faults of services, of which a job may not learn.
OF_SERVICES: Final = {
    "service_failed": "a service that jobs need failed", "node_not_ready": "the kubelet is not ready",
    "eviction": "pods are evicted", "slurm_unkillable": "processes of a job cannot be ended",
    "slurm_prolog": "a prolog or epilog of Slurm failed", "slurm_node": "Slurm has the node out of service",
    "gpu_driver": "the GPU driver failed", "sxid": "an NVSwitch reported an error",
    "oom_kill": "a process was killed for lack of memory",
}  # fmt: skip


def kernel_fault(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Faults that still matter: within the last hour and not reported as over; warnings, as a job may not notice."""
    for node in facts.nodes.values():
        matters = [
            (key, life) for key, fault in node.kernel.items()
            for life in (_rank_of(facts, node, fault),)
            if (key[0] in WORDS or life is not None) and _matters(facts, fault)
        ]  # fmt: skip
        for (name, subject), life in matters[-MOST_PER_NODE:]:
            yield _finding(node.name, name, subject, node.kernel[name, subject], life)


def service_fault(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Faults of services, and of the node in Slurm, under the same conditions."""
    for node in facts.nodes.values():
        keys = [key for key, fault in node.services.items() if key[0] in OF_SERVICES and _matters(facts, fault)]
        for name, subject in keys[-MOST_PER_NODE:]:
            fault = node.services[name, subject]
            if fault.last.severity == "error":
                draft = _finding(node.name, name, subject, fault, _rank_of(facts, node, fault), OF_SERVICES)
                yield msgspec.structs.replace(draft, id="service_fault")


def node_rebooted(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Nodes that booted while a job ran: seen while watched, or before, from a job that lacks ranks since."""
    starts = _job_starts(facts)
    for node in facts.nodes.values():
        booted = f"{node.name} booted" + (f" at {_instant(node.boot.at)}" if node.boot and node.boot.at else "")
        detail = f": {node.boot.text}" if node.boot is not None else ""
        evidence = (f"log.text {node.name} {node.boot.text}" if node.boot else f"node.boot_id {node.name} changed",)
        if node.lost and node.rebooted_at is not None and facts.newest - node.rebooted_at <= LASTS_NS:
            victims = tuple(sorted({f"rank {life.rank}" for life in node.lost if life.rank is not None}))
            jobs = ", ".join(sorted({life.job for life in node.lost}))
            text = f"{booted} while {plural(len(node.lost), 'rank')} of {jobs} ran there{detail}"
            yield FindingDraft("node_rebooted", "error", "certain", (node.name,), text, evidence, victims)
        elif node.boot is not None and node.boot.at is not None and not node.lives.present():
            for job, (started, missing) in starts.items():
                if missing and started + MARGIN_NS < node.boot.at:
                    text = (
                        f"{booted} while {job} ran on other nodes; it may have been part of it, as the job lacks "
                        f"{plural(missing, 'rank')}{detail}"
                    )
                    yield FindingDraft("node_rebooted", "info", "possible", (node.name,), text, evidence)
                    break


def _job_starts(facts: HealthState) -> dict[str, tuple[int, int]]:
    """{job: (start of its first living rank on about the common clock, ns; ranks that it lacks)}."""
    lives: dict[str, list[RankLife]] = {}
    for node in facts.nodes.values():
        for life in node.lives.present():
            lives.setdefault(life.job, []).append(life)
    starts = {}
    for job, ranks in lives.items():
        newest = max(life.attempt or 0 for life in ranks)
        present = {life.rank for life in ranks if (life.attempt or 0) == newest}
        size = max((life.world_size or 0 for life in ranks), default=0)
        starts[job] = (min(life.started_t for life in ranks), max(0, size - len(present)))
    return starts


def _rank_of(facts: HealthState, node: NodeHealth, fault: KernelFault) -> RankLife | None:
    """The rank whose process the message names, for classes in which that process ends."""
    last = fault.last
    if last.fault not in OF_RANKS or last.pid is None:
        return None
    return node.lives.named_by(last, last.t + facts.newest - last.rx)


def _matters(facts: HealthState, fault: KernelFault) -> bool:
    last = fault.last
    is_serious = last.fault not in ("xid", "sxid") or last.severity == "error"
    return not last.is_over and is_serious and facts.newest - last.rx + _age_ns(fault) <= LASTS_NS


def _age_ns(fault: KernelFault) -> int:
    """How old the message was when the node reported it."""
    return max(0, fault.last.t - fault.last.at) if fault.last.at is not None else 0


def _instant(realtime_ns: int) -> str:
    return iso(realtime_ns // SECOND_NS * SECOND_NS) or ""


def _finding(
    node: str, name: str, subject: str, fault: KernelFault, life: RankLife | None,
    words: Mapping[str, str] = {**OF_RANKS, **WORDS},
) -> FindingDraft:  # fmt: skip
    last = fault.last
    when = f" at {_instant(last.at)}" if last.at is not None else ""
    place = f"{name} {subject}" if subject else name
    whose, victims = "", tuple[str, ...]()
    if life is not None and life.rank is not None:
        process = "it was" if life.is_rank else "it was a process below"
        whose, victims = f"; {process} rank {life.rank} of {life.job}", (f"rank {life.rank}",)
    return FindingDraft(
        "kernel_fault", "warning", "certain", (node, place),
        f"{node}: {words[name]}{times(fault.count)}{when}: {last.text}{whose}",
        (f"log.text {node} {last.text}",), victims,
    )  # fmt: skip
