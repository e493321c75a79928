"""What an analysis found, before anybody knows since when: the common answer of every analysis that blames somebody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..records import Confidence, Severity

#: Every id that a finding can have, with what it means: what `--fail-on` takes. The kinds of verdict are among them.
IDS: Final[dict[str, str]] = {
    "gpu_lost": "the driver cannot reach a GPU",
    "gpu_xid": "the driver reported an error of a GPU",
    "gpu_ecc": "memory errors of a GPU",
    "gpu_remap_pending": "faulty GPU memory waits for a reset to be taken out of use",
    "gpu_throttle": "heat or hardware holds a GPU's clocks down while it works",
    "gpu_straggler": "a GPU's clock or power is far from its peers under the same load",
    "gpu_memory_imbalance": "a rank holds far more GPU memory than the others of its job",
    "pcie_degraded": "fewer PCIe lanes or an older generation than GPU and slot can do, or replays",
    "nvlink_down": "an NVLink is down",
    "nvlink_errors": "errors on an NVLink",
    "nic_down": "a network port that was up is down",
    "nic_errors": "errors on a network port",
    "version_skew": "driver, CUDA, NCCL or kernel differ between nodes",
    "topology_differs": "a node's shape is not that of its class",
    "rank_dead": "a rank's process is gone",
    "rank_absent": "a rank never started or was not found",
    "rank_missing": "a rank is alive and not in the collective",
    "rank_stopped": "a rank's process is stopped",
    "rank_blocked": "a rank's process is blocked in the kernel",
    "collective_mismatch": "ranks are in different collectives",
    "p2p_cycle": "ranks wait for each other in a circle",
    "straggler": "a rank is slower than the others",
    "desync": "ranks are at other steps or collectives than the others",
    "clock_unsynced": "a node's time service has no source, or its clock is not known well enough",
    "clock_violated": "collectives ended before they began: the common clock is wrong somewhere",
    "clock_inconsistent": "a node's edges contradict those of the other nodes",
    "clock_noncausal": "stamps of a node's probes cannot be",
    "clock_step": "a node's clock jumped while it was watched",
    "clock_slew": "a node's clock is slewed fast",
    "clock_rate": "a node's oscillator is far off",
    "clock_asymmetric": "a way between two nodes is longer one way than back",
    "clock_loss": "probes of a node's clock are lost",
    "clock_timens": "a node's agent is in a time namespace",
    "clock_island": "nothing ties a node to the common clock",
    "clock_udp_blocked": "UDP is blocked between two nodes",
    "external": "the job waits for something outside of it",
    "slow": "a job is slow, and the evidence does not say by whom",
    "undecided": "a job does not move, and the evidence does not say why",
}


@dataclass(frozen=True, slots=True)
class FindingDraft:
    """One thing that is wrong now. Whoever keeps findings turns it into a `Finding` record, with its instants.

    Two of the same `id` and `culprits` are the same finding, seen again; the text and the evidence may have changed.
    """

    id: str  # stable, from a closed list: what `--fail-on` and filters name
    severity: Severity
    confidence: Confidence
    culprits: tuple[str, ...]  # nodes (`node019`), GPUs (`node019:gpu4`), ranks (`rank 137`): whom it blames
    text: str  # one sentence with figures and units
    evidence: tuple[str, ...] = ()  # each names its record and field: `gpu.temp_c node019:gpu4 91`
    victims: tuple[str, ...] = ()  # who suffers from it without being at fault
    parts: tuple[str, ...] = ()  # what of a culprit it is about, where that is told: NVLinks by number; `width`
