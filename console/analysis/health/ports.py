"""Network ports: link state and errors of RDMA and Ethernet ports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...text.format import plural
from ..finding import FindingDraft
from .state import HealthState, NicHealth
from .wording import figure

if TYPE_CHECKING:
    from ...config.sections import HealthConfig
    from ...records import Confidence

#: Counters of the `nic` record that mean corruption or loss. Congestion marks and pauses (CNP, ECN, discards) do not.
ERRORS: Final = {
    "symbol_errors": "symbol error", "link_recoveries": "recovered link error", "rx_errors": "receive error",
    "tx_errors": "send error", "out_of_sequence": "out-of-sequence packet",
    "packet_seq_errors": "packet sequence error", "ack_timeouts": "acknowledgement timeout",
}  # fmt: skip
_DOWN: Final = ("down", "init", "armed", "lowerlayerdown", "gone", "dormant")


def nic_down(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Ports that were up and are down or gone.

    A port that was never up counts as unused, except an RDMA port that has lost its link before and is polling.
    """
    for port in _ports(facts):
        nic = port.nic
        if nic.state not in _DOWN:
            continue
        polled = nic.rdma and nic.physical_state == "polling" and bool(nic.link_downed)
        if port.was_up or polled:
            word = "is gone" if nic.state == "gone" else f"is {nic.state}"
            physical = f" ({nic.physical_state})" if nic.physical_state else ""
            before = "it was up" if port.was_up else f"link lost {plural(nic.link_downed or 0, 'time')}"
            text = f"{port.name}: the port {word}{physical}; {before}; check the cable, the switch port and dmesg"
            evidence = [f"nic.state {port.name} {nic.state}"]
            evidence += [] if port.was_up else [f"nic.link_downed {port.name} {nic.link_downed}"]
            confidence: Confidence = "certain" if port.was_up else "likely"
            yield FindingDraft("nic_down", "error", confidence, (port.name,), text, tuple(evidence))


def nic_errors(facts: HealthState, limits: HealthConfig) -> Iterator[FindingDraft]:
    """Ports with a high error rate, or whose link flapped."""
    most = limits.nic_errors_per_min * limits.window_s / 60
    for port in _ports(facts):
        if port.nic.state == "gone":
            continue
        gained = {name: port.window.total(f"grown.{name}") for name in ERRORS}
        errors = [plural(count, ERRORS[name]) for name, count in gained.items() if count > most]
        evidence = [f"nic.grown.{name} {port.name} {figure(count)}" for name, count in gained.items() if count > most]
        flaps = port.window.total("grown.link_downed")
        if flaps and port.nic.state not in _DOWN:
            errors.append(f"link flapped {plural(flaps, 'time')}")
            evidence.append(f"nic.grown.link_downed {port.name} {figure(flaps)}")
        if errors:
            text = f"{port.name}: {', '.join(errors)} in {figure(limits.window_s)} s"
            yield FindingDraft("nic_errors", "warning", "certain", (port.name,), text, tuple(evidence))


def _ports(facts: HealthState) -> Iterator[NicHealth]:
    for node in facts.nodes.values():
        yield from node.nics.values()
