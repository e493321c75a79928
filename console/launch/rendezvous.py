"""Where the ranks of a job meet: an address of the first node, on a network that all of its nodes share."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.job_protocol import Readiness

#: Networks that containers and virtual machines have within one machine: the same addresses on every node.
_INNER = ("docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "podman", "lxc")


@dataclass(frozen=True, slots=True)
class Meeting:
    """`interfaces` are by node; None for a job on one node, which needs none."""

    address: str
    interfaces: Mapping[str, str | None]
    warning: str = ""


class NoMeeting(ValueError):
    """The nodes have no network in common that can be named; the message says what to do."""


@dataclass(frozen=True, slots=True)
class _Address:
    interface: str
    text: str
    network: tuple[int, int]  # first address, prefix length


def meet(nodes: Sequence[str], ready: Mapping[str, Readiness], interface: str | None = None) -> Meeting:
    """Where they meet; the first node is the master. Raises NoMeeting."""
    if len(nodes) == 1:
        return Meeting("127.0.0.1", {nodes[0]: None})
    known = {node: [_address(*line) for line in ready[node].addresses] for node in nodes}
    if interface is not None:
        return _over(nodes, known, interface)
    master = nodes[0]
    for network in _networks(known[master], ready[master].ssh_address):
        found = {node: next((a for a in known[node] if a.network == network), None) for node in nodes}
        if all(found.values()):
            ours = ready[master].ssh_address
            address = next((a.text for a in known[master] if a.network == network and a.text == ours), None)
            inside = ours if ours and _is_in(ours, network) else None
            first = found[master]
            assert first is not None
            return Meeting(address or inside or first.text, {node: a.interface for node, a in found.items() if a})
    return _routed(nodes, known, ready)


def _over(nodes: Sequence[str], known: Mapping[str, list[_Address]], interface: str) -> Meeting:
    without = [node for node in nodes if not any(a.interface == interface for a in known[node])]
    if without:
        raise NoMeeting(f"no address at {interface} on {', '.join(without[:4])}; name another --interface, or none")
    address = next(a.text for a in known[nodes[0]] if a.interface == interface)
    return Meeting(address, dict.fromkeys(nodes, interface))


def _networks(addresses: Sequence[_Address], ssh_address: str | None) -> list[tuple[int, int]]:
    """The networks of the master, that of its SSH server first, which is known to work; its own loopback last."""
    outer = [a for a in addresses if a.interface != "lo" and not a.interface.startswith(_INNER)]
    outer.sort(key=lambda a: not (ssh_address and _is_in(ssh_address, a.network)))
    loopback = [a for a in addresses if a.interface == "lo"]
    on_loopback = ssh_address is not None and any(_is_in(ssh_address, a.network) for a in loopback)
    ordered = (loopback + outer) if on_loopback else outer
    return list(dict.fromkeys(a.network for a in ordered))


def _routed(nodes: Sequence[str], known: Mapping[str, list[_Address]], ready: Mapping[str, Readiness]) -> Meeting:
    """No network in common: by the addresses where SSH reaches them, if those are real ones."""
    found: dict[str, str | None] = {}
    for node in nodes:
        ssh = ready[node].ssh_address
        found[node] = next((a.interface for a in known[node] if a.text == ssh and a.interface != "lo"), None)
    missing = [node for node in nodes if found[node] is None]
    address = ready[nodes[0]].ssh_address
    if missing or address is None:
        who = ", ".join(missing[:4]) or nodes[0]
        raise NoMeeting(f"no network that {who} shares with the others; name one: --interface")
    return Meeting(address, found, "the nodes are in different networks: whether they reach each other was not tried")


def _address(interface: str, text: str, prefix: int) -> _Address:
    value = int(ipaddress.IPv4Address(text))
    return _Address(interface, text, (value >> (32 - prefix) << (32 - prefix) if prefix else 0, prefix))


def _is_in(text: str, network: tuple[int, int]) -> bool:
    try:
        value = int(ipaddress.IPv4Address(text))
    except ipaddress.AddressValueError:
        return False
    return value >> (32 - network[1]) == network[0] >> (32 - network[1])
