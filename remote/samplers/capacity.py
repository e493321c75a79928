"""What can fill up: file systems, and the memory limits of the cgroups of ranks, as `capacity` records."""

from collections import deque

from ..proc.cgroups import Cgroups
from ..proc.file_systems import FileSystems
from ..proc.procfs import ProcFs, printable
from .base import Counters, Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque, Iterator

    from .base import Context, Fact, Fields

#: Seconds between two questions to servers, and the time over which growth is measured: at least, at most.
NETWORK_EVERY_S, GROWTH_S, LONGEST_S = 30.0, 20.0, 300.0
_COUNTERS = ("requests", "retransmits", "queued")


class CapacitySampler(Sampler):
    """One `capacity` record per file system and per memory limit; `gone` when it is no longer there."""

    name = "capacity"
    finest_s = 10.0

    def __init__(self, context: "Context") -> None:
        super(CapacitySampler, self).__init__(context)
        self._procfs = ProcFs(context.proc)
        self._file_systems = FileSystems(context.proc)
        self._counters = Counters()
        self._past: "dict[tuple[str, str], Deque[tuple[float, int]]]" = {}
        self._network: "dict[str, Fields]" = {}  # the newest records of network file systems, by path
        self._due = 0.0

    def tick(self, now: float) -> "Iterator[Fact]":
        """Yield one record each."""
        is_due = now >= self._due
        if is_due:
            self._due, self._network = now + NETWORK_EVERY_S, {}
        present = set()
        records = self._file_systems.read(is_due) + list(self._memory_limits())
        for fields in records:
            key = (fields["type"], fields["path"])
            if fields.get("is_network"):
                self._network[fields["path"]] = fields
            for name in _COUNTERS:
                if name in fields:
                    fields[name + "_s"] = self._counters.rate((key, name), fields.pop(name), 64, now)
            present.add(key)
            fields["growth_bytes_s"] = self._growth(key, now, fields.get("available_bytes"))
            yield "capacity", fields
        present.update(("file_system", path) for path in self._network)
        for key in [key for key in self._past if key not in present]:
            del self._past[key]
            yield "capacity", {"type": key[0], "path": key[1], "gone": True}

    def _growth(self, key: "tuple[str, str]", now: float, available: "int | None") -> "float | None":
        """Bytes per second by which less is available; None until it was watched for `GROWTH_S`."""
        past = self._past.setdefault(key, deque())
        if available is None:
            past.clear()
            return None
        while past and now - past[0][0] > LONGEST_S:
            past.popleft()
        past.append((now, available))
        elapsed = now - past[0][0]
        return (past[0][1] - available) / elapsed if elapsed >= GROWTH_S else None

    def _memory_limits(self) -> "Iterator[Fields]":
        snapshot = self.context.shared.get("processes")
        cgroups, seen = Cgroups(self._procfs), set()
        for rank in snapshot.ranks if snapshot is not None else ():
            memory = cgroups.memory(rank.pid)
            if memory is not None and memory[0] not in seen:
                seen.add(memory[0])
                path, limit, used = memory
                yield {"type": "cgroup_memory", "path": printable(path, 256), "total_bytes": limit,
                       "available_bytes": max(0, limit - used), "job": rank.job}  # fmt: skip
