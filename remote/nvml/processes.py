"""The processes on one GPU, with the rank each one belongs to."""

from ..proc.procfs import ProcFs, printable

EVERY_S = 2.0
_NOT_FOUND = 6  # nobody has used the GPU since the last look
_DEEPEST = 64  # no chain of parents is followed further
_KINDS = (
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),  # last: such a process may be listed as compute too
)


class Occupants(object):
    """Reads one GPU's processes every two seconds; says what is new, different or gone."""

    def __init__(self, asker, index, uuid, proc):
        self._asker = asker
        self._index = index
        self._uuid = uuid
        self._procfs = ProcFs(proc)
        self._due = 0.0
        self._newest = 0  # the driver's time of the newest share, µs
        self._told = {}  # pid: the fields of its last record

    def read(self, now, ranks):
        """The `gpu_process` fields that changed. `ranks` are the RankRef of this node. Raises Lost."""
        if now < self._due:
            return []
        self._due = now + EVERY_S - 0.1
        shares = self._shares()
        found = {}
        for kind, name in _KINDS:
            listed = self._asker.ask(("gpu_process." + kind,), name)
            if listed is None:  # nobody knows: those of before have not gone for that
                found.update(self._before(kind))
                continue
            for process in listed:
                found[process.pid] = (kind, process.usedGpuMemory)
        ranks = Ranks(ranks, self._procfs, self._index, self._uuid)
        fields = {pid: self._fields(pid, found[pid], shares.get(pid), ranks) for pid in found}
        return self._changes(fields)

    def _before(self, kind):
        """{pid: (kind, memory)} of the processes of that kind that were told last."""
        return {pid: (kind, one["mem_used_bytes"]) for pid, one in self._told.items() if one["type"] == kind}

    def gone(self):
        """The last word on every process, when the GPU itself is gone."""
        return self._changes({})

    def _changes(self, fields):
        changed = [one for pid, one in fields.items() if self._told.get(pid) != one]
        changed.extend(dict(one, gone=True) for pid, one in self._told.items() if pid not in fields)
        self._told = fields
        return changed

    def _fields(self, pid, listed, share, ranks):
        start_ticks, comm, rank, source = ranks.of(pid)
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

    def _shares(self):
        """{pid: share of the SMs since the last look, in percent}, of the processes that the driver names."""
        asker, field = self._asker, ("gpu_process.sm_pct",)
        if asker.gave_up(field[0]):
            return {}
        nvml = asker.nvml
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(asker.handle, self._newest)
        except AttributeError:
            asker.refuse(field, "this binding has no nvmlDeviceGetProcessUtilization")
            return {}
        except nvml.NVMLError as error:
            code = getattr(error, "value", None)
            if code != _NOT_FOUND:
                asker.fail(field, code, str(error))
            return {}
        of_pid = {}
        for sample in samples:
            self._newest = max(self._newest, sample.timeStamp)
            if sample.pid and sample.smUtil <= 100:  # the driver fills the rest of its array with rubbish
                of_pid.setdefault(sample.pid, []).append(sample.smUtil)
        return {pid: round(sum(values) / float(len(values)), 1) for pid, values in of_pid.items()}


class Ranks(object):
    """Finds the rank of a process that the driver names by a pid, whoever counted that pid."""

    def __init__(self, ranks, procfs, index, uuid):
        self._by_pid = {rank.pid: rank for rank in ranks}
        self._by_ns_pid = _single((rank.ns_pid, rank) for rank in ranks if rank.ns_pid is not None)
        here = [rank for rank in ranks if rank.gpu in (uuid, str(index))]
        self._of_device = here[0] if len(here) == 1 else None
        self._procfs = procfs

    def of(self, pid):
        """(start_ticks, comm, rank, how it was found) of a process; None for each that is not known."""
        try:
            stat = self._procfs.stat(pid)
        except OSError:
            # not in this view of the processes: the driver spoke a pid of a container, or of the host around this one
            if pid in self._by_ns_pid:
                return None, None, self._by_ns_pid[pid], "ns_pid"
            return None, None, self._of_device, "device" if self._of_device else None
        comm = printable(stat.comm, 64)
        if pid in self._by_pid:
            return stat.start_ticks, comm, self._by_pid[pid], "pid"
        rank = self._above(stat)
        return stat.start_ticks, comm, rank, "parent" if rank else None

    def _above(self, stat):
        for _ in range(_DEEPEST):
            if stat.ppid in self._by_pid:
                return self._by_pid[stat.ppid]
            if stat.ppid <= 1:
                return None
            try:
                stat = self._procfs.stat(stat.ppid)
            except OSError:
                return None
        return None


def _single(pairs):
    """{key: value} of the keys that come once: two containers use the same small pids."""
    found = {}
    for key, value in pairs:
        found[key] = None if key in found else value
    return {key: value for key, value in found.items() if value is not None}
