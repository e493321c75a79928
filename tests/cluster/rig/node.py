"""One node of the rig: what a test does to it and reads from it."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import processes
from .claims import FILTER_VARIABLE
from .detect import RigUnavailable, tool
from .kinds import Kind
from .sandbox import NamespaceSandbox, Sandbox
from .stub_servers import Server


class Node:
    """A node with its address, its server and its processes. The rig makes, starts and ends it."""

    def __init__(
        self,
        name: str,
        kind: Kind,
        user: str,
        port: int,
        sandbox: Sandbox,
        server: Server,
        behind: "Node | None" = None,
        password: str | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.user = user
        self.address = sandbox.address
        self.port = port
        self.behind = behind  # the bastion this node is reached through
        self.password = password  # what opens a password_only node; None where no password does
        self._sandbox = sandbox
        self._server = server

    @property
    def folder(self) -> Path:
        """A folder the node and the test share; `inside` is the same folder as the node names it."""
        return self._sandbox.folder

    @property
    def inside(self) -> str:
        return self._sandbox.inside

    @property
    def process_filter(self) -> str | None:
        """What tells this node's processes from those of the others; None where it has a process table of its own."""
        token = self._sandbox.variables.get(FILTER_VARIABLE)
        return f"env:{FILTER_VARIABLE}={token}" if token else None

    def start(self) -> None:
        """For the rig: everything of the node runs, and its server listens, when this returns."""
        self._server.prepare()
        self._sandbox.start()
        self._server.start()

    def stop(self) -> None:
        """For the rig: nothing of the node is left when this returns."""
        self._server.stop(sessions=True)
        self._sandbox.stop()

    # Processes

    def run(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, user: str | int | None = None, **popen: Any
    ) -> subprocess.Popen:
        """Start a process on the node, with a login's environment plus `env`; it ends with the rig at the latest.

        The Popen is the process itself: its pid (as this side counts), signals and exit status are real. `user` is an
        account of the nodes ("ops", "other") or a bare uid, and needs namespaces mode. `popen` is for subprocess.Popen.
        """
        return self._sandbox.spawn(argv, env, user, **popen)

    def output(self, argv: Sequence[str], deadline_s: float = 60.0, **options: Any) -> str:
        """What a command says on the node's stdout; CalledProcessError if it fails, TimeoutExpired if it takes long."""
        with self.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **options) as process:
            try:
                output, _ = process.communicate(timeout=deadline_s)
            finally:
                process.kill()
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode, argv, output)
        return output

    def processes(self) -> list[int]:
        """The pids on the node, as it counts them; without namespaces those that carry the filter variable."""
        return sorted(process.pid for process in self._sandbox.processes())

    def outer_pid(self, pid: int) -> int:
        """The pid by which this test process knows a process of the node; ProcessLookupError if it is gone."""
        for process in self._sandbox.processes():
            if process.pid == pid:
                return process.outer
        raise ProcessLookupError(f"{self.name} has no process {pid}")

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a process by the pid the node knows."""
        os.kill(self.outer_pid(pid), number)

    def ps(self) -> str:
        """One line a process: pid, state, command line."""
        lines = []
        for process in sorted(self._sandbox.processes(), key=lambda one: one.pid):
            try:
                state = Path(f"/proc/{process.outer}/stat").read_text().rpartition(")")[2].split()[0]
                command = Path(f"/proc/{process.outer}/cmdline").read_text(errors="replace").replace("\0", " ")
            except OSError:
                continue  # gone since the listing
            lines.append(f"{process.pid:>7} {state} {command or '[' + processes.name_of(process.outer) + ']'}")
        return "\n".join(lines)

    # Network

    def down(self) -> None:
        """Unplug the node: nobody is told, packets vanish. Needs namespaces mode."""
        self._namespaces("unplugging a node").set_link("down")

    def up(self) -> None:
        """Plug the node in again."""
        self._namespaces("plugging a node").set_link("up")

    def _namespaces(self, what: str) -> NamespaceSandbox:
        if not isinstance(self._sandbox, NamespaceSandbox):
            raise RigUnavailable(f"{what} needs namespaces mode")
        return self._sandbox

    # Server

    def stop_sshd(self, sessions: bool = False) -> None:
        """Stop listening; with `sessions` also end every connection, as a reboot would."""
        self._server.stop(sessions)

    def start_sshd(self) -> None:
        """Listen again; it does when this returns."""
        self._server.start()

    def change_host_key(self) -> None:
        """Give the node another host key, as a reinstallation does; known_hosts keeps the old one."""
        self._server.stop()
        self._server.change_host_key()
        self._server.start()

    def host_key(self) -> str | None:
        """The public host key now in use ("ssh-ed25519 AAAA…"); None for a node without an SSH server."""
        return self._server.host_key()

    def logins(self) -> int:
        """How many logins the server has accepted so far."""
        return self._server.logins()

    def log(self) -> str:
        """The server's log."""
        return self._server.log()

    def ssh_argv(self, key: Path, known_hosts: Path, *options: str) -> list[str]:
        """The ssh(1) command line that reaches this node without reading any configuration; append the command."""
        argv = [tool("ssh"), "-F", "none", "-i", str(key), "-p", str(self.port)]
        settings = (
            f"UserKnownHostsFile={known_hosts}",
            "GlobalKnownHostsFile=none",
            "StrictHostKeyChecking=yes",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "BatchMode=yes",
            "ConnectTimeout=5",
        )
        for setting in (*options, *settings):  # ssh takes the first value it sees
            argv += ["-o", setting]
        return [*argv, f"{self.user}@{self.address}", "--"]
