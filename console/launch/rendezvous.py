"""The rendezvous address of a job: one of the first node, on a network that all nodes share."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

import msgspec

from ..core.job_protocol import Readiness

#: Interfaces of containers and virtual machines: their networks have the same addresses on every node.
_INNER = ("docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "podman", "lxc")


class Rendezvous(msgspec.Struct, frozen=True):
    """MASTER_ADDR, and the interface of each node; None on a single node."""

    address: str
    interfaces: Mapping[str, str | None]
    warning: str = ""


class NoRendezvous(ValueError):
    """The nodes share no known network; the message states the remedy."""


class _Address(msgspec.Struct, frozen=True):
    interface: str
    text: str
    network: tuple[int, int]  # first address, prefix length


def choose_rendezvous(nodes: Sequence[str], ready: Mapping[str, Readiness], interface: str | None = None) -> Rendezvous:
    """The rendezvous of these nodes, the first of which is the master. Raises NoRendezvous."""
    if len(nodes) == 1:
        return Rendezvous("127.0.0.1", {nodes[0]: None})
    addresses = {node: [_address(*line) for line in ready[node].addresses] for node in nodes}
    if interface is not None:
        return _over(nodes, addresses, interface)
    master = nodes[0]
    for network in _networks(addresses[master], ready[master].ssh_address):
        chosen = {node: next((a for a in addresses[node] if a.network == network), None) for node in nodes}
        if all(chosen.values()):
            ours = ready[master].ssh_address
            address = next((a.text for a in addresses[master] if a.network == network and a.text == ours), None)
            inside = ours if ours and _is_in(ours, network) else None
            first = chosen[master]
            assert first is not None
            return Rendezvous(address or inside or first.text, {node: a.interface for node, a in chosen.items() if a})
    return _routed(nodes, addresses, ready)


def _over(nodes: Sequence[str], addresses: Mapping[str, list[_Address]], interface: str) -> Rendezvous:
    without = [node for node in nodes if not any(a.interface == interface for a in addresses[node])]
    if without:
        raise NoRendezvous(
            f"no address on interface {interface} of {', '.join(without[:4])}; choose another --interface, or omit it"
        )
    address = next(a.text for a in addresses[nodes[0]] if a.interface == interface)
    return Rendezvous(address, dict.fromkeys(nodes, interface))


def _networks(addresses: Sequence[_Address], ssh_address: str | None) -> list[tuple[int, int]]:
    """Networks of the master, that of its SSH server first: it is known to be reachable."""
    outer = [a for a in addresses if a.interface != "lo" and not a.interface.startswith(_INNER)]
    outer.sort(key=lambda a: not (ssh_address and _is_in(ssh_address, a.network)))
    loopback = [a for a in addresses if a.interface == "lo"]
    on_loopback = ssh_address is not None and any(_is_in(ssh_address, a.network) for a in loopback)
    ordered = (loopback + outer) if on_loopback else outer
    return list(dict.fromkeys(a.network for a in ordered))


def _routed(
    nodes: Sequence[str], addresses: Mapping[str, list[_Address]], ready: Mapping[str, Readiness]
) -> Rendezvous:
    """Without a shared network: the addresses of their SSH servers."""
    chosen: dict[str, str | None] = {}
    for node in nodes:
        ssh = ready[node].ssh_address
        chosen[node] = next((a.interface for a in addresses[node] if a.text == ssh and a.interface != "lo"), None)
    missing = [node for node in nodes if chosen[node] is None]
    address = ready[nodes[0]].ssh_address
    if missing or address is None:
        who = ", ".join(missing[:4]) or nodes[0]
        raise NoRendezvous(f"no network shared by {who} and the other nodes; choose one with --interface")
    return Rendezvous(address, chosen, "the nodes are in different networks; reachability between them was not tested")


def _address(interface: str, text: str, prefix: int) -> _Address:
    value = int(ipaddress.IPv4Address(text))
    return _Address(interface, text, (value >> (32 - prefix) << (32 - prefix) if prefix else 0, prefix))


def _is_in(text: str, network: tuple[int, int]) -> bool:
    try:
        value = int(ipaddress.IPv4Address(text))
    except ipaddress.AddressValueError:
        return False
    return value >> (32 - network[1]) == network[0] >> (32 - network[1])
