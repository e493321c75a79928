"""Faults in the kernel logs of the nodes, also from before they were watched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...config.sections import HealthConfig
from ...text.format import iso
from ..finding import FindingDraft
from .state import HealthState, KernelFault, times

SECOND_NS: Final = 1_000_000_000
#: A fault is a finding for this long after the kernel last reported it; its clock is about right.
LASTS_NS: Final = 3600 * SECOND_NS
#: Findings per node, the newest ones; all faults are events.
MOST_PER_NODE: Final = 8
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


def kernel_fault(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Faults that still matter: within the last hour and not reported as over; warnings, as a job may not notice."""
    for node in facts.nodes.values():
        matters = [key for key, fault in node.kernel.items() if key[0] in WORDS and _matters(facts, fault)]
        for name, subject in matters[-MOST_PER_NODE:]:
            yield _finding(node.name, name, subject, node.kernel[name, subject])


def _matters(facts: HealthState, fault: KernelFault) -> bool:
    last = fault.last
    is_serious = last.fault not in ("xid", "sxid") or last.severity == "error"
    return not last.is_over and is_serious and facts.newest - last.rx + _age_ns(fault) <= LASTS_NS


def _age_ns(fault: KernelFault) -> int:
    """How old the message was when the node reported it."""
    return max(0, fault.last.t - fault.last.at) if fault.last.at is not None else 0


def _finding(node: str, name: str, subject: str, fault: KernelFault) -> FindingDraft:
    last = fault.last
    when = f" at {iso(last.at // SECOND_NS * SECOND_NS)}" if last.at is not None else ""
    place = f"{name} {subject}" if subject else name
    return FindingDraft(
        "kernel_fault", "warning", "certain", (node, place),
        f"{node}: {WORDS[name]}{times(fault.count)}{when}: {last.text}",
        (f"log.text {node} {last.text}",),
    )  # fmt: skip
