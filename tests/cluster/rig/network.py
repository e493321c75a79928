"""Bridges, network namespaces and address ranges of a rig, created with ip(8)."""

import contextlib
import fcntl
import ipaddress
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .detect import tool

# A rig takes /22s (1,022 nodes each) from the private range that is used least elsewhere.
RANGE = ipaddress.ip_network("10.64.0.0/10")
SUBNET_BITS = 22


def ip(*argv: str) -> str:
    done = subprocess.run([tool("ip"), *argv], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def ip_batch(lines: list[str], netns: str | None = None, keep_going: bool = False) -> None:
    """Run many ip commands in one process, in the network namespace `netns` or the machine's own."""
    argv = [tool("ip"), *(["-n", netns] if netns else []), *(["-force"] if keep_going else []), "-batch", "-"]
    done = subprocess.run(argv, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    if done.returncode != 0 and not keep_going:
        raise OSError(f"ip -batch: {done.stderr.strip()} in {lines}")


class Bridge:
    """A switch with its own subnet. The machine has the first address, unless the bridge is hidden behind another."""

    def __init__(self, name: str, link_group: int, hidden_behind: "Bridge | None" = None) -> None:
        self.name = name
        self.link_group = link_group
        self._hidden_behind = hidden_behind
        self.subnet = ipaddress.ip_network("0.0.0.0/32")
        self._hosts: Iterator[ipaddress.IPv4Address] = iter(())
        self.address = ""

    def create(self) -> None:
        with _one_rig_at_a_time():
            self.subnet = _free_subnet(os.getpid())
            self._hosts = self.subnet.hosts()
            self.address = str(next(self._hosts))
            lines = [f"link add {self.name} group {self.link_group} type bridge", f"link set {self.name} up"]
            if self._hidden_behind is None:
                lines.append(f"addr add {self.address}/{SUBNET_BITS} dev {self.name}")
            else:
                # Packets to a hidden node end at the open bridge instead of reaching the machine's real network.
                lines.append(f"route add {self.subnet} dev {self._hidden_behind.name}")
            ip_batch(lines)

    def next_address(self) -> str:
        return str(next(self._hosts))


def delete_links(link_group: int) -> None:
    """Remove all links of a rig: an open TCP connection can delay the end of a namespace by minutes."""
    ip_batch([f"link del group {link_group}"], keep_going=True)


class Port:
    """One node's interface on a bridge; `host_end` is its peer on the machine."""

    def __init__(self, bridge: Bridge, host_end: str, netns: str, inside: str = "eth0") -> None:
        self.bridge = bridge
        self.host_end = host_end
        self.netns = netns
        self.inside = inside
        self.address = bridge.next_address()

    def create(self) -> None:
        ip_batch(
            [
                f"link add {self.host_end} group {self.bridge.link_group} type veth peer name {self.inside} "
                f"netns {self.netns}",
                f"link set {self.host_end} master {self.bridge.name} up",
            ]
        )
        ip_batch(
            [
                "link set lo up",
                f"addr add {self.address}/{SUBNET_BITS} dev {self.inside}",
                f"link set {self.inside} up",
            ],
            netns=self.netns,
        )

    def set(self, state: str) -> None:
        """`down` simulates an unplugged cable: packets are dropped silently. `up` restores it."""
        ip("link", "set", self.host_end, state)


def add_netns(name: str) -> Path:
    ip("netns", "add", name)
    return Path("/run/netns", name)


def delete_netns(names: list[str]) -> None:
    ip_batch([f"netns del {name}" for name in names], keep_going=True)


def _free_subnet(seed: int) -> ipaddress.IPv4Network:
    """A subnet that no address or route of this machine overlaps; the search begins at an offset from the pid."""
    used = [ipaddress.ip_network(text, strict=False) for text in _addresses_in_use()]
    subnets = list(RANGE.subnets(new_prefix=SUBNET_BITS))
    for step in range(len(subnets)):
        candidate = subnets[(seed * 37 + step) % len(subnets)]
        if not any(candidate.overlaps(network) for network in used):
            return candidate
    raise OSError(f"no free subnet left in {RANGE}")


def _addresses_in_use() -> list[str]:
    addresses = [line.split()[3] for line in ip("-o", "-4", "addr").splitlines()]
    routes = [line.split()[0] for line in ip("-4", "route").splitlines()]
    return addresses + [text for text in routes if text[0].isdigit()]


@contextlib.contextmanager
def _one_rig_at_a_time() -> Iterator[None]:
    """Serialises the search and claim of a subnet between rigs. A lock on a folder leaves no file."""
    descriptor = os.open("/run", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
