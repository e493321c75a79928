"""Who this node is: read once at the start, and again when a capability turns out to be missing."""

import os
import sys

from ..proc.small_files import read_number, read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..agent.agent import Agent
    from .base import Fields


def node_fields(agent: "Agent") -> "Fields":
    """The fields of the `node` record. Whatever cannot be read is None."""
    uname = os.uname()
    context = agent.context
    return {
        "hostname": uname.nodename,
        "boot_id": read_text("/proc/sys/kernel/random/boot_id") or "",
        "kernel": uname.release,
        "arch": uname.machine,
        "python": "%d.%d.%d" % sys.version_info[:3],
        "os": _pretty_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "mem_total_bytes": _mem_total(),
        "uid": os.geteuid(),
        "user": user_name(os.geteuid()),
        "pid": os.getpid(),
        "sample_interval_ms": int(context.interval_s * 1000),
        "ptrace_scope": read_number("/proc/sys/kernel/yama/ptrace_scope"),
        "capabilities": _capabilities(agent),
        "missing": list(agent.missing),
        "simulated": bool(context.simulate_gpus),
    }


def user_name(uid: int) -> "str | None":
    """The login name of a uid, or None where it has none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _capabilities(agent: "Agent") -> "list[str]":
    capabilities = []
    if agent.context.psutil is not None:
        capabilities.append("psutil")
    if os.path.isdir("/proc/pressure"):
        capabilities.append("psi")
    if agent.context.simulate_gpus:
        capabilities.append("simulate")
    if agent.place.root:
        capabilities.append("cache")
    return capabilities


def _pretty_name() -> "str | None":
    for line in (read_text("/etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.split("=", 1)[1].strip("\"'")
    return None


def _mem_total() -> "int | None":
    for line in (read_text("/proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None
