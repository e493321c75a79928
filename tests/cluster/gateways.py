"""A site for tests: two gateways, and nodes that only these reach, by the keys of the user there."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from program import Run, batch
from rig import Node, Rig


@dataclass(frozen=True)
class Site:
    """The rig and its parts; this machine has no route to `nodes`."""

    rig: Rig
    gateways: list[Node]
    nodes: list[Node]

    def hosts(self, path: Path, gateways: int | None = None, **sections: dict[str, Any]) -> Path:
        """A hosts.toml by which the nodes are reached through all gateways, or the first ones."""
        names = ",".join(gateway.address for gateway in self.gateways[:gateways])
        ssh = {"gateway": names, **sections.pop("ssh", {})}
        return self.rig.write_hosts_toml(path, nodes={node.name: {"jump": None, "port": None} for node in self.nodes},
                                         ssh=ssh, **sections)  # fmt: skip

    def batch(self, path: Path, *args: object, gateways: int | None = None, **sections: dict[str, Any]) -> Run:
        """Run `gconsole batch` through the gateways."""
        return batch(self.hosts(path, gateways, **sections), *args)


@contextmanager
def site(gateways: int = 2, nodes: int = 4, **options: Any) -> Iterator[Site]:
    """Gateways `login1` … and nodes `node1` … behind them."""
    with Rig(nodes=0, name="gw", **options) as rig:
        hosts = [rig.add_bastion(f"login{number + 1}") for number in range(gateways)]
        behind = [rig.add_node(f"node{number + 1}", behind=hosts[0]) for number in range(nodes)]
        for gateway in hosts:
            give_key(rig, gateway)
        yield Site(rig, hosts, behind)


def give_key(rig: Rig, gateway: Node, key: Path | None = None) -> None:
    """Make a key, by default the one that all nodes accept, the user's own on a gateway, and the nodes known there."""
    shutil.copy(key or rig.key, gateway.folder / "own_key")
    shutil.copy(rig.known_hosts, gateway.folder / "own_known_hosts")
    inside = shlex.quote(gateway.inside)
    script = (
        f"umask 77; mkdir -p ~/.ssh && cp {inside}/own_key ~/.ssh/id_ed25519 && cp {inside}/own_known_hosts "
        "~/.ssh/known_hosts"
    )
    gateway.output(["sh", "-c", script])
