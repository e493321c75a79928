"""Processes on one GPU, each with its rank."""

from ..proc.procfs import ProcFs, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..proc.procfs import Stat
    from ..samplers.process_snapshot import RankRef
    from .call import NvmlDevice

REFRESH_S = 2.0
#: nvml.h, NVML_SUCCESS and NVML_ERROR_NOT_FOUND: the GPU was idle since the last reading. pynvml raises both.
_NO_SAMPLES = (0, 6)
_MAX_ANCESTORS = 64
_KINDS = (
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),  # last: such a process may be listed as compute too
)


class GpuProcesses(object):
    """Reads one GPU's processes every two seconds; returns the changes."""

    def __init__(self, device: "NvmlDevice", index: int, uuid: str, proc: str) -> None:
        self._device = device
        self._index = index
        self._uuid = uuid
        self._procfs = ProcFs(proc)
        self._due = 0.0
        self._newest = 0  # the driver's time of the newest utilisation sample, µs
        self._records: "dict[int, dict[str, Any]]" = {}  # pid: fields of its last record

    def read(self, now: float, ranks: "Iterable[RankRef]") -> "list[dict[str, Any]]":
        """`gpu_process` fields that changed. `ranks` are those of this node. Raises GpuLost."""
        if now < self._due:
            return []
        self._due = now + REFRESH_S - 0.1
        shares = self._shares()
        processes: "dict[int, tuple[str, int | None]]" = {}
        for kind, name in _KINDS:
            listed = self._device.call(("gpu_process." + kind,), name)
            if listed is None:  # unknown: keep the previous ones
                processes.update(self._previous(kind))
                continue
            for process in listed:
                processes[process.pid] = (kind, process.usedGpuMemory)
        matcher = RankMatcher(ranks, self._procfs, self._index, self._uuid)
        return self._changes(
            {pid: self._fields(pid, listed, shares.get(pid), matcher) for pid, listed in processes.items()}
        )

    def _previous(self, kind: str) -> "dict[int, tuple[str, int | None]]":
        """{pid: (kind, memory)} of the processes of that kind at the last reading."""
        return {
            pid: (kind, record["mem_used_bytes"]) for pid, record in self._records.items() if record["type"] == kind
        }

    def clear(self) -> "list[dict[str, Any]]":
        """Mark every process as gone, because the GPU is; returns the changes."""
        return self._changes({})

    def _changes(self, records: "dict[int, dict[str, Any]]") -> "list[dict[str, Any]]":
        changed = [record for pid, record in records.items() if self._records.get(pid) != record]
        changed.extend(dict(record, gone=True) for pid, record in self._records.items() if pid not in records)
        self._records = records
        return changed

    def _fields(
        self, pid: int, listed: "tuple[str, int | None]", share: "float | None", ranks: "RankMatcher"
    ) -> "dict[str, Any]":
        start_ticks, comm, rank, source = ranks.match(pid)
        kind, memory = listed
        return {
            "index": self._index,
            "uuid": self._uuid,
            "pid": pid,
            "type": kind,
            "start_ticks": start_ticks,
            "comm": comm,
            "mem_used_bytes": memory,
            "sm_pct": share,
            "job": rank.job if rank else None,
            "attempt": rank.attempt if rank else None,
            "rank": rank.rank if rank else None,
            "rank_source": source,
        }

    def _shares(self) -> "dict[int, float]":
        """{pid: SM utilisation since the last reading, percent} of the processes that the driver lists."""
        device, field = self._device, ("gpu_process.sm_pct",)
        if device.is_disabled(field[0]):
            return {}
        nvml = device.nvml
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(device.handle, self._newest)
        except AttributeError:
            device.mark_unsupported(field, "this binding has no nvmlDeviceGetProcessUtilization")
            return {}
        except nvml.NVMLError as error:
            code = getattr(error, "value", None)
            if code not in _NO_SAMPLES:
                device.record_failure(field, code, str(error))
            return {}
        of_pid: "dict[int, list[int]]" = {}
        for sample in samples:
            self._newest = max(self._newest, sample.timeStamp)
            if sample.pid and sample.smUtil <= 100:  # unused array entries are undefined
                of_pid.setdefault(sample.pid, []).append(sample.smUtil)
        return {pid: round(sum(values) / float(len(values)), 1) for pid, values in of_pid.items()}


class RankMatcher(object):
    """Maps a pid reported by the driver, of whatever PID namespace, to its rank."""

    def __init__(self, ranks: "Iterable[RankRef]", procfs: "ProcFs", index: int, uuid: str) -> None:
        ranks = list(ranks)
        self._by_pid = {rank.pid: rank for rank in ranks}
        self._by_ns_pid = _unique((rank.ns_pid, rank) for rank in ranks if rank.ns_pid is not None)
        on_device = [rank for rank in ranks if rank.gpu in (uuid, str(index))]
        self._of_device = on_device[0] if len(on_device) == 1 else None
        self._procfs = procfs

    def match(self, pid: int) -> "tuple[int | None, str | None, RankRef | None, str | None]":
        """(start_ticks, comm, rank, `rank_source`) of a process; None for each that is unknown."""
        try:
            stat = self._procfs.stat(pid)
        except OSError:
            # not in this PID namespace: a pid of a container, or of the host of this container
            if pid in self._by_ns_pid:
                return None, None, self._by_ns_pid[pid], "ns_pid"
            return None, None, self._of_device, "device" if self._of_device else None
        comm = printable(stat.comm, 64)
        if pid in self._by_pid:
            return stat.start_ticks, comm, self._by_pid[pid], "pid"
        rank = self._of_ancestor(stat)
        return stat.start_ticks, comm, rank, "parent" if rank else None

    def _of_ancestor(self, stat: "Stat") -> "RankRef | None":
        for _ in range(_MAX_ANCESTORS):
            if stat.ppid in self._by_pid:
                return self._by_pid[stat.ppid]
            if stat.ppid <= 1:
                return None
            try:
                stat = self._procfs.stat(stat.ppid)
            except OSError:
                return None
        return None


def _unique(pairs: "Iterable[tuple[int, RankRef]]") -> "dict[int, RankRef]":
    """{key: value} of the keys that occur once: two containers may use the same pids."""
    values: "dict[int, RankRef | None]" = {}
    for key, value in pairs:
        values[key] = None if key in values else value
    return {key: value for key, value in values.items() if value is not None}
