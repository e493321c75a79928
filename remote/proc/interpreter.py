"""The Python version of a process, from the names of its files; no program is started."""

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .procfs import ProcFs

_EXECUTABLE = re.compile(r"^python(\d+)\.(\d+)(t?)d?$")
_LIBRARY = re.compile(rb"/libpython(\d+)\.(\d+)(t?)d?\.so")


class PythonVersion(object):
    """`number` is (3, 13); `free_threaded` marks a build without the GIL (3.13t)."""

    __slots__ = ("free_threaded", "number")

    def __init__(self, major: "str | bytes", minor: "str | bytes", flag: "str | bytes") -> None:
        self.number = (int(major), int(minor))
        self.free_threaded = bool(flag)

    def __str__(self) -> str:
        return "Python %d.%d%s" % (self.number[0], self.number[1], "t" if self.free_threaded else "")


def version_of(procfs: "ProcFs", pid: int) -> "PythonVersion | None":
    """Version in the name of the executable or of the loaded library; None if neither has one."""
    try:
        program = _EXECUTABLE.match(os.path.basename(procfs.link(pid, "exe")))
        if program:
            return PythonVersion(*program.groups())
        library = _LIBRARY.search(procfs.read(pid, "maps", 1 << 22))
    except OSError:
        return None  # gone, or not readable
    return PythonVersion(*library.groups()) if library else None


def folders_of(procfs: "ProcFs", pid: int) -> "list[str]":
    """Folders of the process's commands: those of its first argument and of its executable."""
    folders = []
    try:
        argv = procfs.argv(pid)
        if argv and os.path.isabs(argv[0]):
            folders.append(os.path.dirname(argv[0]))
        folders.append(os.path.dirname(procfs.link(pid, "exe")))
    except OSError:
        pass  # gone, or not readable
    return folders
