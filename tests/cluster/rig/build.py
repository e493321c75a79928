"""Builds nodes in each of the three modes: a sandbox, a server in it, and the changes of each node kind."""

import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from . import accounts, agent_cache, network, pythons
from .claims import Claim
from .detect import TOOL_PATH, RigUnavailable
from .kinds import PASSWORD, Kind
from .node import Node
from .openssh import PAM_SERVICE, OpenSshServer, Settings
from .sandbox import NamespaceSandbox, Sandbox, SharedSandbox, namespace_plan
from .stub_servers import NoServer, Server, StubServer


@dataclass(frozen=True)
class NodeSpec:
    """One node to be built."""

    name: str
    kind: Kind
    user: str
    python: Path | str  # a path, a version, "old" or "none"
    max_startups: str
    sshd_options: tuple[str, ...] = ()
    throttle_first: int | None = None  # number of connections that a throttling node drops; None: all
    behind: Node | None = None
    is_bastion: bool = False
    is_first_start: bool = False  # the agent has no cache from an earlier start


class Builder(Protocol):
    """Builds nodes of one mode; `start` before the first, `close` after the last."""

    def start(self) -> None: ...
    def build(self, spec: NodeSpec, folder: Path) -> Node: ...
    def relay_address(self) -> str: ...
    def close(self) -> None: ...


def _make_server(
    spec: NodeSpec, sandbox: Sandbox, address: str, port: int, spare: tuple[str, int], server: "Maker"
) -> Server:
    """The server of a node, or a stub that replaces or precedes it."""
    if spec.kind.listener == "closed":
        return NoServer()
    if spec.kind.listener == "hangs":
        return StubServer(sandbox, address, port, ("hangs",))
    if spec.kind.listener == "throttles":
        if spec.throttle_first is None:
            return StubServer(sandbox, address, port, ("throttles",))
        behind = ("throttles", str(spec.throttle_first), spare[0], str(spare[1]))
        return StubServer(sandbox, address, port, behind, server(sandbox, _settings(spec, *spare)))
    return server(sandbox, _settings(spec, address, port))


class Maker(Protocol):
    def __call__(self, sandbox: Sandbox, settings: Settings) -> Server: ...


def _settings(spec: NodeSpec, address: str, port: int) -> Settings:
    return Settings(address, port, spec.kind, spec.max_startups, spec.sshd_options)


class NamespaceBuilder:
    """Nodes in namespaces on a bridge, those behind a bastion on a second bridge this machine has no address on."""

    SSH_PORT = 22
    SPARE = ("127.0.0.1", 2222)

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._bridge = network.Bridge(f"{claim.prefix}b0", claim.link_group)
        self._hidden: network.Bridge | None = None
        self._netns: list[str] = []
        self._hosts = claim.folder / "hosts"
        self._binds: list[tuple[str, str]] = []
        self._hides_packages = sys.prefix != sys.base_prefix

    def start(self) -> None:
        self._bridge.create()
        self._hosts.write_text("127.0.0.1 localhost\n")
        self._hosts.chmod(0o644)
        self._binds = [*accounts.write_files(self._claim.folder / "etc"), (str(self._hosts), "/etc/hosts")]

    def relay_address(self) -> str:
        return self._bridge.address

    def build(self, spec: NodeSpec, folder: Path) -> Node:
        account = accounts.find(spec.user)
        plan = namespace_plan(
            folder,
            [*self._binds, *self._own_files(spec, folder)],
            account.home,
            home_read_only=spec.kind.home_read_only,
            noexec=spec.kind.noexec,
            copies=self._copies(spec, account),
        )
        path = pythons.search_path("/run/node/bin", spec.python)
        sandbox = NamespaceSandbox(spec.name, folder, path, self._ports(spec), plan)
        with self._hosts.open("a") as file:  # in place: the file is bind-mounted in the nodes
            # The second entry is for IPv6 sockets with IPv4 peers; without it torch queries the DNS at each connection
            file.write(f"{sandbox.address} {spec.name}\n::ffff:{sandbox.address} {spec.name}\n")
        server = _make_server(spec, sandbox, sandbox.address, self.SSH_PORT, self.SPARE, self._server)
        password = PASSWORD if spec.kind.login == "password" else None
        return Node(spec.name, spec.kind, spec.user, self.SSH_PORT, sandbox, server, spec.behind, password)

    @staticmethod
    def _server(sandbox: Sandbox, settings: Settings) -> Server:
        settings.pam = any(Path("/lib").glob("**/security/pam_unix.so")) if settings.kind.login == "password" else False
        return OpenSshServer(sandbox, settings)

    def _ports(self, spec: NodeSpec) -> list[network.Port]:
        number = len(self._netns)
        netns = f"{self._claim.prefix}n{number}"
        self._netns.append(netns)
        hidden = self._hidden_bridge() if spec.is_bastion or spec.behind else None
        if spec.behind:
            return [network.Port(hidden, f"{self._claim.prefix}v{number}", netns)]
        ports = [network.Port(self._bridge, f"{self._claim.prefix}v{number}", netns)]
        if hidden:
            ports.append(network.Port(hidden, f"{self._claim.prefix}w{number}", netns, "eth1"))
        return ports

    def _hidden_bridge(self) -> network.Bridge:
        if self._hidden is None:
            self._hidden = network.Bridge(f"{self._claim.prefix}b1", self._claim.link_group, self._bridge)
            self._hidden.create()
        return self._hidden

    def _copies(self, spec: NodeSpec, account: accounts.Account) -> list[list]:
        """The warm agent cache, for nodes whose Python can use it."""
        kind = spec.kind
        if spec.is_first_start or spec.is_bastion or kind.sudo or kind.noexec or spec.python != pythons.own_python():
            return []
        return [[str(agent_cache.folder()), f"/var/tmp/gconsole-{account.uid}", account.uid, account.gid]]

    def _own_files(self, spec: NodeSpec, folder: Path) -> list[tuple[str, str]]:
        """Files of /etc and /proc that differ on this node."""
        boot_id = folder / "boot_id"
        boot_id.write_text(f"{_uuid()}\n")
        binds = [(str(boot_id), "/proc/sys/kernel/random/boot_id")]
        if Path("/etc/machine-id").exists():
            machine_id = folder / "machine-id"
            machine_id.write_text(f"{_uuid().replace('-', '')}\n")
            binds.append((str(machine_id), "/etc/machine-id"))
        if spec.kind.login == "password" and Path("/etc/pam.d/sshd").exists():
            service = folder / "pam"
            service.write_text(PAM_SERVICE)
            binds.append((str(service), "/etc/pam.d/sshd"))
        if spec.kind.sudo:
            binds += _sudo_files(spec, folder)
        if self._hides_packages and spec.python == pythons.own_python():
            (folder / "no_packages").mkdir()
            binds += [(str(folder / "no_packages"), str(target)) for target in pythons.package_folders()]
        return binds

    def close(self) -> None:
        if self._netns:
            network.delete_netns(self._netns)
        network.delete_links(self._claim.link_group)


def _uuid() -> str:
    return Path("/proc/sys/kernel/random/uuid").read_text().strip()


def _sudo_files(spec: NodeSpec, folder: Path) -> list[tuple[str, str]]:
    if shutil.which("sudo", path=TOOL_PATH) is None:
        raise RigUnavailable("no sudo")
    sudoers = folder / "sudoers"
    sudoers.write_text(f"root ALL=(ALL:ALL) ALL\n{spec.user} ALL=(ALL:ALL) NOPASSWD: ALL\n")
    sudoers.chmod(0o440)
    service = folder / "pam-sudo"
    service.write_text("account required pam_permit.so\nsession required pam_permit.so\nauth required pam_deny.so\n")
    return [(str(sudoers), "/etc/sudoers"), (str(service), "/etc/pam.d/sudo")]


class SharedBuilder:
    """Nodes on 127.0.0.1 under this account, each with a port of its own; OpenSSH's server or asyncssh's."""

    def __init__(self, claim: Claim, server: Maker, takes_passwords: bool) -> None:
        self._claim = claim
        self._server = server
        self._takes_passwords = takes_passwords
        self._reserved: list[socket.socket] = []

    def start(self) -> None:
        pass  # no setup needed

    def relay_address(self) -> str:
        return SharedSandbox.address

    def build(self, spec: NodeSpec, folder: Path) -> Node:
        if spec.kind.needs_namespaces:
            raise RigUnavailable(f"a {spec.kind.name} node needs namespaces mode")
        if spec.user != accounts.current().name:
            raise RigUnavailable("logging in as another user needs namespaces mode")
        path = pythons.search_path(str(folder / "bin"), spec.python)
        sandbox = SharedSandbox(spec.name, self._claim, folder, path)
        port = self._reserve()
        spare = (sandbox.address, self._reserve() if spec.kind.listener == "throttles" else 0)
        server = _make_server(spec, sandbox, sandbox.address, port, spare, self._server)
        password = PASSWORD if spec.kind.login == "password" and self._takes_passwords else None
        return Node(spec.name, spec.kind, spec.user, port, sandbox, server, spec.behind, password)

    def _reserve(self) -> int:
        """A port reserved for the lifetime of the rig: bound but not listening, so that our server can listen."""
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((SharedSandbox.address, 0))
        self._reserved.append(holder)
        return holder.getsockname()[1]

    def close(self) -> None:
        for holder in self._reserved:
            holder.close()
