"""What is wrong with GPUs, links, ports, clocks and versions, now: pure functions over the facts, one a finding.

Every check yields nothing where it has too little data; an unknown figure never makes a finding. Findings about
simulated GPUs start with SIM. The limits are `[health]` of hosts.toml.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..finding import FindingDraft
from .clock import clock_step
from .errors import gpu_ecc, gpu_lost, gpu_remap_pending, gpu_xid
from .links import nvlink_down, nvlink_errors, pcie_degraded
from .load import gpu_memory_imbalance, gpu_straggler, gpu_throttle
from .ports import nic_down, nic_errors
from .state import HealthState
from .versions import version_skew

if TYPE_CHECKING:
    from ...config.sections import HealthConfig

#: One function a finding, in the order in which a person wants to read them.
CHECKS = (
    gpu_lost, gpu_xid, gpu_ecc, gpu_remap_pending, nvlink_down, nic_down, gpu_throttle, pcie_degraded, nvlink_errors,
    nic_errors, gpu_straggler, gpu_memory_imbalance, clock_step, version_skew,
)  # fmt: skip


def health_findings(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Everything that is wrong by these facts and limits."""
    for check in CHECKS:
        yield from check(facts, limits)
