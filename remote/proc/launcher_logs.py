"""What a launcher printed when its job failed, in a file that a shell wrote: `torchrun train.py 2>&1 | tee train.log`.

The file counts if it is where jobs leave their logs (`log_folders`), ends with the launcher's report of a failed rank,
no process has it open, and no job of its owner was started since: no Python program in its folder, and none with a
framework anywhere. Then that was the end of the job.
"""

import os
import re

from . import apart, log_folders
from .file_systems import mounts
from .output_files import SHARED_TAIL_BYTES, TAIL_BYTES, NoOutput, OutputFiles
from .procfs import GONE, printable, read_text
from .torchrun_logs import RECENT_S, PastOutput, boot_time_s, run_job
from .user_files import RightsOf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator

    from .procfs import ProcFs

#: The last words of launchers about a rank that failed. Each is documented with its pattern of the console's
#: `analysis/crash/launchers.py`.
REPORT = re.compile(
    r"^Root Cause \(first observed failure\):|elastic\.multiprocessing\.errors\.ChildFailedError"
    r"|exits with return code = -?[1-9]|^srun: error: \S+ tasks? \S+ (?:Exited with|Out Of Memory|Killed|Aborted|Segm)"
    r"|Child process with PID [0-9]+ terminated with code -?[1-9]|^MPI_ABORT was invoked on rank"
    r"|noticed that process rank [0-9]+ with PID|^torch\.multiprocessing\.spawn\.Process(?:Raised|Exited)Exception",
    re.MULTILINE,
)
#: What a rank without a launcher ends with: torch prefixes the exception that ends it, and may warn as it exits. A job
#: that was restarted prints more.
LAST_WORDS = re.compile(
    r"(?:^|\n)\[rank[0-9]+\]: [\w.]+(?:Error|Exception)\b.*\n"
    r"(?:(?:\[(?:rank[0-9]+\]|[WEF][0-9]{4} )| ).*\n|\n)*$"
)
#: Characters after the report, of its own table and of a shell.
MOST_AFTER = 4096
#: ns from the last words of a rank to the report of its launcher, which ends the others first (30 s at most).
REPORTED_NS = 60 * 10**9
#: Files that are sent, the newest.
MOST_SENT = 8
TICKS_S = float(os.sysconf("SC_CLK_TCK"))
#: How the names of programs begin that may be a job that was started again.
PYTHON = ("python", "torchrun", "accelerate", "pt_")
#: Folders of libraries that the processes of a training job have mapped.
FRAMEWORKS = (b"/torch/", b"/jaxlib/", b"/tensorflow/", b"/mpi4py/")
#: The last argument of an agent, which is a Python program in the home of its login.
AGENT = "gconsole-agent"
#: Reports name the node of a failed rank: torchrun's table, srun, mpirun.
HOST = re.compile(r"^ +host +: (\S+)$|^srun: error: ([^\s:]+): tasks? |with PID [0-9]+ on node (\S+)", re.MULTILINE)
#: torchrun names the error file of the rank that failed first, which lies in the folder of the run.
_ERROR_FILE = re.compile(r"^ *error_file: \S*/([^/\s]{1,160})/attempt_[0-9]+/[0-9]+/error\.json$", re.MULTILINE)


def past_logs(procfs: "ProcFs", now_ns: int, shared: "Iterable[str]" = ()) -> "Iterator[PastOutput]":
    """The ends of the logs of launchers whose jobs failed lately, the newest first; also in these shared folders."""
    files = OutputFiles(2)
    sent, network = 0, _network_devices(procfs)
    for log in sorted(log_folders.find_logs(procfs, now_ns / 1e9 - RECENT_S, shared), key=lambda log: -log.written_s):
        output = _output(log, files)
        is_everywhere = log.file[0] in network and not log.is_worked_in
        if output is None or (is_everywhere and not _is_of_this_node(output.text)):
            continue
        if sent < MOST_SENT and not _goes_on(procfs, log):
            sent += 1
            yield output


def join_runs(logs: "list[PastOutput]", runs: "list[PastOutput]") -> None:
    """Give a log the job of the run folder of its owner that was last written when it was.

    Only where that is one run, and the run's only log: two jobs of a user may fail in the same minute.
    """
    joined: "dict[tuple[str, int], list[PastOutput]]" = {}
    for log in logs:
        near = {(run.job, run.attempt) for run in runs
                if run.uid == log.uid and 0 <= log.written_ns - run.written_ns <= REPORTED_NS}  # fmt: skip
        if len(near) == 1:
            joined.setdefault(near.pop(), []).append(log)
    for (job, attempt), own in joined.items():
        if len(own) == 1:
            own[0].job, own[0].attempt = job, attempt


def ends_with_report(text: str) -> bool:
    """Whether a text ends with a launcher's report of a failed rank, or with the exception of a rank."""
    reports = list(REPORT.finditer(text))
    return bool(reports and len(text) - reports[-1].end() <= MOST_AFTER) or bool(LAST_WORDS.search(text[-MOST_AFTER:]))


def _output(log: "log_folders.FoundLog", files: OutputFiles) -> "PastOutput | None":
    path = printable(os.path.join(log.folder, log.name), 512)
    try:
        with RightsOf(log.uid):
            folder = os.open(log.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                file = files.of_path(folder, log.name, path, log.uid)
            finally:
                os.close(folder)
            try:
                state = file.state()
                if not ends_with_report(file.tail(state[0], TAIL_BYTES)):
                    return None
                text = file.tail(state[0], SHARED_TAIL_BYTES)
            finally:
                files.release(file, (0, 0))
    except (NoOutput, OSError):
        return None
    runs = [name for name in _ERROR_FILE.findall(text) if log_folders.RUN.match(name)]
    job = run_job(runs[-1]) if runs else printable("/".join((os.path.basename(log.folder), log.name)), 128)
    return PastOutput(job, 0, "file", path, state, text, log.uid)


def _network_devices(procfs: "ProcFs") -> "set[int]":
    """The devices of file systems whose files every node of a cluster has."""
    numbers = [mount.device.split(":") for mount in mounts(read_text(procfs.root + "/self/mountinfo") or "")
               if mount.is_network]  # fmt: skip
    return {os.makedev(int(major), int(minor)) for major, minor in numbers}


def _is_of_this_node(text: str) -> bool:
    """Whether the last report of a text is on a rank of this node: only one node then sends a file that all have."""
    hosts = HOST.findall(text)
    return bool(hosts) and "".join(hosts[-1]).split(".")[0] == os.uname().nodename.split(".")[0]


def _goes_on(procfs: "ProcFs", log: "log_folders.FoundLog") -> bool:
    """Whether a process of its owner has the file open, or a job may have been started again since then."""
    boot_s = boot_time_s(procfs)
    for name in procfs.names():
        if not name.isdigit():
            continue
        try:
            if os.stat(procfs.path(name, "")).st_uid != log.uid:
                continue
            info = procfs.stat(name)
            is_newer = boot_s + info.start_ticks / TICKS_S > log.written_s
            if is_newer and info.comm.startswith(PYTHON) and _may_be_its_job(procfs, name, log):
                return True
            if any(_is_open(procfs, name, number, log) for number in os.listdir(procfs.path(name, "fd"))):
                return True
        except GONE + (OSError, ValueError, IndexError):
            continue
    return False


def _may_be_its_job(procfs: "ProcFs", pid: str, log: "log_folders.FoundLog") -> bool:
    """Whether a newer Python program may be the job of a log, started again."""
    in_folder = procfs.link(pid, "cwd") == log.folder
    try:
        return apart.read(procfs, int(pid), ("cmdline", "maps"), _is_no_agent if in_folder else _has_framework) is True
    except GONE:
        return False
    except (OSError, ValueError):
        return True  # unknown: rather no report of the past than a wrong one


def _is_no_agent(procfs: "ProcFs", pid: int) -> bool:
    return procfs.argv(pid)[-1:] != [AGENT]


def _has_framework(procfs: "ProcFs", pid: int) -> bool:
    maps = procfs.maps(pid)
    return any(name in maps for name in FRAMEWORKS)


def _is_open(procfs: "ProcFs", pid: str, number: str, log: "log_folders.FoundLog") -> bool:
    """Whether a descriptor is of the file; in a container its path may differ, not its name."""
    link = "fd/" + number
    try:
        path = procfs.link(pid, link)
        if os.path.basename(path) != log.name:
            return False
        return path == os.path.join(log.folder, log.name) or log.is_file(os.stat(procfs.path(pid, link)))
    except GONE + (OSError,):
        return False  # closed meanwhile
