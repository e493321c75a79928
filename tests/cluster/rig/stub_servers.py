"""Servers that replace sshd on failing nodes: one that hangs, one that throttles, none at all."""

import subprocess
import sys
from pathlib import Path
from typing import Protocol

from .sandbox import Sandbox

SCRIPT = Path(__file__).with_name("stub_server.py")
STOP_DEADLINE_S = 60.0


class Server(Protocol):
    """The SSH server of a node."""

    def prepare(self) -> None: ...
    def start(self) -> None: ...
    def stop(self, sessions: bool = False) -> None: ...
    def host_key(self) -> str | None: ...
    def change_host_key(self) -> None: ...
    def log(self) -> str: ...
    def logins(self) -> int: ...


class NoServer:
    """No process listens."""

    def prepare(self) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self, sessions: bool = False) -> None:
        pass

    def host_key(self) -> str | None:
        return None

    def change_host_key(self) -> None:
        raise ValueError("this kind of node has no SSH server")

    def log(self) -> str:
        return ""

    def logins(self) -> int:
        return 0


class StubServer(NoServer):
    """A process that accepts and hangs or throttles; the real server may be behind it."""

    def __init__(
        self, sandbox: Sandbox, address: str, port: int, behaviour: tuple[str, ...], behind: Server | None = None
    ) -> None:
        self._sandbox = sandbox
        self._argv = [sys.executable, "-I", "-S", str(SCRIPT), address, str(port), *behaviour]
        self._process: subprocess.Popen | None = None
        self._behind = behind or NoServer()
        self.host_key = self._behind.host_key
        self.change_host_key = self._behind.change_host_key
        self.log = self._behind.log
        self.logins = self._behind.logins

    def prepare(self) -> None:
        self._behind.prepare()

    def start(self) -> None:
        self._behind.start()
        self._process = self._sandbox.spawn(self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if self._process.stdout.readline().strip() != "listening":
            raise OSError(f"the stub server does not start: {self._argv}")

    def stop(self, sessions: bool = False) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_DEADLINE_S)
            self._process.stdout.close()
            self._process = None
        self._behind.stop(sessions)
