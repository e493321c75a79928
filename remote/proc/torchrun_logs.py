"""Log folders of past torchrun jobs: TMPDIR/torchelastic_*/RUN-ID_*/attempt_N/LOCAL-RANK/{error.json,stderr.log}.

torchrun leaves them behind, and with `--log-dir D` in D/RUN-ID_*, which `log_folders` searches. Any user can make such
folders and their content: they are read with the rights of their owner, links are not followed, everything in a folder
must belong to its owner, and the number of files is limited.
"""

import os
import re
import stat

from . import apart, log_folders
from .environ import EnvironReader
from .output_files import TAIL_BYTES, NoOutput, OutputFiles
from .procfs import GONE, printable
from .user_files import RightsOf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator

    from .procfs import ProcFs

#: Seconds since the last change of an output for which its job matters.
RECENT_S = 3600
#: Jobs and files that are read; run folders of one user and of all, and local ranks of one job, that are looked at.
MOST_JOBS, MOST_FILES, MOST_OF_USER, MOST_FOLDERS, MOST_RANKS = 32, 256, 128, 512, 64
#: Names of one folder, and of TMPDIR.
MOST_NAMES, MOST_IN_TMP = 1024, 65536
#: Seconds that a launcher needs before it makes its folder.
START_S = 300
FILES = (("error.json", "error_file"), ("stderr.log", "stderr"))
_NUMBER = re.compile(r"^[0-9]{1,6}$")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class PastOutput(object):
    """The end of one output of a job that is over: of a local rank, or what its launcher printed; `uid` owns it."""

    __slots__ = ("attempt", "job", "path", "size", "stream", "text", "uid", "written_ns")

    def __init__(
        self, job: str, attempt: int, stream: str, path: str, state: "tuple[int, int]", text: str, uid: int
    ) -> None:
        self.job, self.attempt, self.stream, self.path, self.text = job, attempt, stream, path, text
        self.size, self.written_ns = state
        self.uid = uid


class _Run(object):
    """The folder of one run of torchrun. `made_s` is the time at which its launcher made it."""

    __slots__ = ("made_s", "name", "run_id", "top", "uid")

    def __init__(self, top: str, name: str, run_id: str, uid: int, made_s: float) -> None:
        self.top, self.name, self.run_id, self.uid, self.made_s = top, name, run_id, uid, made_s


def past_outputs(procfs: "ProcFs", tmp: "Iterable[str]", now_ns: int) -> "Iterator[PastOutput]":
    """The last outputs of failed jobs below these folders, of the newest attempt, the newest jobs first."""
    files = OutputFiles(4)
    tmp = [os.path.realpath(path) for path in tmp if path]
    runs = _runs(tmp)
    places = {(run.top, run.name) for run in runs}
    for each in log_folders.find_runs(procfs, tmp):
        if _is_user(each.uid) and (each.top, each.name) not in places:
            runs.append(_Run(each.top, each.name, _run_id(each.name), each.uid, each.made_s))
    runs.sort(key=lambda run: -run.made_s)
    candidates = [
        (run, outputs)
        for run in _newest(runs[:MOST_FOLDERS])
        for outputs in [_outputs(run, files)]
        if _is_recent(outputs, now_ns)
    ]
    if not candidates:
        return
    alive = _Living(procfs, {run.uid for run, _ in candidates})
    left, jobs = MOST_FILES, {}  # type: ignore[var-annotated]
    candidates.sort(key=lambda pair: -max(output.written_ns for output in pair[1]))
    for run, _ in candidates[:MOST_JOBS]:
        if alive.has(run):
            continue
        name = run_job(run.name)
        if jobs.setdefault(name, run.uid) != run.uid:
            name = "%s (uid %d)" % (name, run.uid)
        for output in _outputs(run, files, with_text=True)[:left]:
            left -= 1
            output.job = name
            yield output


def run_job(name: str) -> str:
    """The name of the job of a folder of a run: its run id, or the name of the folder where it has none."""
    run_id = _run_id(name)
    return printable(name if run_id == "none" else run_id, 128)


# -- folders ------------------------------------------------------------------------------------------------------


def _runs(tmp: "Iterable[str]") -> "list[_Run]":
    """The run folders, the newest first."""
    tops = []
    for base in dict.fromkeys(tmp):
        try:
            with os.scandir(base) as entries:
                for number, entry in enumerate(entries):
                    if number >= MOST_IN_TMP:
                        break
                    if entry.name.startswith("torchelastic_"):
                        info = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(info.st_mode) and _is_user(info.st_uid):
                            tops.append((info.st_mtime, entry.path, info.st_uid))
        except OSError:
            continue
    runs, counts = [], {}  # type: ignore[var-annotated]
    for made_s, top, uid in sorted(tops, reverse=True):
        counts[uid] = counts.get(uid, 0) + 1
        if counts[uid] > MOST_OF_USER or len(runs) >= MOST_FOLDERS:
            continue
        for name in _names(top, uid)[:4]:
            if log_folders.RUN.match(name):
                runs.append(_Run(top, name, _run_id(name), uid, made_s))
    return runs


def _run_id(name: str) -> str:
    """The part of the name of a folder that torchrun did not make up."""
    return name[: -len("_abcdefgh")]


def _newest(runs: "list[_Run]") -> "list[_Run]":
    """Without those that were started again with their id, however that ended."""
    ids: "set[tuple[int, str]]" = set()
    kept = []
    for run in runs:
        if run.run_id == "none" or (run.uid, run.run_id) not in ids:
            kept.append(run)
        ids.add((run.uid, run.run_id))
    return kept


def _is_user(uid: int) -> bool:
    return uid == 0 or uid >= log_folders.FIRST_USER or uid == os.geteuid()


def _names(path: str, uid: int) -> "list[str]":
    try:
        with RightsOf(uid):
            folder = _open(path, None, uid)
            try:
                return _list(folder)
            finally:
                os.close(folder)
    except OSError:
        return []


def _open(name: str, parent: "int | None", uid: int) -> int:
    """A folder of that user on the same file system as its parent. Raises OSError."""
    folder = os.open(name, _FOLDER, dir_fd=parent)
    info = os.fstat(folder)
    if info.st_uid != uid or (parent is not None and info.st_dev != os.fstat(parent).st_dev):
        os.close(folder)
        raise PermissionError("%s belongs to another user, or is mounted" % name[:64])
    return folder


def _list(folder: int) -> "list[str]":
    names = []
    with os.scandir("/proc/self/fd/%d" % folder) as entries:  # a descriptor itself: from Python 3.7 on
        for entry in entries:
            names.append(entry.name)
            if len(names) >= MOST_NAMES:
                break
    return names


# -- outputs ------------------------------------------------------------------------------------------------------


def _is_recent(outputs: "list[PastOutput]", now_ns: int) -> bool:
    newest_ns = max([output.written_ns for output in outputs] or [0])
    return now_ns - RECENT_S * 10**9 <= newest_ns <= now_ns + 60 * 10**9


def _outputs(run: _Run, files: OutputFiles, with_text: bool = False) -> "list[PastOutput]":
    """The outputs of the newest attempt, error files first; [] if they cannot be read."""
    opened: "list[int]" = []
    outputs: "list[PastOutput]" = []
    try:
        with RightsOf(run.uid):
            opened.append(_open(run.top, None, run.uid))
            opened.append(_open(run.name, opened[-1], run.uid))
            names = [name[8:] for name in _list(opened[-1]) if name.startswith("attempt_")]
            attempt = max([int(name) for name in names if _NUMBER.match(name)] or [-1])
            opened.append(_open("attempt_%d" % attempt, opened[-1], run.uid))
            path = "%s/%s/attempt_%d" % (run.top, run.name, attempt)
            numbers = sorted((name for name in _list(opened[-1]) if _NUMBER.match(name)), key=int)
            for number in numbers[:MOST_RANKS]:
                outputs += _of_rank(run, files, opened[-1], attempt, "%s/%s" % (path, number), with_text)
    except OSError:
        return []
    finally:
        for folder in opened:
            os.close(folder)
    return sorted(outputs, key=lambda output: output.stream)


def _of_rank(
    run: _Run, files: OutputFiles, parent: int, attempt: int, path: str, with_text: bool
) -> "list[PastOutput]":
    outputs: "list[PastOutput]" = []
    try:
        folder = _open(os.path.basename(path), parent, run.uid)
    except OSError:
        return outputs
    try:
        for name, stream in FILES:
            place = printable("%s/%s" % (path, name), 512)
            try:
                file = files.of_path(folder, name, place, run.uid)
            except (NoOutput, OSError):
                continue
            try:
                size, written_ns = file.state()
                text = file.tail(size, TAIL_BYTES) if with_text else ""
            except OSError:
                continue
            finally:
                files.release(file, (0, 0))
            if size:
                outputs.append(PastOutput("", attempt, stream, place, (size, written_ns), text, run.uid))
    finally:
        os.close(folder)
    return outputs


# -- living processes ---------------------------------------------------------------------------------------------


class _Living(object):
    """What shows that a run goes on: ranks with its id or folder, or a process that may be its launcher."""

    def __init__(self, procfs: "ProcFs", uids: "set[int]") -> None:
        self._run_ids: "set[tuple[int, str]]" = set()
        self._folders: "set[tuple[int, str]]" = set()
        self._procfs = procfs
        self._starts: "list[tuple[int, int, float]]" = []  # pid, uid, time of the start
        boot_s = boot_time_s(procfs)
        others: "set[int]" = set()  # ranks, and launchers of living ranks: not launchers of anything else
        python, parents = [], {}
        for name in procfs.names():
            if not name.isdigit():
                continue
            try:
                info, uid = procfs.stat(name), os.stat(procfs.path(name, "")).st_uid
            except (OSError, ValueError, IndexError):
                continue  # gone, or not readable
            if info.dead or uid not in uids:
                continue
            parents[int(name)] = (uid, info.ppid)
            if "python" in info.comm or info.comm.startswith(("torchrun", "accelerate", "pt_")):
                python.append((int(name), uid, boot_s + info.start_ticks / float(os.sysconf("SC_CLK_TCK"))))
        for pid, values in apart.read_each(procfs, dict.fromkeys(parents, ("environ",)), _variables).items():
            uid, ppid = parents[pid]
            try:
                error_file, run_id = [] if isinstance(values, Exception) else apart.as_texts(values, 2)
            except ValueError:
                continue  # gone, not readable, or without these variables
            self._folders.update((uid, part) for part in error_file.split("/"))
            self._run_ids.add((uid, run_id))
            others.update((pid, ppid))
        self._starts = [entry for entry in python if entry[0] not in others]

    def has(self, run: _Run) -> bool:
        """Whether the job of a folder lives, or was started again."""
        if (run.uid, run.name) in self._folders or (run.uid, run.run_id) in self._run_ids:
            return True
        return any(
            uid == run.uid and -START_S <= start_s - run.made_s <= 2 and self._has_torch(pid)
            for pid, uid, start_s in self._starts
        )

    def _has_torch(self, pid: int) -> bool:
        """Whether a process may have loaded torch, as a launcher has."""
        try:
            return apart.read(self._procfs, pid, ("maps",), lambda procfs, pid: b"/torch/" in procfs.maps(pid)) is True
        except GONE:
            return False
        except (OSError, ValueError):
            return True


def _variables(procfs: "ProcFs", pid: int) -> "list[str]":
    """The error file and the run id of a rank of torchrun; [] of another process."""
    env = EnvironReader(procfs, ("TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID")).static(pid)[0]
    error_file = env.get("TORCHELASTIC_ERROR_FILE")
    return [] if error_file is None else [error_file, env.get("TORCHELASTIC_RUN_ID", "")]


def boot_time_s(procfs: "ProcFs") -> float:
    """The time of the boot by the clock of the files, s since the epoch."""
    with open(procfs.root + "/stat", "rb") as file:
        for line in file:
            if line.startswith(b"btime "):
                return float(line.split()[1])
    return 0.0
