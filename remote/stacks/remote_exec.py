"""Evaluates one expression in the process of a rank by `sys.remote_exec` (PEP 768), without a debugger.

The rank and the agent have the same version of CPython, 3.14 or newer, and see the same files. A process of the rank's
user writes the program into a file of a folder that only this user may enter; the main thread of the rank executes it
between two bytecodes. If it does not reach one in time, nothing is executed later.
"""

import os
import sys
import uuid

from ..agent import commands
from ..agent.requests import RequestError
from ..proc import limited
from ..proc.apart import as_fields, as_text
from ..proc.procfs import ProcFs, printable
from ..proc.user_files import RightsOf
from . import remote_exec_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..proc.programs import PythonVersion

OLDEST = (3, 14)
#: Seconds beyond the time that the rank has: start of a process, its files.
START_S = 20.0
#: Characters of a reason.
MAX_PROBLEM = 300
_SWITCHES = "PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug is set for it"


def is_possible(procfs: "ProcFs", pid: int, version: "PythonVersion") -> bool:
    """Whether the agent's Python can have a file executed in a rank: the same version, and the same files."""
    number = tuple(version.number)[:2]
    if not OLDEST <= number == sys.version_info[:2] or not hasattr(sys, "remote_exec"):
        return False
    try:
        same_root = os.path.samestat(os.stat(os.path.join(procfs.root, str(pid), "root")), os.stat("/"))
        own = os.readlink(os.path.join(procfs.root, "self", "ns", "mnt"))
        return same_root and os.readlink(os.path.join(procfs.root, str(pid), "ns", "mnt")) == own
    except OSError:
        return False


def execute(pid: int, source: bytes, wait_s: float, limit: int) -> bytes:
    """What `source` has written into the file whose path is its variable RESULT. Raises RequestError."""
    name = "gconsole-eval-%s" % uuid.uuid4().hex
    user, word = None, ""
    try:
        user = RightsOf.of_process(ProcFs(), pid)
        status, out, err = commands.run_apart(
            "remote_exec", wait_s + START_S, pid=pid, python=sys.executable, user=user, may_trace=False,
            given=_program(pid, name, source, wait_s, limit), env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        )  # fmt: skip
        answer = limited.call(lambda: _outcome(out, err)) if user.is_other else _outcome(out, err)
        word, text = as_fields(answer, 2)
        word, text = as_text(word, MAX_PROBLEM), as_text(text, limit)
    except (commands.CommandTimeout, commands.OutputTooLong) as error:
        raise RequestError("eval_failed", "sys.remote_exec: %s" % error)
    except (KeyError, OSError, ValueError) as error:
        raise RequestError("eval_failed", "sys.remote_exec cannot be used: %s" % error)
    finally:
        if user is not None and not word:  # it was killed
            user.call(lambda: _remove(name))
    if word == remote_exec_program.DONE:
        return text.encode("utf-8")
    raise _problem(pid, word, printable(text, MAX_PROBLEM) or "exit status %s" % status, wait_s)


def _program(pid: int, name: str, source: bytes, wait_s: float, limit: int) -> bytes:
    program = "%s\n\nmain(%d, %a, %a, %r, %d)\n" % (
        commands.source_of(remote_exec_program.__name__), pid, name, source, wait_s, limit,
    )  # fmt: skip
    return program.encode("utf-8")


def _problem(pid: int, word: str, text: str, wait_s: float) -> RequestError:
    if word == remote_exec_program.TIMEOUT:
        return timeout(wait_s)
    if word == remote_exec_program.DISABLED:
        return RequestError("eval_disabled", "pid %d refuses sys.remote_exec: %s" % (pid, _SWITCHES),
                            "start the job without it")  # fmt: skip
    if word == remote_exec_program.REFUSED:
        try_ = "kernel.yama.ptrace_scope, or the capabilities of a container, may forbid to write into its memory"
        return RequestError("no_permission", "sys.remote_exec: %s" % text, try_)
    return RequestError("eval_failed", "sys.remote_exec: %s" % text)


def timeout(wait_s: float) -> RequestError:
    """The main thread did not execute the program in time."""
    problem = "the main thread executed no Python bytecode within %.0f s: it is in a call of C code" % wait_s
    return RequestError("eval_timeout", problem, "it is not evaluated later; a stack shows where the thread is")


def _outcome(out: bytes, err: bytes) -> "list[Any]":
    """[the word, the result or reason] of the output of the program; of one that failed, the last line of stderr."""
    word, separator, rest = out.partition(b"\n")
    if not separator:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        return ["", printable(lines[-1], MAX_PROBLEM) if lines else ""]
    return [word.decode("ascii", "replace"), rest.decode("utf-8", "replace")]


def _remove(name: str) -> None:
    """Remove what a program that was killed has left, with the rights of the user."""
    for parent in remote_exec_program.SHARED:
        remote_exec_program.remove_folder(os.path.join(parent, name))
