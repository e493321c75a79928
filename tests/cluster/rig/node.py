"""One node of the rig: operations and queries for tests."""

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
    """A node with its address, server and processes. The rig creates, starts and stops it."""

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
        self.behind = behind  # the bastion in front of this node
        self.password = password  # accepted by a password_only node; None if no password is
        self._sandbox = sandbox
        self._server = server

    @property
    def folder(self) -> Path:
        """A folder shared by the node and the test; `inside` is its path on the node."""
        return self._sandbox.folder

    @property
    def inside(self) -> str:
        return self._sandbox.inside

    @property
    def process_filter(self) -> str | None:
        """A filter that selects this node's processes; None if the node has its own process table."""
        token = self._sandbox.variables.get(FILTER_VARIABLE)
        return f"env:{FILTER_VARIABLE}={token}" if token else None

    def start(self) -> None:
        """For the rig: start everything; the server is listening when this returns."""
        self._server.prepare()
        self._sandbox.start()
        self._server.start()

    def stop(self) -> None:
        """For the rig: stop everything; nothing of the node is left when this returns."""
        self._server.stop(sessions=True)
        self._sandbox.stop()

    # Processes

    def run(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, user: str | int | None = None, **popen: Any
    ) -> subprocess.Popen:
        """Start a process on the node, with a login's environment plus `env`; it is killed with the rig at the latest.

        The Popen is the process: its pid (in the test's namespace), signals and exit status are real. `user` is an
        account of the nodes ("ops", "other") or a bare uid, and needs namespaces mode. `popen` is for subprocess.Popen.
        """
        return self._sandbox.spawn(argv, env, user, **popen)

    def output(self, argv: Sequence[str], deadline_s: float = 60.0, **options: Any) -> str:
        """A command's stdout on the node; CalledProcessError if it fails, TimeoutExpired past the deadline."""
        with self.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, **options) as process:
            try:
                output, _ = process.communicate(timeout=deadline_s)
            finally:
                process.kill()
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode, argv, output)
        return output

    def processes(self) -> list[int]:
        """Pids on the node, in its namespace; without namespaces those with the filter variable."""
        return sorted(process.pid for process in self._sandbox.processes())

    def outer_pid(self, pid: int) -> int:
        """The pid of a node's process in the test's namespace; ProcessLookupError if it is gone."""
        for process in self._sandbox.processes():
            if process.pid == pid:
                return process.outer
        raise ProcessLookupError(f"{self.name} has no process {pid}")

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a process by its pid on the node."""
        os.kill(self.outer_pid(pid), number)

    def ps(self) -> str:
        """One line per process: pid, state, command line."""
        lines = []
        for process in sorted(self._sandbox.processes(), key=lambda entry: entry.pid):
            try:
                state = Path(f"/proc/{process.outer}/stat").read_text().rpartition(")")[2].split()[0]
                command = Path(f"/proc/{process.outer}/cmdline").read_text(errors="replace").replace("\0", " ")
            except OSError:
                continue  # it ended after the listing
            lines.append(f"{process.pid:>7} {state} {command or '[' + processes.name_of(process.outer) + ']'}")
        return "\n".join(lines)

    # Network

    def down(self) -> None:
        """Disconnect the node: packets are dropped silently. Needs namespaces mode."""
        self._namespaces("unplugging a node").set_link("down")

    def up(self) -> None:
        """Reconnect the node."""
        self._namespaces("plugging a node").set_link("up")

    def _namespaces(self, action: str) -> NamespaceSandbox:
        if not isinstance(self._sandbox, NamespaceSandbox):
            raise RigUnavailable(f"{action} needs namespaces mode")
        return self._sandbox

    # Server

    def stop_sshd(self, sessions: bool = False) -> None:
        """Stop listening; with `sessions` also close every connection, as a reboot would."""
        self._server.stop(sessions)

    def start_sshd(self) -> None:
        """Listen again; the server is listening when this returns."""
        self._server.start()

    def change_host_key(self) -> None:
        """Replace the node's host key, as a reinstallation does; known_hosts keeps the old one."""
        self._server.stop()
        self._server.change_host_key()
        self._server.start()

    def host_key(self) -> str | None:
        """The current public host key ("ssh-ed25519 AAAA…"); None for a node without an SSH server."""
        return self._server.host_key()

    def logins(self) -> int:
        """Number of logins that the server has accepted so far."""
        return self._server.logins()

    def log(self) -> str:
        """The server's log."""
        return self._server.log()

    def ssh_argv(self, key: Path, known_hosts: Path, *options: str) -> list[str]:
        """The ssh(1) command line that reaches this node without any configuration file; append the command."""
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
        for setting in (*options, *settings):  # ssh uses the first value of an option
            argv += ["-o", setting]
        return [*argv, f"{self.user}@{self.address}", "--"]
