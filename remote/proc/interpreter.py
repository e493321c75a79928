"""Which Python a process runs, from the names of its files: nothing of it is started."""

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .procfs import ProcFs

_EXECUTABLE = re.compile(r"^python(\d+)\.(\d+)(t?)d?$")
_LIBRARY = re.compile(rb"/libpython(\d+)\.(\d+)(t?)d?\.so")


class Version(object):
    """`number` is (3, 13); `free_threaded` tells a build without the interpreter's lock (3.13t)."""

    __slots__ = ("free_threaded", "number")

    def __init__(self, major: "str | bytes", minor: "str | bytes", flag: "str | bytes") -> None:
        self.number = (int(major), int(minor))
        self.free_threaded = bool(flag)

    def __str__(self) -> str:
        return "Python %d.%d%s" % (self.number[0], self.number[1], "t" if self.free_threaded else "")


def version_of(procfs: "ProcFs", pid: int) -> "Version | None":
    """The version in the name of the executable, or of the library it has loaded; None where neither tells."""
    try:
        program = _EXECUTABLE.match(os.path.basename(procfs.link(pid, "exe")))
        if program:
            return Version(*program.groups())
        library = _LIBRARY.search(procfs.read(pid, "maps", 1 << 22))
    except OSError:
        return None  # gone, or not for us
    return Version(*library.groups()) if library else None


def folders_of(procfs: "ProcFs", pid: int) -> "list[str]":
    """Where the commands of a process's environment are: beside its first argument, and beside its executable."""
    found = []
    try:
        argv = procfs.argv(pid)
        if argv and os.path.isabs(argv[0]):
            found.append(os.path.dirname(argv[0]))
        found.append(os.path.dirname(procfs.link(pid, "exe")))
    except OSError:
        pass  # gone, or not for us
    return found
