"""Detects the mode of rig that works on this machine, and what is missing for the better ones."""

import functools
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MODES = ("namespaces", "loopback", "asyncssh")
# sshd and ip are often outside an ordinary PATH.
TOOL_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"))


class RigUnavailable(Exception):
    """A feature that the rig cannot provide on this machine; the text names what is missing and is the skip reason."""


@dataclass(frozen=True)
class Mode:
    """The selected mode, and why not a better one."""

    name: str
    why: str


def tool(name: str) -> str:
    """The path of an installed program; RigUnavailable if it is missing."""
    path = shutil.which(name, path=TOOL_PATH)
    if path is None:
        raise RigUnavailable(f"{name} is not installed")
    return path


def pick_mode(wanted: str | None = None) -> Mode:
    """The best mode that works here; `wanted` (or $GCT_RIG_MODE) selects one by name or raises RigUnavailable."""
    wanted = wanted or os.environ.get("GCT_RIG_MODE")
    if wanted:
        missing = missing_for(wanted)
        if missing:
            raise RigUnavailable(f"{wanted}: {missing}")
        return Mode(wanted, "asked for")
    shortcomings = []
    for name in MODES:
        missing = missing_for(name)
        if missing is None:
            return Mode(name, "; ".join(shortcomings) or "root, ip netns works, OpenSSH is installed")
        shortcomings.append(f"no {name}: {missing}")
    raise RigUnavailable("; ".join(shortcomings))


@functools.cache
def missing_for(mode: str) -> str | None:
    """What this machine lacks for `mode`; None if it works."""
    checks = {"namespaces": _namespaces, "loopback": _loopback, "asyncssh": _asyncssh}
    if mode not in checks:
        raise ValueError(f"unknown mode {mode!r}: {', '.join(MODES)}")
    try:
        checks[mode]()
    except RigUnavailable as error:
        return str(error)
    return None


def _openssh() -> None:
    for name in ("sshd", "ssh", "ssh-keygen"):
        try:
            tool(name)
        except RigUnavailable:
            raise RigUnavailable(f"no OpenSSH ({name} is not installed)") from None


def _namespaces() -> None:
    if not sys.platform.startswith("linux"):
        raise RigUnavailable("not Linux")
    if os.geteuid() != 0:
        raise RigUnavailable("no root")
    _openssh()
    try:
        tool("ip")
    except RigUnavailable:
        raise RigUnavailable("no iproute2 (ip is not installed)") from None
    from . import namespace_probe

    try:
        namespace_probe.run()
    except (OSError, subprocess.CalledProcessError) as error:
        raise RigUnavailable(f"root, but namespaces do not work here: {error}") from error


def _loopback() -> None:
    _openssh()
    _process_table()
    try:
        account = pwd.getpwuid(os.getuid())
    except KeyError:
        raise RigUnavailable(f"uid {os.getuid()} has no account, sshd would refuse it") from None
    if Path(account.pw_shell).name in ("nologin", "false"):
        raise RigUnavailable(f"the account {account.pw_name} has no login shell")


def _asyncssh() -> None:
    _process_table()
    if importlib.util.find_spec("asyncssh") is None:
        raise RigUnavailable("no asyncssh")


def _process_table() -> None:
    if not Path("/proc/self/environ").exists():
        raise RigUnavailable("no /proc")
