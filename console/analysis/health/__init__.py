"""Health checks of GPUs, links, ports, clocks and versions: pure functions over the facts, one per finding id.

A check with too little data yields nothing; an unknown figure never makes a finding. Findings about simulated GPUs
start with SIM. The limits are `[health]` of hosts.toml.

Most checks concern one node by itself. `changed_findings` runs them only for the nodes that the fold marked as changed:
samples of a GPU or port mark its node only where a finding may depend on them (`GpuHealth.is_notable`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ...config.sections import HealthConfig
from ..finding import FindingDraft
from .driver import driver_broken, gpu_missing, gpu_unusable
from .errors import gpu_ecc, gpu_lost, gpu_remap_pending, gpu_xid
from .gpu_state import gpu_hot, gpu_settings, gpu_slow_clock, nvlink_fabric
from .kernel import kernel_fault, node_rebooted, service_fault
from .launchers import launcher_waits
from .links import nic_down, nic_errors, nvlink_down, nvlink_errors, pcie_degraded
from .load import gpu_memory_imbalance, gpu_straggler, gpu_throttle
from .nodes import SETTLE_S, agent_error, clock_step, console_late, gateway_lost, records_missing, version_skew
from .state import HealthState

Check = Callable[[HealthState, HealthConfig], Iterator[FindingDraft]]

#: One function per finding id, most important first.
CHECKS: Final[tuple[Check, ...]] = (
    driver_broken, gpu_missing, gpu_lost, gpu_unusable, gpu_xid, gpu_ecc, gpu_remap_pending, nvlink_down, nic_down,
    nvlink_fabric, gpu_throttle, gpu_hot, gpu_slow_clock, pcie_degraded, nvlink_errors,
    nic_errors, kernel_fault, node_rebooted, service_fault, launcher_waits,
    agent_error, records_missing, console_late, gateway_lost, gpu_straggler, gpu_memory_imbalance, gpu_settings,
    clock_step,
    version_skew,
)  # fmt: skip
#: Those that compare nodes, or are not about a node; all others read one node alone.
_OF_FLEET: Final[frozenset[Check]] = frozenset(
    {gpu_slow_clock, node_rebooted, console_late, gateway_lost, gpu_straggler, gpu_memory_imbalance, gpu_settings,
     version_skew}
)  # fmt: skip
_OF_NODE: Final = tuple(check for check in CHECKS if check not in _OF_FLEET)
#: Those whose findings end with time, without a record of their node.
_AGEING: Final[tuple[Check, ...]] = (gpu_xid, kernel_fault, service_fault, launcher_waits, clock_step, records_missing)


def health_findings(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """All health findings for these facts and limits."""
    for check in CHECKS:
        yield from check(facts, limits)


class _Evaluation:
    """The findings of the last evaluation of some facts, by check and, where a node has any, by node."""

    def __init__(self, limits: HealthConfig) -> None:
        self.limits = limits
        self.of_nodes: dict[Check, dict[str, list[FindingDraft]]] = {check: {} for check in _OF_NODE}
        self.of_fleet: dict[Check, tuple[object, list[FindingDraft]]] = {}  # what they depend on, and they

    def run(self, facts: HealthState, name: str, checks: tuple[Check, ...]) -> None:
        """Run checks of one node, which may have been removed."""
        part = facts.only(name) if name in facts.nodes else None
        for check in checks:
            drafts = list(check(part, self.limits)) if part is not None else []
            if drafts:
                self.of_nodes[check][name] = drafts
            else:
                self.of_nodes[check].pop(name, None)

    def ageing(self, facts: HealthState) -> set[str]:
        """Nodes whose findings may end, or give way to others, although nothing changed."""
        names = {name for check in _AGEING for name in self.of_nodes[check]}
        return names | {name for name, node in facts.nodes.items() if node.services or node.waiting_launchers}

    def of(self, check: Check, facts: HealthState) -> Iterator[FindingDraft]:
        """The findings of one check, in the order of the nodes."""
        if check not in _OF_FLEET:
            drafts = self.of_nodes[check]
            for name in facts.nodes if drafts else ():
                yield from drafts.get(name, ())
            return
        needs = _needs_of(check, facts)
        earlier = self.of_fleet.get(check)
        if needs is None or earlier is None or earlier[0] != needs:
            earlier = self.of_fleet[check] = (needs, list(check(facts, self.limits)))
        yield from earlier[1]


def changed_findings(facts: HealthState, limits: HealthConfig) -> list[FindingDraft]:
    """The same as `health_findings`; checks run only where their result may differ from the last call for these facts.

    A check that raises makes the next call run all of them.
    """
    evaluation = facts.evaluated
    facts.evaluated = None
    if not isinstance(evaluation, _Evaluation) or evaluation.limits != limits:
        evaluation = _Evaluation(limits)
        facts.changed = set(facts.nodes)
    changed, facts.changed = facts.changed, set()
    for name in changed:
        evaluation.run(facts, name, _OF_NODE)
    for name in evaluation.ageing(facts) - changed:
        evaluation.run(facts, name, _AGEING)
    findings = [draft for check in CHECKS for draft in evaluation.of(check, facts)]
    facts.evaluated = evaluation
    return findings


def _needs_of(check: Check, facts: HealthState) -> object:
    """A value that is equal as long as the findings of a check of the fleet are; None: they may differ each time."""
    nodes = facts.nodes.values()
    if check is gpu_slow_clock:
        notable = (node.gpus.get(key) for node in nodes for key in node.notable)
        return None if any(gpu is not None and "slow_clock" in gpu.since_s for gpu in notable) else ()
    if check is node_rebooted:
        return None if any(node.lost for node in nodes) else facts.identities
    if check in (gpu_settings, version_skew):  # has_settled depends on the time
        return facts.identities, facts.oldest is not None and facts.newest - facts.oldest > SETTLE_S * 1e9
    return None
