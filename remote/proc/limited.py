"""Parses large input of users in a child process with limits of memory and CPU time."""

import json
import os
import resource
import signal

from .user_files import RightsOf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, TypeVar

    Parsed = TypeVar("Parsed")

#: Bytes of input that is parsed in the agent itself: its values take 32 MiB at most.
SMALL = 1 << 19
#: Bytes that a child may allocate beyond what the agent has, and the seconds of CPU time and of time that it may use.
MOST_MEMORY, MOST_CPU_S, MOST_S = 256 << 20, 5, 30
#: Bytes that a child may answer.
MOST_RESULT = 64 << 20
#: The user that a parser becomes where the agent is root: nobody, whose rights it does not need either.
_OVERFLOW_UID = 65534


def parse(kind: "type[Parsed]", parser: "Callable[[bytes], Parsed]", data: bytes) -> "Parsed":
    """What `parser` makes of data, an object of `kind` with attributes as JSON has them; large data in a child.

    The child has no rights, no files and no terminal. It is forked without an exec: the parser must not use locks of
    other threads. Raises ValueError as the parser, and for data that needs more than a child may use.
    """
    if len(data) <= SMALL:
        return parser(data)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run(parser, data, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        made = pipe.read(MOST_RESULT + 1)
    if len(made) > MOST_RESULT:
        os.kill(pid, signal.SIGKILL)
    if os.waitpid(pid, 0)[1]:
        raise ValueError("needs more than 256 MiB of memory or 5 s of CPU time")
    values = json.loads(made.decode("ascii"))
    if isinstance(values, str):
        raise ValueError(values)
    parsed = kind.__new__(kind)
    parsed.__dict__.update(values)
    return parsed


def _run(parser: "Callable[[bytes], Any]", data: bytes, writer: int) -> None:
    """In the child: nothing of the agent may run here, no handlers and no buffers of its output."""
    code = 1
    try:
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        _give_up_everything(writer)
        resource.setrlimit(resource.RLIMIT_AS, (size + MOST_MEMORY,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
        signal.alarm(MOST_S)
        try:
            made: "Any" = vars(parser(data))
        except ValueError as error:
            made = str(error)
        with os.fdopen(writer, "w") as pipe:
            pipe.write(json.dumps(made))
        code = 0
    finally:
        os._exit(code)


def _give_up_everything(writer: int) -> None:
    """Keep one descriptor, and no way to get another or to reach anything."""
    os.setsid()
    os.chdir("/")
    for name in os.listdir("/proc/self/fd"):
        if int(name) != writer:
            try:
                os.close(int(name))
            except OSError:
                pass  # that of the list
    RightsOf(_OVERFLOW_UID).drop()
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(limit, (0, 0))
