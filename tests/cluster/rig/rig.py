"""The rig: nodes, keys, known_hosts and related services, started and removed together."""

import contextlib
import re
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import accounts, claims, exit_cleanup, hosts, keys, privsep, pythons
from .agent import SshAgent
from .build import Builder, NamespaceBuilder, NodeSpec, SharedBuilder
from .detect import pick_mode
from .home import SshHome
from .kinds import KINDS
from .node import Node
from .openssh import OpenSshServer
from .relay import Relay

# Nodes are started in parallel; more than this slows each of them down.
PARALLEL = 8
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")


class Rig:
    """A cluster of SSH servers; a context manager.

    `nodes` is a number of plain nodes ("node1" …, padded with zeros) or their names. `mode` is one of detect.MODES, by
    default the best that works. `user` logs in: by default the account of this process; in namespaces mode also "ops",
    who has no privileges. `python` is what `python3` means on the nodes: a path or a version. `max_startups` is sshd's.
    With `is_first_start`, the nodes have no cache of an agent that ran there before.
    """

    def __init__(
        self,
        nodes: int | Sequence[str] = 4,
        name: str = "rig",
        mode: str | None = None,
        user: str | None = None,
        python: Path | str | None = None,
        max_startups: str = "200:30:400",
        is_first_start: bool = False,
    ) -> None:
        picked = pick_mode(mode)
        self.name = name
        self.mode = picked.name
        self.why = picked.why
        self.user = user or accounts.current().name
        self.nodes: list[Node] = []
        self._plain = _names(nodes) if isinstance(nodes, int) else list(nodes)
        self._python = python
        self._max_startups = max_startups
        self._is_first_start = is_first_start
        self._authorized: list[str] = []
        self._bastions: set[str] = set()
        self._numbers = iter(range(1_000_000))
        self._stack = contextlib.ExitStack()
        self._builder: Builder

    # Life

    def __enter__(self) -> "Rig":
        claims.remove_leftovers()
        exit_cleanup.watch(self)
        self._stack.callback(exit_cleanup.forget, self)
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove everything of this rig; idempotent."""
        self._stack.close()

    def _start(self) -> None:
        claim = claims.claim()
        self._claim = claim
        self.folder = claim.folder
        self._stack.callback(claim.release)
        if self.mode == "loopback":
            self._stack.enter_context(privsep.folder())
        self._builder = self._make_builder(claim)
        self._stack.callback(self._builder.close)
        self._builder.start()
        self.known_hosts = self.folder / "known_hosts"
        self.known_hosts.touch(0o600)
        self.key = self.new_key("id_ed25519")
        self._stack.callback(self._stop_nodes)
        self._add([self._spec(name, "plain") for name in self._plain])

    def _make_builder(self, claim: claims.Claim) -> Builder:
        if self.mode == "namespaces":
            return NamespaceBuilder(claim)
        if self.mode == "loopback":
            # sshd without root cannot verify a password against the machine's shadow file.
            return SharedBuilder(claim, OpenSshServer, takes_passwords=False)
        from .asyncssh_server import ServerLoop  # slow import, needed in this mode only

        loop = ServerLoop()
        self._stack.callback(loop.close)
        return SharedBuilder(claim, loop.server, takes_passwords=True)

    # Nodes

    def add_node(
        self,
        name: str,
        kind: str = "plain",
        *,
        behind: Node | None = None,
        user: str | None = None,
        python: Path | str | None = None,
        max_startups: str | None = None,
        sshd_options: Iterable[str] = (),
        throttle_first: int | None = None,
    ) -> Node:
        """Start one more node, of one of KINDS; RigUnavailable if this mode or machine does not support it.

        `behind` is a bastion the node is reached through (in namespaces mode: only through it). `sshd_options` are
        lines of sshd_config, OpenSSH modes only. `throttle_first` is how many connections a "throttle" node drops
        before it accepts one (never, by default).
        """
        spec = self._spec(
            name,
            kind,
            behind=behind,
            user=user,
            python=python,
            max_startups=max_startups,
            sshd_options=tuple(sshd_options),
            throttle_first=throttle_first,
        )
        return self._add([spec])[0]

    def add_bastion(self, name: str = "bastion", **options: Any) -> Node:
        """Start a jump host; `logins()` counts connections through it, `add_node(…, behind=…)` puts nodes behind it."""
        self._bastions.add(name)
        return self._add([self._spec(name, "plain", is_bastion=True, **options)])[0]

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def _spec(
        self,
        name: str,
        kind: str,
        *,
        user: str | None = None,
        python: Path | str | None = None,
        max_startups: str | None = None,
        **rest: Any,
    ) -> NodeSpec:
        if not _NAME.fullmatch(name) or any(node.name == name for node in self.nodes):
            raise ValueError(f"{name!r} is taken or cannot be the name of a node")
        chosen = KINDS[kind]
        if chosen.python != "own":
            python = chosen.python
        python = python or self._python or pythons.own_python()
        if user is None:
            user = accounts.OPS.name if chosen.sudo else self.user
        return NodeSpec(
            name, chosen, user, python, max_startups or self._max_startups, is_first_start=self._is_first_start, **rest
        )

    def _add(self, specs: list[NodeSpec]) -> list[Node]:
        nodes = [self._build(spec) for spec in specs]
        self.nodes += nodes
        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(self._start_node, nodes))
        with self.known_hosts.open("a") as file:
            file.writelines(
                keys.known_hosts_line([node.address, node.name], node.port, node.host_key())
                for node in nodes
                if node.host_key()
            )
        return nodes

    def _build(self, spec: NodeSpec) -> Node:
        folder = self.folder / spec.name
        folder.mkdir(0o755)
        pythons.fill_bin(folder / "bin", spec.python)
        return self._builder.build(spec, folder)

    def _start_node(self, node: Node) -> None:
        self._write_authorized(node)
        node.start()

    def _stop_nodes(self) -> None:
        with ThreadPoolExecutor(PARALLEL) as pool:
            failures = [failure for failure in pool.map(_stop_node, self.nodes) if failure is not None]
        if failures:
            raise ExceptionGroup("nodes that did not stop", failures)

    # Keys and hosts

    def new_key(self, name: str, passphrase: str = "", authorize: bool = True) -> Path:
        """A new key in the rig's folder, accepted by every node whose kind allows keys."""
        key = keys.make(self.folder / name, passphrase)
        if authorize:
            self._authorized.append(keys.public_line(key))
            for node in self.nodes:
                self._write_authorized(node)
        return key

    def encrypted_key(self, passphrase: str, name: str = "id_encrypted") -> Path:
        """A key that the nodes accept, encrypted with a passphrase."""
        return self.new_key(name, passphrase)

    def _write_authorized(self, node: Node) -> None:
        lines = [] if node.kind.login == "wrong_key" else self._authorized
        (node.folder / "authorized_keys").write_text("".join(f"{line}\n" for line in lines))

    def ssh_agent(self) -> SshAgent:
        """An ssh-agent without keys: `with rig.ssh_agent() as agent: agent.add(key)`."""
        agent = SshAgent(self._claim, self.folder / f"agent{next(self._numbers)}")
        self._stack.callback(agent.close)
        return agent

    def ssh_config(self, text: str | None = None) -> SshHome:
        """A home with this ~/.ssh/config; by default one with every node by name."""
        text = self.ssh_config_text() if text is None else text
        return SshHome(self.folder / f"home{next(self._numbers)}", text)

    def ssh_config_text(self) -> str:
        """ssh_config(5) entries that reach every node by its name."""
        blocks = []
        for node in self.nodes:
            jump = [f"    ProxyJump {node.behind.name}"] if node.behind else []
            blocks += [
                f"Host {node.name}",
                f"    HostName {node.address}",
                f"    Port {node.port}",
                f"    User {node.user}",
                f"    IdentityFile {self.key}",
                "    IdentitiesOnly yes",
                f"    UserKnownHostsFile {self.known_hosts}",
                *jump,
                "",
            ]
        return "\n".join(blocks)

    def hosts_toml(
        self,
        extra: str = "",
        *,
        only: Iterable[str] | None = None,
        nodes: dict[str, dict] | None = None,
        **sections: dict[str, Any],
    ) -> str:
        """A hosts.toml for all nodes but bastions, or for those named in `only`.

        `nodes={"node1": {"port": 1}}` changes entries; `ssh={…}`, `agent={…}`, `console={…}` change sections (None
        removes a key); `extra` is appended.
        """
        names = [node.name for node in self.nodes if node.name not in self._bastions] if only is None else only
        ssh = {"user": self.user, "identity_file": self.key, "known_hosts": self.known_hosts}
        return hosts.hosts_toml(self.name, map(self.node, names), ssh, sections, nodes or {}, extra)

    def write_hosts_toml(self, path: Path, **changes: Any) -> Path:
        """`hosts_toml` with these changes, written to `path`."""
        path.write_text(self.hosts_toml(**changes))
        return path

    # Around

    def ssh_argv(self, node: Node, *options: str) -> list[str]:
        """The ssh(1) command line into a node with the rig's key; append the command. `options` are `-o` settings."""
        return node.ssh_argv(self.key, self.known_hosts, *options)

    def ssh(self, node: Node, command: str, *options: str, deadline_s: float = 60.0) -> subprocess.CompletedProcess:
        """Run a command through ssh(1), as `ssh_argv` does; TimeoutExpired past the deadline, no error if it fails."""
        return subprocess.run(
            [*self.ssh_argv(node, *options), command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )

    def relay(self, node: Node, port: int | None = None, **options: Any) -> Relay:
        """A relay in front of the node's server (or another port), with its address in known_hosts; see Relay."""
        relay = Relay((node.address, port or node.port), self._builder.relay_address(), **options)
        self._stack.callback(relay.close)
        if node.host_key():
            with self.known_hosts.open("a") as file:
                file.write(keys.known_hosts_line([relay.address], relay.port, node.host_key()))
        return relay


def _names(count: int) -> list[str]:
    width = len(str(count))
    return [f"node{number:0{width}}" for number in range(1, count + 1)]


def _stop_node(node: Node) -> Exception | None:
    try:
        node.stop()
    except Exception as error:
        return error
    return None
