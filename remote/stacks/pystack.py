"""One process's stacks by pystack, where the node has it: it knows free-threaded and newer Pythons than py-spy does.

It is run from the environment of the process itself, or from PATH; nothing is installed. `--no-block` stops nobody.
"""

import os
import re
import shutil
import stat
import time

from ..agent import commands
from ..proc import interpreter
from ..proc.procfs import printable
from .py_spy import MOST_THREADS, NoStack, Thread

ENGINE, MODE = "pystack", "nonblocking"
NAME = "pystack"
#: How often a read that made no sense is made anew.
AGAIN = 2

_HEAD = re.compile(r"^Traceback for thread (\d+)(?: \((.*)\))? \[(.*)\] \(most recent call last\):$")
_FRAME = re.compile(r'^    \(Python\) File "(.*)", line (\d+), in (.*)$')
_SECTION = re.compile(r"^      (?:Arguments|Locals):$")
_VALUE = re.compile(r"^        ([^\s:]+): (.*)$")
#: What it says where the kernel does not let it.
_DENIED = ("cannot be traced", "Operation not permitted", "Permission denied")


def command_for(procfs, pid):
    """The pystack that may be run for this process, or None: of its own environment, else of the agent's PATH."""
    beside = [os.path.join(folder, NAME) for folder in interpreter.folders_of(procfs, pid)]
    for path in beside + [shutil.which(NAME)]:
        path = path and os.path.realpath(path)
        if path and may_run(path):
            return path
    return None


def may_run(path):
    """Whether nobody but root and the agent's own user can have put this program there, or can change it."""
    part = path
    try:
        while True:
            facts = os.stat(part)
            is_open = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not facts.st_mode & stat.S_ISVTX
            if facts.st_uid not in (0, os.geteuid()) or is_open:
                return False
            if part == "/":
                return os.access(path, os.X_OK)
            part = os.path.dirname(part)
    except OSError:
        return False


def threads_of(path, pid, timeout_s, wanted=frozenset()):
    """The Python threads of a process, as `pyspy.threads_of` gives them. Raises NoStack."""
    deadline = time.monotonic() + timeout_s
    problem = None
    for _ in range(1 + AGAIN):
        left = deadline - time.monotonic()
        if left <= 0.01:
            break
        try:
            command = "pystack_locals" if wanted else "pystack_dump"
            status, out, err = commands.run_apart(command, left, blob=path, pid=pid)
        except commands.NoAnswer:
            raise NoStack("timed_out", "pystack did not read it within %.1f s" % timeout_s)
        except OSError as error:
            raise NoStack("tool_missing", "pystack does not run here: %s" % error)
        if status == 0:
            try:
                return parse(out.decode("utf-8", "backslashreplace"), pid, wanted)
            except ValueError as error:
                problem = NoStack("unreadable", str(error))
        else:
            problem = _refusal(err.decode("utf-8", "backslashreplace"), status)
            if problem.status != "unreadable":
                raise problem
    raise problem or NoStack("timed_out", "pystack did not read it within %.1f s" % timeout_s)


def parse(text, pid, wanted=frozenset()):
    """The threads in pystack's text, which has no other form. Raises ValueError where it has none."""
    threads = []
    said = frame = None
    in_values = False
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            said = _thread(head, pid)
            threads.append(said)
            continue
        if said is None:
            continue
        found = _FRAME.match(line)
        if found:
            frame = {"filename": found.group(1), "line": int(found.group(2)), "name": found.group(3), "locals": []}
            said["frames"].append(frame)
            in_values = False
        elif _SECTION.match(line):
            in_values = frame is not None
        elif in_values:
            value = _VALUE.match(line)
            if value:
                frame["locals"].append({"name": value.group(1), "repr": value.group(2)})
    for said in threads:
        said["frames"].reverse()  # py-spy tells them from the innermost outward
    read = [Thread(said, wanted) for said in threads[:MOST_THREADS] if said["frames"]]
    if not read:
        raise ValueError("pystack told no thread with a Python stack")
    return read


def _thread(head, pid):
    tid, name, status = int(head.group(1)), head.group(2), head.group(3)
    return {
        "thread_id": tid, "os_thread_id": tid, "thread_name": "MainThread" if tid == pid else name,
        "active": False, "owns_gil": "Has the GIL" in status, "frames": [],
    }  # fmt: skip


def _refusal(said, status):
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if any(words in said for words in _DENIED):
        return NoStack("no_permission", "the kernel does not let the agent read it")
    return NoStack("unreadable", "pystack: %s" % printable(" ".join(lines[:3]) or "status %s" % status, 300))
