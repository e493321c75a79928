"""Folders that `torchrun --log-dir` may have filled, and logs of launchers, where jobs usually leave them.

Nothing on a node names the folder of a job that is over. The process that started it often lives: a shell, the script
of a batch job, a notebook; and the agent itself runs in the user's home. So the working folders of living shells and
Python programs are searched, then the folders for temporary files, which all users share. They are listed with the
rights of each user, only what belongs to the user, few levels deep, and for some seconds.
"""

import heapq
import os
import re
import stat
import threading

from .procfs import GONE
from .user_files import RightsOf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator

    from .procfs import ProcFs

    _OfUser = Callable[[int, list[str], bool], Iterator[Any]]

#: RUN-ID_*, as torchrun's launcher makes it with mkdtemp (torch/distributed/elastic/multiprocessing/api.py).
RUN = re.compile(r"^.{1,128}_[a-z0-9_]{8}$")
FIRST_ATTEMPT = "attempt_0"
#: Programs that start jobs, or from which they are started.
STARTERS = ("sh", "bash", "dash", "zsh", "fish", "ksh", "csh", "tcsh", "tmux", "screen", "python", "jupyter",
            "torchrun", "accelerate", "slurm_script")  # fmt: skip
#: Levels below a working folder at which a folder of runs, or a log, may be: `logs/experiment`.
DEEPEST = 2
#: Working folders and listed folders of one user, working folders of all, and names of one folder.
MOST_OF_USER, MOST_LISTED, MOST_FOLDERS, MOST_NAMES = 32, 128, 256, 4096
#: Users whose files in shared folders are searched. Ids below the second number are of services.
MOST_USERS, FIRST_USER = 64, 1000
#: Runs and logs of one user.
MOST_RUNS, MOST_LOGS = 32, 32
#: Names of files to which a shell, nohup, Slurm or PBS writes what a launcher prints.
LOG = re.compile(r"^(?:nohup\.out|log|output|stdout|stderr)$|.\.(?:log|out|err|txt|stdout|stderr|[oe][0-9]+)$")
#: Seconds after which the rest is not searched: a network file system may not answer.
DEADLINE_S = 10.0
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC


class FoundRun(object):
    """A folder of one run: in which folder, its name and owner, and when it was made."""

    __slots__ = ("made_s", "name", "top", "uid")

    def __init__(self, top: str, name: str, uid: int, made_s: float) -> None:
        self.top, self.name, self.uid, self.made_s = top, name, uid, made_s


class FoundLog(object):
    """A file that may be a log: its folder, name, owner, device and inode, and when it was last written.

    `is_worked_in`: a process on this node works in its folder, or above.
    """

    __slots__ = ("file", "folder", "is_worked_in", "name", "uid", "written_s")

    def __init__(self, folder: str, name: str, uid: int, written_s: float, file: "tuple[int, int]") -> None:
        self.folder, self.name, self.uid, self.written_s, self.file = folder, name, uid, written_s, file
        self.is_worked_in = False

    def is_file(self, info: "os.stat_result") -> bool:
        """Whether the status is of this file."""
        return (info.st_dev, info.st_ino) == self.file


def find_runs(procfs: "ProcFs", shared: "Iterable[str]" = ()) -> "list[FoundRun]":
    """The runs below the working folders of living processes, and below shared ones, as far as found in time."""
    runs = _in_time(procfs, shared, lambda uid, paths, _: _runs_of(uid, paths))
    return list({(run.top, run.name): run for run in reversed(runs)}.values())


def find_logs(procfs: "ProcFs", since_s: float, shared: "Iterable[str]" = ()) -> "list[FoundLog]":
    """The newest logs below the working folders of living processes, and below shared ones, written since then."""
    logs = _in_time(procfs, shared, lambda uid, paths, is_work: _logs_of(uid, paths, is_work, since_s))
    return list({(log.folder, log.name): log for log in reversed(logs)}.values())


def _in_time(procfs: "ProcFs", shared: "Iterable[str]", of_user: "_OfUser") -> "list[Any]":
    results: "list[Any]" = []
    work = (procfs, [os.path.realpath(path) for path in shared if path], of_user, results)
    thread = threading.Thread(target=_search, args=work, name="gconsole-logs")
    thread.daemon = True
    thread.start()
    thread.join(DEADLINE_S)
    return list(results)


def working_folders(procfs: "ProcFs") -> "list[tuple[int, str]]":
    """(uid, folder) of the processes from which jobs are started, of the newest processes first."""
    folders: "list[tuple[int, str]]" = []
    counts: "dict[int, int]" = {}
    try:
        own = procfs.link("self", "ns/mnt")
    except OSError:
        return folders
    for name in sorted((name for name in procfs.names() if name.isdigit()), key=int, reverse=True):
        try:
            if not procfs.stat(name).comm.lstrip("-").startswith(STARTERS):
                continue
            uid = os.stat(procfs.path(name, "")).st_uid
            folder = procfs.link(name, "cwd")
            if (uid, folder) in folders or folder == "/" or procfs.link(name, "ns/mnt") != own:
                continue  # in a container, the same path is another folder
        except GONE + (OSError, ValueError, IndexError):
            continue
        counts[uid] = counts.get(uid, 0) + 1
        if counts[uid] <= MOST_OF_USER:
            folders.append((uid, folder))
    return folders[:MOST_FOLDERS]


def shared_folders(shared: "Iterable[str]") -> "list[tuple[int, str]]":
    """(uid, folder) of the users who have a folder or a log in one of these folders."""
    owners: "list[tuple[int, str]]" = []
    for folder in dict.fromkeys(shared):
        uids: "set[int]" = set()
        try:
            with os.scandir(folder) as entries:
                for number, entry in enumerate(entries):
                    if number >= MOST_NAMES or len(uids) >= MOST_USERS:
                        break
                    info = _state(entry) if LOG.search(entry.name) or entry.is_dir(follow_symlinks=False) else None
                    if info is not None:
                        uids.add(info.st_uid)
        except OSError:
            continue
        owners += [(uid, folder) for uid in sorted(uids) if uid in (0, os.geteuid()) or uid >= FIRST_USER]
    return owners


def _search(procfs: "ProcFs", shared: "list[str]", of_user: "_OfUser", results: "list[Any]") -> None:
    working, home = working_folders(procfs), _own_folder()
    homes = [(uid, folder) for uid, folder in working if folder == home]
    working = [(uid, folder) for uid, folder in working if folder != home]
    for folders in (working, homes + shared_folders(shared)):  # limits are of each
        by_user: "dict[int, list[str]]" = {}
        for uid, folder in folders:
            by_user.setdefault(uid, []).append(folder)
        for uid, paths in sorted(by_user.items()):
            try:
                with RightsOf(uid):
                    for result in of_user(uid, paths, folders is working):
                        results.append(result)
            except OSError:
                continue


def _own_folder() -> "str | None":
    """The working folder of the agent, which is that of every agent of the login; None where it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _runs_of(uid: int, paths: "list[str]") -> "Iterator[FoundRun]":
    """The runs of one user, whose rights the thread has."""
    count = 0
    for path, folders in _folders_below(uid, paths):
        for changed_s, name in folders:
            made_s = _made_s(os.path.join(path, name), uid)
            if made_s is not None:
                count += 1
                yield FoundRun(path, name, uid, min(made_s, changed_s))
                if count >= MOST_RUNS:
                    return


def _logs_of(uid: int, paths: "list[str]", is_worked_in: bool, since_s: float) -> "Iterator[FoundLog]":
    """The newest logs of one user, whose rights the thread has."""
    logs: "list[FoundLog]" = []
    for folder, _ in _folders_below(uid, paths):
        try:
            files = _logs_in(folder, uid)
        except OSError:
            continue
        logs += [
            FoundLog(folder, name, uid, written_s, file) for written_s, name, file in files if written_s >= since_s
        ]
    logs.sort(key=lambda log: -log.written_s)
    for log in logs[:MOST_LOGS]:
        log.is_worked_in = is_worked_in
        yield log


def _folders_below(uid: int, paths: "list[str]") -> "Iterator[tuple[str, list[tuple[float, str]]]]":
    """These folders and those below them, of each level the newest first, with what `_folders_in` returns."""
    waiting = [(0, 0.0, path) for path in paths]  # (level, age, folder)
    listed, seen = 0, set(paths)
    while waiting and listed < MOST_LISTED:
        level, _, path = heapq.heappop(waiting)
        listed += 1
        try:
            folders = _folders_in(path, uid)
        except OSError:
            continue
        yield path, folders
        for changed_s, name in folders:
            inner = os.path.join(path, name)
            if level < DEEPEST and inner not in seen and _made_s(inner, uid) is None:
                seen.add(inner)
                heapq.heappush(waiting, (level + 1, -changed_s, inner))


def _logs_in(path: str, uid: int) -> "list[tuple[float, str, tuple[int, int]]]":
    """(time of the last change, name, device and inode) of a user's files in a folder with names of logs."""
    folder = os.open(path, _FLAGS)
    try:
        files = []
        with os.scandir("/proc/self/fd/%d" % folder) as entries:
            for number, entry in enumerate(entries):
                if number >= MOST_NAMES:
                    break
                if LOG.search(entry.name) and entry.is_file(follow_symlinks=False):
                    info = _state(entry)
                    if info is not None and info.st_uid == uid and info.st_size:
                        files.append((info.st_mtime, entry.name, (info.st_dev, info.st_ino)))
        return files
    finally:
        os.close(folder)


def _folders_in(path: str, uid: int) -> "list[tuple[float, str]]":
    """(time of the last change, name) of the folders of a user in a folder on the same file system. Raises OSError."""
    folder = os.open(path, _FLAGS)
    try:
        device, folders = os.fstat(folder).st_dev, []
        with os.scandir("/proc/self/fd/%d" % folder) as entries:  # a descriptor itself: from Python 3.7 on
            for number, entry in enumerate(entries):
                if number >= MOST_NAMES:
                    break
                if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                    continue
                info = _state(entry)
                if info is not None and info.st_uid == uid and info.st_dev == device:
                    folders.append((info.st_mtime, entry.name))
        return sorted(folders, reverse=True)
    finally:
        os.close(folder)


def _state(entry: "os.DirEntry[str]") -> "os.stat_result | None":
    """The status of an entry; None where it is gone, as files for temporary data often are."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _made_s(path: str, uid: int) -> "float | None":
    """When the first attempt of a run began; None where the folder is not that of a run."""
    if not RUN.match(os.path.basename(path)):
        return None
    try:
        info = os.stat(os.path.join(path, FIRST_ATTEMPT), follow_symlinks=False)
    except OSError:
        return None
    return info.st_mtime if stat.S_ISDIR(info.st_mode) and info.st_uid == uid else None
