"""What a launcher printed when its job failed, in a file that a shell wrote: `torchrun train.py 2>&1 | tee train.log`.

The file counts if it is in the working folder of a living shell, ends with the launcher's report of a failed rank, no
process has it open, and no Python program was started in its folder since: then that was the end of the job.
"""

import os
import re

from . import log_folders
from .output_files import SHARED_TAIL_BYTES, TAIL_BYTES, NoOutput, OutputFiles
from .procfs import GONE, printable
from .torchrun_logs import RECENT_S, PastOutput, boot_time_s, run_job
from .user_files import RightsOf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from .procfs import ProcFs

#: The last words of launchers about a rank that failed. Each is documented with its pattern of the console's
#: `analysis/crash/launchers.py`.
REPORT = re.compile(
    r"^Root Cause \(first observed failure\):|elastic\.multiprocessing\.errors\.ChildFailedError"
    r"|exits with return code = -?[1-9]|^srun: error: \S+ tasks? \S+ (?:Exited with|Out Of Memory|Killed|Aborted|Segm)"
    r"|Child process with PID [0-9]+ terminated with code -?[1-9]|^MPI_ABORT was invoked on rank"
    r"|noticed that process rank [0-9]+ with PID",
    re.MULTILINE,
)
#: Characters after the report, of its own table and of a shell.
MOST_AFTER = 4096
#: Files that are sent, the newest.
MOST_SENT = 8
TICKS_S = float(os.sysconf("SC_CLK_TCK"))
#: How the names of programs begin that may be a job that was started again.
PYTHON = ("python", "torchrun", "accelerate", "pt_")
#: torchrun names the error file of the rank that failed first, which lies in the folder of the run.
_ERROR_FILE = re.compile(r"^ *error_file: \S*/([^/\s]{1,160})/attempt_[0-9]+/[0-9]+/error\.json$", re.MULTILINE)


def past_logs(procfs: "ProcFs", now_ns: int) -> "Iterator[PastOutput]":
    """The ends of the logs of launchers whose jobs failed lately, the newest first."""
    files = OutputFiles(2)
    sent = 0
    for log in sorted(log_folders.find_logs(procfs, now_ns / 1e9 - RECENT_S), key=lambda log: -log.written_s):
        output = _output(log, files)
        if output is not None and sent < MOST_SENT and not _goes_on(procfs, log):
            sent += 1
            yield output


def ends_with_report(text: str) -> bool:
    """Whether a text ends with a launcher's report of a failed rank."""
    reports = list(REPORT.finditer(text))
    return bool(reports) and len(text) - reports[-1].end() <= MOST_AFTER


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
    job = run_job(runs[-1]) if runs else printable(log.name, 128)
    return PastOutput(job, 0, "file", path, state, text)


def _goes_on(procfs: "ProcFs", log: "log_folders.FoundLog") -> bool:
    """Whether a process of its owner has the file open, or a Python program was started in its folder since then."""
    boot_s = boot_time_s(procfs)
    for name in procfs.names():
        if not name.isdigit():
            continue
        try:
            if os.stat(procfs.path(name, "")).st_uid != log.uid:
                continue
            info = procfs.stat(name)
            is_newer = boot_s + info.start_ticks / TICKS_S > log.written_s
            if is_newer and info.comm.startswith(PYTHON) and procfs.link(name, "cwd") == log.folder:
                return True
            if any(_is_open(procfs, name, number, log) for number in os.listdir(procfs.path(name, "fd"))):
                return True
        except GONE + (OSError, ValueError, IndexError):
            continue
    return False


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
