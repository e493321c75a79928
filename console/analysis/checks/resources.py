"""Checks of what can fill up or hang, of the ranks on the node, and of who holds its GPUs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ...records import Capacity, Gpu, GpuInfo, RankSetting
from ...text.format import duration, number, plural, size
from ...text.nodeset_fold import fold_ranks
from .result import Absent, JobUsual, Measured, NodeCheck, NodeFacts, Usual

#: A file system is full below both; so is its list of files.
_FREE_SHARE, _FREE_BYTES, _FREE_INODE_SHARE, _FREE_INODES = 0.05, 10 << 30, 0.01, 100_000
#: Memory file systems and limits of cgroups: below both; seconds to exhaustion, once so much is in use.
_MEMORY_SHARE, _MEMORY_BYTES, _EXHAUSTED_S, _USED_SHARE = 0.05, 2 << 30, 600.0, 0.8
#: File systems of which a state read-only after being writable is the kernel's answer to errors.
_LOCAL: Final = frozenset({"ext2", "ext3", "ext4", "btrfs", "f2fs", "nilfs2"})
#: NFS: share of requests that are sent again, and per second; waiting requests per request; requests per second.
_RESENT_SHARE, _RESENT_S, _QUEUE, _REQUESTS_S = 0.01, 0.1, 1.0, 10.0
#: Bytes that RDMA needs to lock at least, and share of open files.
_MEMLOCK_BYTES, _OPEN_FILES_PCT = 1 << 30, 90.0
#: Rows that the GPU can replace (NVIDIA, row remapping of A100 and later), and from which share on it warns.
_REMAPS, _REMAP_SHARE = 512, 0.875
#: Ranks of a job from which on a majority says something, and its share.
_LEAST_RANKS, _MAJORITY = 4, 0.75
#: Variables that differ for a reason: files, and devices of one rank; rank 0 often has the debug output.
_OWN_VARIABLES: Final = ("DEBUG", "FILE", "DEVICES", "HOSTID", "HCA", "PORT", "GRAPH", "TOPO")
_NOT_SET: Final = "not set"
#: CPUs in one list; longer ones are not read.
_MOST_CPUS: Final = 8192


def usual_of_jobs(settings: Iterable[RankSetting]) -> dict[str, JobUsual]:
    """By job and attempt: the limits and variables that three quarters of its ranks share, of at least four."""
    values: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    sizes: Counter[str] = Counter()
    for setting in settings:
        if setting.environment is None:
            continue
        job = job_key(setting)
        sizes[job] += 1
        for name, value in _compared(setting).items():
            values[job][name][value] += 1
    usual: dict[str, JobUsual] = {}
    for job, names in values.items():
        if sizes[job] >= _LEAST_RANKS:
            for counts in names.values():
                counts[_NOT_SET] += sizes[job] - counts.total()
            counted = {name: counts.most_common(1)[0] for name, counts in names.items()}
            usual[job] = {name: Usual(value, count, sizes[job]) for name, (value, count) in counted.items()
                          if count >= _MAJORITY * sizes[job]}  # fmt: skip
    return usual


def job_key(setting: RankSetting) -> str:
    """Job and attempt of a rank."""
    return f"{setting.job}/{setting.attempt}"


def _compared(setting: RankSetting) -> dict[str, str]:
    own = {name: value for name, value in (setting.environment or {}).items()
           if not any(word in name for word in _OWN_VARIABLES)}  # fmt: skip
    limits = {"memlock": setting.memlock_bytes, "nofile": setting.open_files}
    return own | {name: "unlimited" if value == -1 else str(value) for name, value in limits.items() if value}


def _file_systems(facts: NodeFacts) -> Iterator[Capacity]:
    return (entry for entry in facts.capacities if entry.type == "file_system")


def _space(facts: NodeFacts) -> Measured:
    usable = [entry for entry in _file_systems(facts) if entry.total_bytes and entry.available_bytes is not None]
    full = [entry for entry in usable if entry.fstype != "tmpfs" and _is_below(entry, _FREE_SHARE, _FREE_BYTES)]
    return [f"{entry.path} has {_left(entry)}" for entry in full] if usable else None


def _inodes(facts: NodeFacts) -> Measured:
    usable = [entry for entry in _file_systems(facts) if entry.inodes and entry.inodes_available is not None]
    full = [f"{entry.path} can hold {plural(entry.inodes_available, 'more file')} of {entry.inodes}" for entry in usable
            if (entry.inodes_available or 0) < min(_FREE_INODE_SHARE * (entry.inodes or 0), _FREE_INODES)]  # fmt: skip
    return full if usable else None


def _read_only(facts: NodeFacts) -> Measured:
    usable = [entry for entry in _file_systems(facts) if entry.is_writable is not None]
    return [f"{entry.path} ({entry.source}) became read-only" for entry in usable
            if entry.was_writable and not entry.is_writable and entry.fstype in _LOCAL] if usable else None  # fmt: skip


def _stat(facts: NodeFacts) -> Measured:
    usable = list(_file_systems(facts))
    words = [f"{entry.path} ({entry.source}) has not answered for {number(entry.hung_s)} s" if entry.hung_s
             else f"{entry.path} ({entry.source}): {entry.error}"
             for entry in usable if entry.hung_s or entry.error]  # fmt: skip
    return words if usable else None


def _nfs(facts: NodeFacts, field: str, limit: float, least_s: float, words: str) -> Measured | Absent:
    mounts = [entry for entry in _file_systems(facts) if (entry.fstype or "").startswith("nfs")]
    if not mounts:
        return Absent("no NFS")
    slow, usable = [], 0
    for entry in mounts:
        rate, requests = getattr(entry, field), entry.requests_s
        if rate is None or requests is None:
            continue
        usable += 1
        if requests and rate >= least_s and rate / requests > limit:
            slow.append(f"{entry.path} ({entry.source}): {words % number(100 * rate / requests)}")
    return slow if usable else None


def _resent(facts: NodeFacts) -> Measured | Absent:
    return _nfs(facts, "retransmits_s", _RESENT_SHARE, _RESENT_S, "%s %% of the requests are sent again")


def _slots(facts: NodeFacts) -> Measured | Absent:
    return _nfs(facts, "queued_s", _QUEUE, _REQUESTS_S, "%s requests wait for a slot for each 100 sent")


def _shared_memory(facts: NodeFacts) -> Measured | Absent:
    usable = [entry for entry in _file_systems(facts) if entry.fstype == "tmpfs" and entry.total_bytes]
    return _filling(usable, "in ") if usable else Absent("no file system in memory")


def _cgroup_memory(facts: NodeFacts) -> Measured | Absent:
    usable = [entry for entry in facts.capacities if entry.type == "cgroup_memory" and entry.total_bytes]
    return _filling(usable, "below the limit of ") if usable else Absent("no rank has a memory limit")


def _filling(entries: list[Capacity], where: str) -> list[str]:
    words = []
    for entry in entries:
        available, growth = entry.available_bytes, entry.growth_bytes_s
        if available is None or not entry.total_bytes:
            continue
        is_used = available < (1 - _USED_SHARE) * entry.total_bytes
        if growth and growth > 0 and is_used and available / growth < _EXHAUSTED_S:
            words.append(f"{_left(entry)} {where}{entry.path}, at {size(growth)}/s for another "
                         f"{duration(int(available / growth * 1e9))}")  # fmt: skip
        elif _is_below(entry, _MEMORY_SHARE, _MEMORY_BYTES):
            words.append(f"{_left(entry)} {where}{entry.path}")
    return words


def _is_below(entry: Capacity, share: float, nbytes: int) -> bool:
    return (entry.available_bytes or 0) < min(share * (entry.total_bytes or 0), nbytes)


def _left(entry: Capacity) -> str:
    return f"{size(entry.available_bytes)} of {size(entry.total_bytes)} left"


def _ranks(facts: NodeFacts) -> Absent | None:
    return None if facts.rank_settings else Absent("no rank")


def _memlock(facts: NodeFacts) -> Measured | Absent:
    if not facts.settings_of("nic_rate"):
        return _ranks(facts) or Absent("no RDMA port that is up")
    usable = [rank for rank in facts.rank_settings if rank.memlock_bytes is not None]
    low = [rank for rank in usable if 0 <= (rank.memlock_bytes or 0) < _MEMLOCK_BYTES
           and (rank.pid, rank.start_ticks) not in facts.privileged]  # fmt: skip
    words = [f"{_named(low)} may lock {size(min(rank.memlock_bytes or 0 for rank in low))}"] if low else []
    return _ranks(facts) or (words if usable else None)


def _open_files(facts: NodeFacts) -> Measured | Absent:
    usable = [rank for rank in facts.rank_settings if rank.open_files_pct is not None or rank.open_files == -1]
    full = [rank for rank in usable if (rank.open_files_pct or 0.0) >= _OPEN_FILES_PCT]
    words = [f"{_named([rank])} uses {number(rank.open_files_pct)} % of {rank.open_files} open files" for rank in full]
    return _ranks(facts) or (words if usable else None)


def _environment(facts: NodeFacts) -> Measured | Absent:
    words = []
    is_compared = False
    for rank in facts.rank_settings:
        usual = facts.usual_of_jobs.get(job_key(rank))
        if usual is None or rank.environment is None:
            continue
        is_compared, own = True, _compared(rank)
        for name, most in sorted(usual.items()):
            ours = own.get(name, _NOT_SET)
            if ours != most.value:
                words.append(f"rank {_number(rank)}: {name} {ours}, {most.value} on {most.count} of {most.nodes} ranks")
    return _ranks(facts) or (words[:8] if is_compared else Absent(f"fewer than {_LEAST_RANKS} ranks in its jobs"))


def _affinity(facts: NodeFacts) -> Measured | Absent:
    near = {info.uuid: cpus_of(info.cpu_affinity or "") for info, _ in facts.gpus}
    words, usable, by_cpus = [], 0, defaultdict(list)
    for rank in facts.rank_settings:
        cpus = cpus_of(rank.cpus or "")
        if not cpus:
            continue
        usable += 1
        by_cpus[cpus].append(rank)
        beside = near.get(facts.gpu_of.get(rank.pid, ""))
        if beside and not cpus & beside:
            words.append(f"rank {_number(rank)} runs on CPUs {rank.cpus}, none of them near its GPU")
    total = facts.about.cpus if facts.about is not None and facts.about.cpus else 0
    for cpus, ranks in by_cpus.items():
        if len(cpus) < min(len(ranks), total):
            words.append(f"{_named(ranks)} share {plural(len(cpus), 'CPU')} ({ranks[0].cpus})")
    return _ranks(facts) or (words if usable else None)


def cpus_of(text: str) -> frozenset[int]:
    """The CPUs of a list of the kernel, 0-3,8; empty if it is not one, or far too long."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and len(first) < 6 and len(last) < 6):
            return frozenset()
        if int(last) - int(first) > _MOST_CPUS:
            return frozenset()
        cpus.update(range(int(first), int(last) + 1))
    return frozenset(cpus)


def _named(ranks: Iterable[RankSetting]) -> str:
    numbers = [rank.rank for rank in ranks]
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {fold_ranks(numbers)}"


def _number(rank: RankSetting) -> str:
    return fold_ranks([rank.rank])


def _orphans(facts: NodeFacts) -> Measured | Absent:
    return [f"{words} holds {gpus}" for words, gpus in sorted(facts.left_over.items())]


def _remaps(facts: NodeFacts) -> Measured:
    counts = {info.index: _remapped(info, gpu) for info, gpu in facts.gpus}
    usable = {index: count for index, count in counts.items() if count is not None}
    return [f"gpu{index} has replaced {count} of {_REMAPS} rows" for index, count in sorted(usable.items())
            if count >= _REMAP_SHARE * _REMAPS] if usable else None  # fmt: skip


def _remapped(info: GpuInfo, gpu: Gpu | None) -> int | None:
    parts = (gpu.remapped_rows_corrected, gpu.remapped_rows_uncorrected) if gpu is not None else (None, None)
    return None if parts == (None, None) else sum(part or 0 for part in parts)


def _check(id: str, what: str, source: str, limit: str, remedy: str, **traits: object) -> NodeCheck:
    fields: Mapping[str, object] = {"severity": "warning", "owner": "operator", "own_remedy": remedy, **traits}
    return NodeCheck(id=id, what=what, source=source, limit=limit, **fields)  # type: ignore[arg-type]


#: In the order in which they are shown.
CHECKS: Final[tuple[NodeCheck, ...]] = (
    _check("gpu_remap_limit", "memory rows that the GPU has replaced", "NVML", f"{_REMAP_SHARE * _REMAPS:.0f} of "
           f"{_REMAPS}", "Plan to replace the GPU: later errors cannot be repaired.", owner="vendor", needs="gpu",
           measure=_remaps),
    _check("gpu_left_over", "ranks of ended jobs that hold a GPU: zombies, and those without their launcher",
           "NVML, /proc", "none", "End them: gconsole ps shows the processes.", owner="user", needs="gpu",
           measure=_orphans),
    _check("disk_space", "space of file systems", "statvfs", "5 % or 10 GiB", "Remove old checkpoints, caches and core "
           "dumps.", owner="user", measure=_space),
    _check("disk_inodes", "files that file systems can still hold", "statvfs", "1 % or 100,000", "Remove folders with "
           "many small files: caches, data sets, environments.", owner="user", measure=_inodes),
    _check("disk_read_only", "file systems that were mounted for writing are writable", "/proc/self/mountinfo", "all",
           "See the kernel log for I/O errors; replace the disk.", severity="error", measure=_read_only),
    _check("disk_answer", "file systems answer statvfs() within 3 s", "statvfs", "all",
           "Check the server and the way to it; a mount that stays so needs umount -l.", measure=_stat),
    _check("nfs_resent", "NFS requests that are sent again", "/proc/self/mountstats", "1 %",
           "Check network and server: nfsstat -rc, mountstats.", measure=_resent, watch_s=35),
    _check("nfs_slots", "NFS requests that wait for a slot", "/proc/self/mountstats", "one per request",
           "Mount with more connections (nconnect), or read fewer small files.", measure=_slots, watch_s=35),
    _check("shared_memory", "room in /dev/shm, /tmp and /run in memory, and when they are full", "statvfs",
           "5 % or 2 GiB; 10 min", "Use fewer workers of data loaders; mount /dev/shm larger (--shm-size of "
           "containers).", owner="user", measure=_shared_memory),
    _check("cgroup_memory", "memory below the limit of the ranks' cgroup, and when it is reached", "/sys/fs/cgroup",
           "5 % or 2 GiB; 10 min", "Request more memory, or use less.", owner="user", measure=_cgroup_memory),
    _check("rank_memlock", "memory that ranks may lock for RDMA", "/proc/PID/limits", "1 GiB",
           "ulimit -l unlimited for the job (LimitMEMLOCK of slurmd, --ulimit memlock of containers).",
           measure=_memlock),
    _check("rank_open_files", "open files of ranks against their limit", "/proc/PID/fd", "90 %",
           "Raise ulimit -n, or share tensors by file system (torch.multiprocessing.set_sharing_strategy).",
           owner="user", measure=_open_files),
    _check("rank_environment", "limits and variables (NCCL, OMP, UCX, …) against the other ranks of the job",
           "/proc/PID/environ", "as on three quarters of the ranks", "Start all ranks with the same environment.",
           owner="user", measure=_environment),
    _check("rank_affinity", "CPUs of ranks: near their GPU, and not too few", "/proc/PID/status, NVML",
           "a CPU near the GPU; one each", "Check the binding of the launcher (srun --cpu-bind, mpirun --bind-to, "
           "numactl).", owner="user", measure=_affinity),
)  # fmt: skip
