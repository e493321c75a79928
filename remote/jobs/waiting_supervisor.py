"""Forks the supervisor of a job ahead of its start, which then takes no new interpreter: 40 ms of CPU less.

It is forked while the agent has one thread and its own niceness. It keeps no descriptor of the agent, and leaves its
session; it ends with the agent, unless a job was started in it. All its modules are loaded before.
"""

import ctypes
import errno
import gc
import os
import sys

from ..proc.procfs import ProcFs, read_text
from ..proc.threads import Thread
from . import supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

#: Fields of /proc/PID/stat after the name in parentheses: where the arguments begin and end in memory.
_ARG_START, _ARG_END = 45, 46
#: Bytes. Upper bound of the arguments that are replaced.
_MOST_ARGS = 1 << 16


class WaitingSupervisor(object):
    """A forked process that waits for the folder of the job which it is to run."""

    def __init__(self) -> None:
        """Raises OSError. Call it before threads start."""
        if hasattr(gc, "freeze"):  # Python 3.7: collections of both do not touch, and so copy, what exists by now
            gc.freeze()
        order, self._order = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:
            os.close(order)
            os.close(self._order)
            raise
        if not self._pid:
            try:
                os.close(self._order)
                _run(order)
            finally:
                os._exit(1)  # it must not return into the code of the agent
        os.close(order)

    def is_alive(self) -> bool:
        """Whether it still waits."""
        try:
            return os.waitpid(self._pid, os.WNOHANG) == (0, 0)
        except OSError:
            return False

    def start(self, folder: str) -> bool:
        """Have it run the job in this folder; False if it has ended. Call it once."""
        try:
            os.write(self._order, os.fsencode(folder))
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            return False
        finally:
            os.close(self._order)
        Thread(target=self._reap, name="gconsole-reap").start()
        return True

    def _reap(self) -> None:
        try:
            os.waitpid(self._pid, 0)
        except OSError:
            pass  # it was reaped by `is_alive`


def _run(order: int) -> "NoReturn":
    """Wait for a folder and run its job; ends the process."""
    order = _detach(order)
    folder = os.fsdecode(os.read(order, 1 << 16))
    os.close(order)
    if not folder:
        os._exit(0)  # the agent has ended
    log = os.open(os.path.join(folder, "supervisor.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    rename([sys.executable, "-I", "-S", "-B", os.path.join(folder, "supervisor.py")])
    try:
        supervisor.main(folder)
    except Exception:  # noqa: BLE001 - as the interpreter would
        import traceback  # only after a failure: 2 ms of each start

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _detach(order: int) -> int:
    """Leave the session and every descriptor but `order`, which is returned anew."""
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    kept = os.dup(order)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            try:
                os.close(int(name))
            except OSError:
                pass  # that of the listing
    return kept


def rename(argv: "list[str]") -> None:
    """Replace the arguments of this process, by which `ps` names it; as far as they fit where the old ones are."""
    stat = (read_text("/proc/self/stat") or "").rpartition(")")[2].split()
    if len(stat) <= _ARG_END:
        return
    begin, end = int(stat[_ARG_START]), int(stat[_ARG_END])
    size = end - begin
    data = b"".join(os.fsencode(word) + b"\0" for word in argv)
    # some kernels give no address, or another one: only what holds the arguments is written to
    if 0 < begin < end and size <= _MOST_ARGS and ctypes.string_at(begin, size) == ProcFs().read("self", "cmdline"):
        ctypes.memmove(begin, data[: size - 1].ljust(size, b"\0"), size)
