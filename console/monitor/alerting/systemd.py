"""systemd: the user unit that runs `gconsole watch`, its file, and the messages of the watch to the service manager."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Final

from ...text.atomic_files import make_folder, write_atomically

#: First line of every unit that gconsole wrote; other files are neither replaced nor removed.
MARK: Final = "# Written by gconsole watch --install"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=,@+-]+")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")

_UNIT: Final = """\
{mark}; remove it with: gconsole watch {target} --uninstall
[Unit]
Description=gconsole watch of {cluster}
Documentation=man:gconsole(1)
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
WorkingDirectory={folder}
# Secrets of hosts.toml (env:NAME), one NAME=VALUE per line; mode 0600.
EnvironmentFile=-%h/.config/gconsole/watch.env
Restart=on-failure
RestartSec=10
# 1: findings, 3 and 4: nodes not reached, at the end of a stopped watch. 2: a configuration error, which stays.
SuccessExitStatus=1 3 4 130
RestartPreventExitStatus=2
# The watch reports every second that its loop runs.
WatchdogSec=180
TimeoutStopSec=90

[Install]
WantedBy=default.target
"""


class UnitError(Exception):
    """A unit that cannot be written or removed; the text names the remedy."""


def unit_name(target: str) -> str:
    """The name of the unit of a target: two targets never share one."""
    stem = Path(target).stem if target.endswith(".toml") else target
    readable = _UNSAFE.sub("-", stem).strip("-.")[:40] or "nodes"
    digest = hashlib.sha256(target.encode(errors="surrogateescape")).hexdigest()[:6]
    return f"gconsole-watch-{readable}-{digest}.service"


def unit_path(target: str) -> Path:
    """The file of the unit, in the user's folder of units."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "systemd" / "user" / unit_name(target)


def unit_text(target: str, cluster: str, argv: Sequence[str], folder: Path) -> str:
    """The text of the unit. Raises UnitError for words that a unit cannot express."""
    return _UNIT.format(
        mark=MARK, target=_comment(target), cluster=_comment(cluster).replace("%", "%%"),
        command=" ".join(map(_word, argv)), folder=_path(str(folder)),
    )  # fmt: skip


def install(path: Path, text: str) -> None:
    """Write the unit. Raises UnitError if another program wrote the existing file, and OSError."""
    _require_ours(path)
    make_folder(path.parent)
    write_atomically(path, text.encode())


def uninstall(path: Path) -> bool:
    """Remove the unit; False if there is none. Raises UnitError if another program wrote it, and OSError."""
    _require_ours(path)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def next_steps(path: Path) -> str:
    """The commands that start the installed unit."""
    return (
        f"systemctl --user daemon-reload\nsystemctl --user enable --now {path.name}\n"
        "loginctl enable-linger          # so that it runs while you are logged out\n"
        f"journalctl --user -u {path.name} -f\n"
    )


def removal_steps(path: Path) -> str:
    """The commands that stop a unit before its file is removed."""
    return f"systemctl --user disable --now {path.name}\nsystemctl --user daemon-reload\n"


def _require_ours(path: Path) -> None:
    try:
        with path.open("rb") as file:
            first = file.readline(200)
    except FileNotFoundError:
        return
    if not first.startswith(MARK.encode()):
        raise UnitError(f"{path} was not written by gconsole; move it away first")


def _word(text: str) -> str:
    """One argument of ExecStart: quoted, without specifiers and variables (systemd.service(5), COMMAND LINES)."""
    if "\n" in text or "\0" in text or "\r" in text:
        raise UnitError(f"a line break in {text!r} cannot be written into a unit")
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _path(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise UnitError(f"a line break in {text!r} cannot be written into a unit")
    return text.replace("%", "%%")


def _comment(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:200]


class ServiceNotifier:
    """Sends READY=1 and the like (sd_notify(3)) to the socket in NOTIFY_SOCKET; without it nothing is sent.

    The variable is removed, so that commands of rules do not inherit it.
    """

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        self._socket: socket.socket | None = None
        if self._address[:1] in ("/", "@"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)

    @property
    def is_service(self) -> bool:
        """Whether systemd started this process and awaits its messages."""
        return self._socket is not None

    def send(self, *assignments: str) -> None:
        """Send assignments such as READY=1; a full or closed socket loses them."""
        if self._socket is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        text = "\n".join(line.replace("\n", " ") for line in assignments)
        try:
            self._socket.sendto(text.encode(errors="replace"), address)
        except OSError:
            return

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
