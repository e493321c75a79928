"""Health checks of GPUs, links, ports, clocks and versions: pure functions over the facts, one per finding id.

A check with too little data yields nothing; an unknown figure never makes a finding. Findings about simulated GPUs
start with SIM. The limits are `[health]` of hosts.toml.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...config.sections import HealthConfig
from ..finding import FindingDraft
from .driver import driver_broken, gpu_missing, gpu_unusable
from .errors import gpu_ecc, gpu_lost, gpu_remap_pending, gpu_xid
from .gpu_state import gpu_hot, gpu_settings, gpu_slow_clock, nvlink_fabric
from .kernel import kernel_fault, node_rebooted, service_fault
from .links import nic_down, nic_errors, nvlink_down, nvlink_errors, pcie_degraded
from .load import gpu_memory_imbalance, gpu_straggler, gpu_throttle
from .nodes import agent_error, clock_step, console_late, version_skew
from .state import HealthState

#: One function per finding id, most important first.
CHECKS = (
    driver_broken, gpu_missing, gpu_lost, gpu_unusable, gpu_xid, gpu_ecc, gpu_remap_pending, nvlink_down, nic_down,
    nvlink_fabric, gpu_throttle, gpu_hot, gpu_slow_clock, pcie_degraded, nvlink_errors,
    nic_errors, kernel_fault, node_rebooted, service_fault,
    agent_error, console_late, gpu_straggler, gpu_memory_imbalance, gpu_settings, clock_step, version_skew,
)  # fmt: skip


def health_findings(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """All health findings for these facts and limits."""
    for check in CHECKS:
        yield from check(facts, limits)
