"""Execution environments of nodes: separate namespaces, or this machine shared with the other nodes."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from . import accounts, network, processes, pythons
from .claims import FILTER_VARIABLE, Claim
from .detect import RigUnavailable
from .namespaces import Namespaces, NodeProcess, start_init

INIT = Path(__file__).with_name("node_init.py")
STOP_DEADLINE_S = 60.0
# Path of the node's folder inside the node, in namespaces mode.
INSIDE = "/run/node"


class Sandbox(Protocol):
    """Starts processes on one node and lists them."""

    folder: Path  # path of the node's folder in the test
    inside: str  # path of the same folder on the node
    address: str
    variables: dict[str, str]  # set for all processes, logins included

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def spawn(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, user: str | int | None = None, **popen: Any
    ) -> subprocess.Popen: ...
    def processes(self) -> list[processes.Process]: ...


class Children:
    """The processes that a sandbox started, killed and reaped with it."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen] = []

    def add(self, child: subprocess.Popen) -> subprocess.Popen:
        self._children = [process for process in self._children if process.poll() is None]
        self._children.append(child)
        return child

    def end(self) -> None:
        for child in self._children:
            child.kill()
        for child in self._children:
            child.wait(STOP_DEADLINE_S)


def _environment(account: accounts.Account, variables: Mapping[str, str], env: Mapping[str, str] | None) -> dict:
    """A login's environment, without variables of the test such as PYTHONPATH or GCONSOLE_*."""
    return {
        "HOME": account.home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": account.shell,
        "LANG": "C.UTF-8",
        **variables,
        **(env or {}),
    }


class SharedSandbox:
    """This machine and account: nodes are distinguished by a variable in their processes' environment."""

    address = "127.0.0.1"

    def __init__(self, name: str, claim: Claim, folder: Path, path: str) -> None:
        self.folder = folder
        self.inside = str(folder)
        self._claim = claim
        self.token = f"{claim.prefix}.{name}"
        # A separate home: the account's shell files would restore the real PATH.
        self._home = folder / "home"
        self.variables = {"HOME": str(self._home), "PATH": path, FILTER_VARIABLE: self.token}
        self._children = Children()

    def start(self) -> None:
        self._home.mkdir()

    def spawn(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, user: str | int | None = None, **popen: Any
    ) -> subprocess.Popen:
        me = accounts.current()
        if user is not None and user not in (me.name, me.uid):
            raise RigUnavailable("another user on a node needs namespaces mode")
        popen.setdefault("cwd", self._home)
        child = NodeProcess(argv, env=_environment(me, self.variables, env), **popen)
        self._claim.note_process(child.pid)
        return self._children.add(child)

    def processes(self) -> list[processes.Process]:
        return processes.with_variable(FILTER_VARIABLE, self.token)

    def stop(self) -> None:
        self._children.end()
        processes.end((process.outer for process in self.processes()), grace_s=0)


class NamespaceSandbox:
    """Network, PID, UTS and mount namespaces of one node, kept alive by its process 1 (`node_init.py`)."""

    def __init__(self, name: str, folder: Path, path: str, ports: list[network.Port], plan: dict) -> None:
        self.folder = folder
        self.inside = INSIDE
        self.address = ports[0].address
        self.variables = {"PATH": path}
        self._name = name
        self._ports = ports
        self._plan = plan
        self._children = Children()
        self._init: subprocess.Popen | None = None
        self._namespaces: Namespaces | None = None

    @property
    def netns(self) -> str:
        return self._ports[0].netns

    def start(self) -> None:
        network_file = network.add_netns(self.netns)
        for port in self._ports:
            port.create()
        self._init = start_init(
            network_file,
            [sys.executable, "-I", "-S", str(INIT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._init.stdin.write(json.dumps({**self._plan, "hostname": self._name}) + "\n")
        self._init.stdin.flush()
        answer = self._init.stdout.readline().strip()
        if answer != "ready":
            raise OSError(f"{self._name}: the node's process 1 failed: {answer or 'see above'}")
        self._namespaces = Namespaces(self._init.pid)

    def spawn(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, user: str | int | None = None, **popen: Any
    ) -> subprocess.Popen:
        account = accounts.find(accounts.current().name if user is None else user)
        if account.uid != os.geteuid():
            popen = {"user": account.uid, "group": account.gid, "extra_groups": [], **popen}
        popen.setdefault("cwd", account.home)
        child = self._namespaces.popen(argv, env=_environment(account, self.variables, env), **popen)
        return self._children.add(child)

    def processes(self) -> list[processes.Process]:
        return processes.in_pid_namespace(self._namespaces.pid_inode) if self._namespaces else []

    def set_link(self, state: str) -> None:
        for port in self._ports:
            port.set(state)

    def stop(self) -> None:
        # The children first: process 1 can only end once they have been reaped, and this process is their parent.
        self._children.end()
        if self._init is not None:
            self._init.kill()
            self._init.wait(STOP_DEADLINE_S)
            self._init.stdin.close()
            self._init.stdout.close()
        if self._namespaces is not None:
            self._namespaces.close()
            self._namespaces = None


def namespace_plan(
    folder: Path, binds: list[tuple[str, str]], home: str, *, home_read_only: bool, noexec: bool, copies: list[list]
) -> dict:
    """The plan for process 1 of the node whose folder is `folder` (see node_init.arrange)."""
    own_home = accounts.current().home
    homes = [own_home] if own_home != "/" else []
    private = [*homes, "/tmp", "/var/tmp", "/home", "/dev/shm", "/run"]
    modes = {"/tmp": "1777", "/var/tmp": "1777", "/dev/shm": "1777"}
    covered = tuple(f"{path}/" for path in private)
    keeps = _outermost([str(path) for path in pythons.visible_prefixes() if f"{path}/".startswith(covered)])
    guests = [[guest.home, guest.uid, guest.gid, 0o755] for guest in accounts.GUESTS]
    home_mount = home if home in private else "/home"
    return {
        "covers": [[path, modes.get(path, "755"), noexec] for path in private if Path(path).is_dir()],
        "keeps": keeps,
        "binds": [[str(folder), INSIDE], *binds],
        "folders": [*guests, ["/run/sshd", 0, 0, 0o755]],
        "copies": copies,
        "read_only": [home_mount] if home_read_only else [],
    }


def _outermost(paths: list[str]) -> list[str]:
    """Paths that are not inside another one."""
    return [path for path in paths if not any(path != other and path.startswith(f"{other}/") for other in paths)]
