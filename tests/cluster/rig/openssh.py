"""An OpenSSH server with its own configuration, host key and log."""

import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import keys, processes
from .claims import FILTER_VARIABLE
from .detect import tool
from .kinds import BANNER, SHELL_NOISE, Kind
from .sandbox import Sandbox

START_DEADLINE_S = 60.0
# Sufficient for any account: a PAM service that only checks the password of /etc/shadow.
PAM_SERVICE = """auth required pam_unix.so nodelay
account required pam_permit.so
session required pam_permit.so
"""

_NOISY_SHELL = """#!/bin/sh
cat "$(dirname "$0")/noise"
echo "Lmod: 3 modules were reloaded" >&2
exec "${SHELL:-/bin/sh}" -c "$SSH_ORIGINAL_COMMAND"
"""
_HANGING_SHELL = """#!/bin/sh
exec sleep 86400
"""


@dataclass
class Settings:
    """How a node's server listens and authenticates."""

    address: str
    port: int
    kind: Kind
    max_startups: str
    extra: tuple[str, ...] = field(default=())  # lines of sshd_config, which override those below
    pam: bool = False  # keyboard-interactive through PAM; needs root


def sshd_config(sandbox: Sandbox, settings: Settings) -> str:
    inside = sandbox.inside
    variables = " ".join(f'"{name}={value}"' for name, value in sandbox.variables.items())
    password = settings.kind.login == "password"
    lines = [
        *settings.extra,
        f"ListenAddress {settings.address}",
        f"Port {settings.port}",
        f"HostKey {inside}/host_key",
        f"PidFile {inside}/sshd.pid",
        f"AuthorizedKeysFile {inside}/authorized_keys",
        f"PubkeyAuthentication {'no' if password else 'yes'}",
        f"PasswordAuthentication {'yes' if password else 'no'}",
        f"KbdInteractiveAuthentication {'yes' if password and settings.pam else 'no'}",
        f"UsePAM {'yes' if password and settings.pam else 'no'}",
        f"MaxStartups {settings.max_startups}",
        "MaxSessions 100",
        "StrictModes no",
        "PermitRootLogin yes",
        "UseDNS no",
        "PrintMotd no",
        "LogLevel VERBOSE",
        "Subsystem sftp internal-sftp",
        f"SetEnv {variables}",
    ]
    if settings.kind.shell == "noisy":
        lines += [f"Banner {inside}/banner", f"ForceCommand {inside}/shell"]
    elif settings.kind.shell == "hangs":
        lines.append(f"ForceCommand {inside}/shell")
    return "\n".join(lines) + "\n"


def write_shell(folder: Path, kind: Kind) -> None:
    """The command that replaces all others, for node kinds whose shell is not plain."""
    scripts = {"noisy": _NOISY_SHELL, "hangs": _HANGING_SHELL}
    if kind.shell in scripts:
        (folder / "banner").write_text(BANNER)
        (folder / "noise").write_text(SHELL_NOISE)
        shell = folder / "shell"
        shell.write_text(scripts[kind.shell])
        shell.chmod(0o755)


class OpenSshServer:
    """sshd in a sandbox; `stop` ends the listener and, optionally, its sessions."""

    def __init__(self, sandbox: Sandbox, settings: Settings) -> None:
        self._sandbox = sandbox
        self.settings = settings
        self._log = sandbox.folder / "sshd.log"
        self._daemon: subprocess.Popen | None = None
        self._sessions: dict[int, int | None] = {}  # pid: start time, because pids are reused

    def prepare(self) -> None:
        keys.make(self._sandbox.folder / "host_key")
        write_shell(self._sandbox.folder, self.settings.kind)
        self._log.touch()

    def host_key(self) -> str:
        return keys.public_line(self._sandbox.folder / "host_key")

    def change_host_key(self) -> None:
        keys.remove(self._sandbox.folder / "host_key")
        keys.make(self._sandbox.folder / "host_key")

    def start(self) -> None:
        """Start sshd; it is listening when this returns. OSError with sshd's message if it fails."""
        inside = self._sandbox.inside
        (self._sandbox.folder / "sshd_config").write_text(sshd_config(self._sandbox, self.settings))
        offset = len(self.log())
        self._daemon = self._sandbox.spawn(
            [tool("sshd"), "-D", "-f", f"{inside}/sshd_config", "-E", f"{inside}/sshd.log"],
            env={FILTER_VARIABLE: ""},  # the server is not one of the node's processes; SetEnv marks what it starts
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + START_DEADLINE_S
        while "Server listening on" not in self.log()[offset:]:
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                self._daemon.kill()
                raise OSError(f"sshd does not start: {self.log()[offset:]} {self._daemon.stderr.read()}")
            time.sleep(0.005)

    def stop(self, sessions: bool = False) -> None:
        if self._daemon is not None:
            self._stop_listening()
        if sessions:
            processes.end(pid for pid, ticks in self._sessions.items() if processes.start_ticks(pid) == ticks)
            self._sessions.clear()

    def _stop_listening(self) -> None:
        self._sessions |= {
            pid: processes.start_ticks(pid)
            for pid in processes.descendants(self._daemon.pid)
            if processes.name_of(pid).startswith("sshd")
        }
        self._daemon.terminate()
        self._daemon.wait(START_DEADLINE_S)
        self._daemon.stderr.close()
        self._daemon = None

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def logins(self) -> int:
        """Number of successful logins so far."""
        # "Accepted key" only means that a key would be accepted.
        return len(re.findall(r"^Accepted (?!key )", self.log(), re.MULTILINE))
