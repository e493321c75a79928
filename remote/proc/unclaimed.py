"""Kinds of Python processes without a rank: one that may be a job of a user, or a service or tool."""

import re

from . import apart
from .programs import program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from .process_facts import ProcessEntry
    from .procfs import ProcFs

    ProcessKey = tuple[int, int]  # (pid, start_ticks)

#: It has libraries for GPUs, of machine learning or of MPI; it is a script of a user; it is anything else.
COMPUTE, SCRIPT, SERVICE = "compute", "script", "service"
#: Seconds after which the libraries of a process are read again: it may be importing. Doubles each time, and ends.
FIRST_S, LAST_S = 4.0, 128.0
#: Processes whose libraries are read per tick: the maps of one take up to some milliseconds.
MOST = 32

_LIBRARIES = re.compile(
    rb"/(?:libtorch(?:_python|_cpu|_cuda|_hip)?|libc10|libcuda|libcudart|libnccl|librccl|libamdhip64|libtensorflow\w*"
    rb"|_pywrap_tensorflow\w*|xla_extension|libjax_common|libmpi|libhccl|libneuron\w*|libpaddle)[.\w+-]*\.so"
)
#: The library of Ray's workers and drivers.
_RAY_LIBRARY = re.compile(rb"/ray/_raylet[.\w+-]*\.so")
#: Folders of the distribution, of installed packages and of editors' servers (hidden folders).
_INSTALLED = re.compile(
    r"^/(?:bin|sbin|lib|lib64|etc|snap|var/lib)/|^/usr/(?!local/|src/|home/)|^/usr/local/(?:bin|sbin|lib|libexec|share)/"
    r"|/(?:site|dist)-packages/|/lib/python3?[.\d]*t?/|/\.[^./]"
)
#: Servers of notebooks and of Ray's own processes, by their titles and modules.
_IDLE = re.compile(r"(?:^|[/ ])(?:ipykernel|jupyter|ray::IDLE|ray/(?:_private|dashboard|util)/|colab_kernel)")
#: Units of systemd whose processes are jobs, not a service: of logins, schedulers and containers.
_CARRIERS = re.compile(
    r"^(?:ssh|cron|atd|slurm|pbs|sge|lsf|condor|flux|oar|docker|containerd|cri|kubelet|k3s|podman|nomad|run-|user@|session"
    r"|actions|gitlab|buildkite)"
)
_UNIT = re.compile(r"/system\.slice/(?:[^/]+\.slice/)*([^/\n]+\.service)")


class UnclaimedProcesses(object):
    """The programs of Python processes without a rank, by (pid, start_ticks)."""

    def __init__(self, procfs: "ProcFs") -> None:
        self._procfs = procfs
        self._programs: "dict[ProcessKey, str]" = {}
        self._due: "dict[ProcessKey, tuple[float, float]]" = {}  # (when its libraries are read, pause after that)
        self._ray: "set[ProcessKey]" = set()

    def uses_ray(self, entry: "ProcessEntry") -> bool:
        """Whether Ray's library was seen in a process without a rank."""
        return entry.key in self._ray

    def get(self, entry: "ProcessEntry", lineage: "Iterable[ProcessEntry]" = ()) -> "str | None":
        """COMPUTE, SCRIPT or SERVICE; None if the process is not readable. `lineage`: its ancestors."""
        if entry.details.denied:
            return None
        if entry.key not in self._programs:
            self._programs[entry.key] = SCRIPT if self._is_script(entry, lineage) else SERVICE
            self._due[entry.key] = (0.0, FIRST_S)  # its libraries are read by the next `refresh`
        return self._programs[entry.key]

    def refresh(self, entries: "Iterable[ProcessEntry]", now: float) -> "list[ProcessEntry]":
        """Read the libraries of processes that are due; those that have changed. `entries` have a program."""
        by_key = {entry.key: entry for entry in entries}
        for table in (self._programs, self._due):
            for key in [key for key in table if key not in by_key]:
                del table[key]
        self._ray.intersection_update(by_key)
        due = [key for key, (when, _) in self._due.items() if when <= now]
        entries = [by_key[key] for key in due[:MOST]]
        mapped = apart.read_each(self._procfs, {entry.pid: ("maps",) for entry in entries}, _libraries)
        return [entry for entry in entries if self._note(entry, *_checked(mapped[entry.pid]), now)]

    def _note(self, entry: "ProcessEntry", has_libraries: bool, has_ray: bool, now: float) -> bool:
        """Whether libraries for computing, or Ray's, appeared in a process; with the former it is not read again."""
        pause_s = self._due[entry.key][1]
        self._due[entry.key] = (now + pause_s, 2 * pause_s)
        if pause_s > LAST_S:
            del self._due[entry.key]
        is_new = has_ray and entry.key not in self._ray
        if is_new:
            self._ray.add(entry.key)
        if not has_libraries or _IDLE.search(" ".join(entry.details.argv[:4])):
            return is_new
        self._due.pop(entry.key, None)
        self._programs[entry.key] = COMPUTE
        return True

    def _is_script(self, entry: "ProcessEntry", lineage: "Iterable[ProcessEntry]") -> bool:
        kind, name, _ = program(entry.details.argv)
        if kind != "script" or not name.endswith(".py") or _INSTALLED.search(name):
            return False
        if entry.pid == 1:
            return False  # the init of a container
        if _IDLE.search(" ".join(entry.details.argv[:4])):
            return False
        if any(parent.pid != 1 and not parent.python for parent in lineage):
            return True  # started by a shell or a scheduler, not by systemd
        try:
            cgroup = self._procfs.read_at_once(entry.pid, "cgroup").decode("utf-8", "replace")
        except OSError:
            return True
        unit = _UNIT.search(cgroup)
        return unit is None or _CARRIERS.match(unit.group(1)) is not None


def _libraries(procfs: "ProcFs", pid: int) -> "list[bool]":
    """Whether a process has mapped libraries for computing, and Ray's."""
    maps = procfs.maps(pid)
    return [pattern.search(maps) is not None for pattern in (_LIBRARIES, _RAY_LIBRARY)]


def _checked(answer: "Any") -> "tuple[bool, bool]":
    """An answer of `_libraries`; (False, False) if the process ended or is not readable."""
    if not isinstance(answer, list) or len(answer) != 2:
        return False, False
    return answer[0] is True, answer[1] is True
