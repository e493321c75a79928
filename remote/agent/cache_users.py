"""The agents that use a cache folder: each keeps a small file in its `run` folder while it lives.

A file whose process is gone (by pid and start time) is a leftover. One from another boot, machine or container may be
in use there (a cache on a shared home): it is kept and reported.
"""

import json
import os
import signal
import time

from . import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..gateway.gateway import Gateway
    from ..samplers.base import Fields
    from .agent import Agent
    from .cache import Cache


def register(place: "Cache", agent: "Agent | Gateway", label: str) -> "str | None":
    """Write this agent's file; returns its path, or None without a cache. Raises OSError."""
    folder = place.folder("run")
    if folder is None:
        return None
    path = os.path.join(folder, agent.id + ".who")
    fact = {
        "agent": agent.id,
        "console": agent.console,
        "label": label,
        "pid": os.getpid(),
        "start_ticks": start_ticks(os.getpid()),
        "boot_id": boot_id(),
        "pid_ns": pid_ns(),
        "hostname": os.uname().nodename,
        "since": int(time.time()),
        "linger_s": agent.linger_s,
    }
    draft = path + ".draft"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
        json.dump(fact, f)
    os.rename(draft, path)  # atomic: an incomplete file would count as a leftover
    return path


def withdraw(path: "str | None") -> None:
    """Remove the file of `register`, if it still exists."""
    if path is not None:
        try:
            os.unlink(path)
        except OSError:
            pass  # already removed by `clean`, or the file system is gone


def users(root: str) -> "tuple[list[Fields], list[str]]":
    """(living, leftovers): facts of the agents that use the cache at `root`, and paths of the files of ended ones."""
    folder = os.path.join(root, "run")
    living, leftovers = [], []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        if not name.endswith(".who"):
            continue
        try:
            with open(path) as f:
                fact = json.load(f)
            here = fact["boot_id"] == boot_id() and fact.get("pid_ns", pid_ns()) == pid_ns()
            if here and not _lives(fact["pid"], fact["start_ticks"]):
                leftovers.append(path)
            else:
                living.append(dict(fact, here=here))
        except (OSError, ValueError, KeyError, TypeError):
            leftovers.append(path)  # incomplete after a crash
    return living, leftovers


def end(fact: "Fields", timeout_s: float = 3.0) -> bool:
    """SIGTERM the agent of one living user, which has our own uid; True if it ends within `timeout_s`."""
    if not _lives(fact["pid"], fact["start_ticks"]):
        return True
    try:
        os.kill(fact["pid"], signal.SIGTERM)
    except OSError:
        pass  # gone, or no permission: checked below
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not _lives(fact["pid"], fact["start_ticks"]):
            return True
        time.sleep(0.02)
    return False


def end_own(root: "str | None", console: str) -> None:
    """End the agents of one console on this system that use the cache at `root`, also those that do not respond."""
    if root is None:
        return
    for fact in users(root)[0]:
        is_own = fact.get("console") == console and fact.get("hostname", os.uname().nodename) == os.uname().nodename
        if is_own and fact["here"] and not end(fact, 1.0):
            try:
                os.kill(fact["pid"], signal.SIGKILL)
            except OSError:
                continue  # gone, or no permission
            withdraw(os.path.join(root, "run", os.path.basename(str(fact.get("agent"))) + ".who"))


def _lives(pid: "Any", ticks: "Any") -> bool:
    """Whether that process lives. A pid below 2 would be all processes, or the own group, to kill(2)."""
    return isinstance(pid, int) and pid > 1 and ticks is not None and start_ticks(pid) == ticks


def start_ticks(pid: int) -> "int | None":
    """Start time of a process in clock ticks after boot (field 22 of its stat), or None if it does not exist."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as f:
            return int(f.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def pid_ns() -> "str | None":
    """The PID namespace of this process: containers of one machine may share a cache, but not their pids."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def system_id() -> str:
    """Identity of this system among those that may share a folder: boot, PID namespace and hostname, as hex digits."""
    return cache.short_name(boot_id(), pid_ns() or "", os.uname().nodename)


def socket_name(console: str) -> str:
    """Name of the socket of a console's lingering agent on this system; short, as a socket's path is limited to 107."""
    return cache.short_name(console, system_id()) + ".sock"


def boot_id() -> str:
    """The random id of this boot."""
    with open("/proc/sys/kernel/random/boot_id") as f:
        return f.read().strip()
