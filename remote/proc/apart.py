"""Files in /proc whose content a user chose, read and parsed in a child of each user: privilege separation.

An agent that is root opens them; a child without rights, files and terminal (`limited`) reads and parses them and
answers with a list, whose values the caller checks. Processes of the agent's own user are read in the agent itself.
"""

import os

from . import limited
from .procfs import ProcFs
from .user_files import RightsOf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Mapping, Sequence

#: Processes per child: their open files are those of the agent.
BATCH = 64
#: Users with a child of their own, those with most processes; the others share children: a user may have 65,536 uids.
MOST_USERS = 64
#: Seconds of one child, and of all of a call: memory of a process may be mapped from a file system of its user, which
#: never answers.
CHILD_S, ALL_S = 5.0, 10.0
#: The largest length of a text in an answer, and number of texts.
LONGEST, MOST_TEXTS = 1 << 17, 1 << 17
_INT64 = 2**63


class OpenedFiles(ProcFs):
    """Files of processes that were opened by the agent, for a child that may open none."""

    def __init__(self, procfs: "ProcFs") -> None:
        super(OpenedFiles, self).__init__(procfs.root)
        self._procfs = procfs
        self._files: "dict[tuple[int | str, str], int | OSError]" = {}
        self._programs: "dict[int | str, str | OSError]" = {}

    def hold(self, pid: int, names: "Iterable[str]") -> None:
        """Open files of a process; an error is that of the child when it opens them."""
        for name in names:
            try:
                self._files[pid, name] = self._procfs.open(pid, name)
            except OSError as error:
                self._files[pid, name] = error
        try:
            self._programs[pid] = self._procfs.link(pid, "exe")
        except OSError as error:
            self._programs[pid] = error

    @property
    def descriptors(self) -> "list[int]":
        """Those that a child needs."""
        return [fd for fd in self._files.values() if isinstance(fd, int)]

    def open(self, pid: "int | str", name: str) -> int:
        """The descriptor of a file that is held, at its beginning."""
        held = self._files[pid, name]
        if isinstance(held, OSError):
            raise held
        os.lseek(held, 0, os.SEEK_SET)
        return held

    def release(self, fd: int) -> None:
        """Keep it open: it may be read again."""

    def link(self, pid: "int | str", name: str) -> str:
        """The path of the program, the only link that is held."""
        program = self._programs[pid]
        if isinstance(program, OSError):
            raise program
        return program

    def close(self) -> None:
        """Close all files, in the agent."""
        for fd in self.descriptors:
            os.close(fd)
        self._files.clear()


def read_each(
    procfs: "ProcFs", files: "Mapping[int, Sequence[str]]", function: "Callable[[ProcFs, int], Any]"
) -> "dict[int, Any]":
    """{pid: what a function makes of files of that process}, or the OSError or ValueError that prevented it.

    `files` are {pid: names}. Of processes of other users, the function runs in a child of each user, may open no other
    files, and returns a value as JSON has it, which is not to be trusted.
    """
    results: "dict[int, Any]" = {}
    users: "dict[Any, list[int]]" = {}
    for pid in files:
        try:
            user = RightsOf.of_process(procfs, pid) if os.geteuid() == 0 else None
        except (OSError, KeyError, ValueError) as error:
            results[pid] = error if isinstance(error, OSError) else ValueError("the user is not known")
            continue
        if user is not None and user.is_other:
            users.setdefault(user.key, []).append(pid)
            continue
        try:
            results[pid] = function(procfs, pid)
        except (OSError, ValueError) as error:
            results[pid] = error
    limit = limited.TimeLimit(ALL_S)
    groups = sorted(users.values(), key=len, reverse=True)
    for own in groups[:MOST_USERS]:
        _read_of_users(procfs, {pid: files[pid] for pid in own}, function, results, limit)
    shared = [pid for own in groups[MOST_USERS:] for pid in own]
    for start in range(0, len(shared), BATCH):
        batch = {pid: files[pid] for pid in shared[start : start + BATCH]}
        _read_of_users(procfs, batch, function, results, limit)
    return results


def read(procfs: "ProcFs", pid: int, names: "Sequence[str]", function: "Callable[[ProcFs, int], Any]") -> "Any":
    """The same of one process. Raises OSError and ValueError."""
    result = read_each(procfs, {pid: names}, function)[pid]
    if isinstance(result, Exception):
        raise result
    return result


def _read_of_users(
    procfs: "ProcFs",
    names: "dict[int, Sequence[str]]",
    function: "Callable[[ProcFs, int], Any]",
    results: "dict[int, Any]",
    limit: "limited.TimeLimit",
) -> None:
    problem: "ValueError | None" = None
    pids = list(names)
    for start in range(0, len(pids), BATCH):
        batch = pids[start : start + BATCH]
        answers: "list[Any]" = []
        most_s = min(CHILD_S, limit.left_s)
        own = limited.TimeLimit(most_s)
        if not limit.left_s:
            problem = problem or ValueError("other processes took %d s" % ALL_S)
        if problem is None:
            files = OpenedFiles(procfs)
            try:
                for pid in batch:
                    files.hold(pid, names[pid])
                answers = limited.call(
                    lambda: [answer_of(function, files, pid) for pid in batch],  # noqa: B023
                    files.descriptors,
                    own,
                )
                if len(answers) != len(batch):
                    raise ValueError("invalid answer")
            except ValueError as error:
                problem = error  # the others of this user are not read either: they may take as long
            finally:
                limit.left_s = max(0.0, limit.left_s - (most_s - own.left_s))
                files.close()
        for pid, answer in zip(batch, answers if problem is None else [None] * len(batch)):  # noqa: B905 - Python 3.6
            results[pid] = problem or value_of(answer)


def answer_of(function: "Callable[[ProcFs, int], Any]", files: "OpenedFiles", pid: int) -> "list[Any]":
    """In the child: (error number or 0, value)."""
    try:
        return [0, function(files, pid)]
    except OSError as error:
        return [error.errno or 5, None]
    except ValueError:
        return [-1, None]


def value_of(answer: "Any") -> "Any":
    """The value of an answer of `answer_of`, or the OSError or ValueError that it states, or that it is invalid."""
    if not isinstance(answer, list) or len(answer) != 2 or type(answer[0]) is not int or abs(answer[0]) > 4095:
        return ValueError("invalid answer")
    code, value = answer
    return value if code == 0 else ValueError("invalid data") if code < 0 else OSError(code, os.strerror(code))


# -- values of a child -------------------------------------------------------------------------------------------------


def as_text(value: "Any", longest: int = LONGEST) -> str:
    """A text of at most that many characters. Raises ValueError."""
    if not isinstance(value, str) or len(value) > longest:
        raise ValueError("invalid answer")
    value.encode("utf-8")  # a lone surrogate is a ValueError
    return value


def as_texts(value: "Any", most: int = MOST_TEXTS, longest: int = LONGEST) -> "list[str]":
    """A list of at most that many texts. Raises ValueError."""
    return [as_text(text, longest) for text in as_list(value, most)]


def as_number(value: "Any", most: int = _INT64) -> int:
    """An integer from 0 to `most`, which is not included. Raises ValueError."""
    if type(value) is not int or not 0 <= value < most:
        raise ValueError("invalid answer")
    return value


def as_list(value: "Any", most: int) -> "list[Any]":
    """A list of at most that many values. Raises ValueError."""
    if not isinstance(value, list) or len(value) > most:
        raise ValueError("invalid answer")
    return value


def as_fields(value: "Any", count: int) -> "list[Any]":
    """A list of that many values. Raises ValueError."""
    if not isinstance(value, list) or len(value) != count:
        raise ValueError("invalid answer")
    return value
