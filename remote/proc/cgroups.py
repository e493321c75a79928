"""Limits of a process's cgroup that slow it down: frozen, CPU quota, memory; cgroup v1, v2, and both at once.

The letter in /proc/PID/stat does not tell: a process frozen by v2 is in state S, one frozen by v1 in state D.
"""

import re

from .procfs import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .procfs import ProcFs

    Fields = dict[str, Any]


_NUMBER = re.compile(r"[0-9]{1,19}\Z")


class Cgroups(object):
    """Reads the cgroups of processes; each cgroup once. For one sample of a capture."""

    def __init__(self, procfs: "ProcFs") -> None:
        self._procfs = procfs
        self._mounts: "dict[str, str] | None" = None
        self._read: "dict[str, str | None]" = {}

    def fields(self, pid: int) -> "Fields":
        """Fields of a `stack` record; None where the kernel or its mounts do not tell."""
        paths = self._paths(pid)
        return {} if not paths else {
            "frozen": self._is_frozen(paths), "throttled_s": self._throttled_s(paths),
            "memory_stalled_s": self._memory_stalled_s(paths), "memory_limit_hits": self._memory_limit_hits(paths),
        }  # fmt: skip

    def _paths(self, pid: int) -> "dict[str, str]":
        """Controller → path; "" is v2; {} if unreadable."""
        try:
            lines = self._procfs.read_at_once(pid, "cgroup").decode("utf-8", "replace").splitlines()
        except OSError:
            return {}
        paths: "dict[str, str]" = {}
        for line in lines:  # 6:freezer:/job, 0::/job
            parts = line.split(":", 2)
            if len(parts) == 3:
                paths.update((controller, parts[2]) for controller in parts[1].split(","))
        return paths

    def memory(self, pid: int) -> "tuple[str, int, int] | None":
        """(path, limit, bytes in use) of the cgroup above a process that has the least memory left; None without one.

        Memory of cached files is not in use: the kernel frees it at the limit.
        """
        paths = self._paths(pid)
        controller = "memory" if "memory" in paths else ""
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controller else ("memory.max", "memory.current")
        prefix = "total_" if controller else ""
        path, limits = paths.get(controller, "").rstrip("/"), []
        for _ in range(32):
            level = {controller: path}
            limit, used = (_number(self._text(level, controller, name)) for name in names)
            if limit is not None and used is not None and limit < 1 << 60:  # v1 writes "none" as a large number
                for line in (self._text(level, controller, "memory.stat") or "").splitlines():
                    name, _, value = line.partition(" ")
                    if name in (prefix + "inactive_file", prefix + "active_file"):
                        used -= _number(value) or 0
                limits.append((path or "/", limit, max(0, used)))
            if not path:
                break
            path = path.rpartition("/")[0]
        return min(limits, key=lambda it: it[1] - it[2]) if limits else None

    def _is_frozen(self, paths: "dict[str, str]") -> "bool | None":
        old, new = self._text(paths, "freezer", "freezer.state"), self._text(paths, "", "cgroup.events")
        if old is None and new is None:
            return None
        return old in ("FROZEN", "FREEZING") or "frozen 1" in (new or "").splitlines()

    def _throttled_s(self, paths: "dict[str, str]") -> "float | None":
        for controller, key, per_s in (("cpu", "throttled_time", 1e9), ("", "throttled_usec", 1e6)):
            for line in (self._text(paths, controller, "cpu.stat") or "").splitlines():
                name, _, value = line.partition(" ")
                if name == key and _NUMBER.match(value):
                    return round(int(value) / per_s, 3)
        return None

    def _memory_stalled_s(self, paths: "dict[str, str]") -> "float | None":
        """Time for which all tasks waited for memory: to be freed, or to be read back. Kernels with PSI, v2 only."""
        for line in (self._text(paths, "", "memory.pressure") or "").splitlines():
            kind, _, rest = line.partition(" ")  # full avg10=0.00 avg60=0.00 avg300=0.00 total=0
            total = rest.rpartition("total=")[2]
            if kind == "full" and _NUMBER.match(total):
                return round(int(total) / 1e6, 3)
        return None

    def _memory_limit_hits(self, paths: "dict[str, str]") -> "int | None":
        """How often it reached memory.high or memory.max (v2), or its limit (v1)."""
        old = (self._text(paths, "memory", "memory.failcnt") or "").strip()
        if _NUMBER.match(old):
            return int(old)
        lines = [line.partition(" ") for line in (self._text(paths, "", "memory.events") or "").splitlines()]
        hits = [int(value) for name, _, value in lines if name in ("high", "max") and _NUMBER.match(value)]
        return sum(hits) if hits else None

    def _text(self, paths: "dict[str, str]", controller: str, name: str) -> "str | None":
        mount = self._mount_points().get(controller)
        if mount is None or controller not in paths:
            return None
        path = "%s%s/%s" % (mount, paths[controller].rstrip("/"), name)
        if path not in self._read:
            self._read[path] = read_text(path)  # the root of v2 has no cgroup.events
        return self._read[path]

    def _mount_points(self) -> "dict[str, str]":
        if self._mounts is None:
            mounts: "dict[str, str]" = {}
            for line in (read_text(self._procfs.root + "/self/mounts") or "").splitlines():
                words = line.split()
                if len(words) > 3 and words[2] == "cgroup2":
                    mounts.setdefault("", words[1])
                elif len(words) > 3 and words[2] == "cgroup":
                    for option in words[3].split(","):
                        mounts.setdefault(option, words[1])
            self._mounts = mounts  # only now: several threads read processes at a time
        return self._mounts


def _number(text: "str | None") -> "int | None":
    text = (text or "").strip()
    return int(text) if _NUMBER.match(text) else None
