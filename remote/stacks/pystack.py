"""Stacks of one process by pystack, which supports free-threaded and newer Pythons than py-spy.

It is run from the environment of the process, or from PATH; nothing is installed. `--no-block` does not stop the
process.
"""

import os
import re

from ..proc import programs
from ..proc.procfs import printable
from ..proc.trusted_programs import trusted_path
from ..proc.user_files import RightsOf
from .py_spy import MAX_THREADS, PARSERS, PythonThread, StackError, run_tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Match
    from typing import Any

    from ..proc.limited import Parsers
    from ..proc.procfs import ProcFs

ENGINE, MODE = "pystack", "nonblocking"
NAME = "pystack"


_HEAD = re.compile(r"^Traceback for thread (\d+)(?: \((.*)\))? \[(.*)\] \(most recent call last\):$")
_FRAME = re.compile(r'^    \(Python\) File "(.*)", line (\d+), in (.*)$')
_SECTION = re.compile(r"^      (?:Arguments|Locals):$")
_VALUE = re.compile(r"^        ([^\s:]+): (.*)$")
#: Error messages for lacking permission.
_DENIED = ("cannot be traced", "Operation not permitted", "Permission denied")


def find_program(procfs: "ProcFs", pid: int) -> "str | None":
    """A trusted pystack of the process's environment, else of the agent's PATH; or None."""
    try:
        with RightsOf.of_process(procfs, pid):  # the process names the paths that are examined
            trusted = [trusted_path(os.path.join(folder, NAME)) for folder in programs.folders_of(procfs, pid)]
    except (OSError, KeyError, ValueError):
        trusted = []
    import shutil  # only when a capture needs it: 0.3 MB

    own = shutil.which(NAME)
    return next((path for path in trusted + [own and trusted_path(own)] if path), None)


def read_threads(
    path: str,
    pid: int,
    timeout_s: float,
    names: "frozenset[str]" = frozenset(),
    parsers: "Parsers | None" = None,
) -> "list[PythonThread]":
    """The Python threads of a process, as of `py_spy.read_threads`. Raises StackError."""
    command = "pystack_locals" if names else "pystack_dump"
    return run_tool(ENGINE, command, path, pid, timeout_s, names, _classify_error, parsers=parsers)


def parse(text: str, pid: int, names: "frozenset[str]" = frozenset()) -> "list[PythonThread]":
    """The threads in pystack's text output, its only format. Raises ValueError if it has none."""
    threads: "list[dict[str, Any]]" = []
    thread: "dict[str, Any] | None" = None
    frame: "dict[str, Any]" = {}
    in_values = False
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            thread = _thread(head, pid)
            threads.append(thread)
            continue
        if thread is None:
            continue
        call = _FRAME.match(line)
        if call:
            frame = {"filename": call.group(1), "line": int(call.group(2)), "name": call.group(3), "locals": []}
            thread["frames"].append(frame)
            in_values = False
        elif _SECTION.match(line):
            in_values = bool(frame)
        elif in_values:
            value = _VALUE.match(line)
            if value:
                frame["locals"].append({"name": value.group(1), "repr": value.group(2)})
    for thread in threads:
        thread["frames"].reverse()  # py-spy's order: innermost first
    parsed = [PythonThread(thread, names) for thread in threads[:MAX_THREADS] if thread["frames"]]
    if not parsed:
        raise ValueError("no thread with a Python stack")
    return parsed


PARSERS[ENGINE] = lambda data, pid, names: parse(data.decode("utf-8", "backslashreplace"), pid, names)


def _thread(head: "Match[str]", pid: int) -> "dict[str, Any]":
    tid, name, status = int(head.group(1)), head.group(2), head.group(3)
    return {
        "thread_id": tid, "os_thread_id": tid, "thread_name": "MainThread" if tid == pid else name,
        "active": False, "owns_gil": "Has the GIL" in status, "frames": [],
    }  # fmt: skip


def _classify_error(message: str, status: int) -> "StackError":
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if any(words in message for words in _DENIED):
        return StackError("no_permission", "permission denied by the kernel")
    return StackError("unreadable", "pystack: %s" % printable(" ".join(lines[:3]) or "status %s" % status, 300))
