"""Core dumps by the names of their files: which program and process, when, how large; never their contents.

systemd-coredump: core.COMM.UID.BOOT.PID.TIME(µs)[.zst]; abrt: ccpp-DATE-PID folders; apport: _PATH.UID.crash; others by
kernel.core_pattern (core(5)), if it is an absolute path.
"""

import os
import re
import stat
from itertools import islice

from ..proc.procfs import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator

#: Entries of a folder that are looked at.
MOST_ENTRIES = 4096
_SYSTEMD = re.compile(
    r"core\.(?P<comm>.{1,255})\.(?P<uid>[0-9]{1,10})\.[0-9a-f]{32}\.(?P<pid>[0-9]{1,7})\.(?P<time>[0-9]{10,16})(?:\.\w{1,5})?"
)
_ABRT = re.compile(r"(?:ccpp|core)-(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9:.]{8,15})-(?P<pid>[0-9]{1,7})(?:\.new)?")
_APPORT = re.compile(r"(?P<path>_.{1,255})\.(?P<uid>[0-9]{1,10})\.crash")
#: Specifiers of core_pattern whose value is read, and what each other one may be.
_SPECIFIERS = {"p": r"(?P<pid>[0-9]{1,7})", "P": r"(?P<pid>[0-9]{1,7})", "e": r"(?P<comm>.{1,16})",
               "s": r"(?P<signal>[0-9]{1,2})", "u": r"(?P<uid>[0-9]{1,10})", "t": r"[0-9]{1,12}", "%": "%"}  # fmt: skip
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


class CoreDump(object):
    """One file. Times in s; None where its name does not contain it."""

    __slots__ = ("at_s", "comm", "path", "pid", "signal", "size")

    def __init__(self, path: str, at_s: float, size: "int | None", comm: str, pid: "int | None", signal: str) -> None:
        self.path, self.at_s, self.size, self.comm, self.pid, self.signal = path, at_s, size, comm, pid, signal


def folders(core_pattern: str, root: str = "") -> "list[tuple[str, re.Pattern[str]]]":
    """(folder, pattern of the names) of where core dumps may be."""
    places = [
        (root + "/var/lib/systemd/coredump", _SYSTEMD), (root + "/var/spool/abrt", _ABRT),
        (root + "/var/tmp/abrt", _ABRT), (root + "/var/crash", _APPORT),
    ]  # fmt: skip
    folder, _, name = core_pattern.strip().rpartition("/")
    if folder.startswith("/") and "%" not in folder and name and len(name) < 128:
        parts = re.split("(%.)", name)
        text, seen = "", set()
        for part in parts:
            wanted = _SPECIFIERS.get(part[1:], ".{0,64}") if part.startswith("%") else re.escape(part)
            text += re.sub(r"\?P<\w+>", "?:", wanted) if wanted in seen else wanted
            seen.add(wanted)
        if "pid" not in text:
            text += r"(?:\.(?P<pid>[0-9]{1,7}))?"  # kernel.core_uses_pid
        try:
            places.append((root + folder, re.compile(text)))
        except re.error:
            pass
    return places


def core_pattern() -> str:
    """kernel.core_pattern, "" if unknown."""
    return (read_text("/proc/sys/kernel/core_pattern") or "").strip()


def find(
    places: "list[tuple[str, re.Pattern[str]]]", since_s: float, refused: "Callable[[str, str], None]"
) -> "Iterator[CoreDump]":
    """Core dumps newer than `since_s`; `refused(folder, reason)` for a folder that may not be read."""
    for folder, pattern in places:
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                refused(folder, error.strerror or "error")
            continue
        try:
            with os.scandir(folder) as entries:  # only names; they are looked up below the folder that was opened
                names = [entry.name for entry in islice(entries, MOST_ENTRIES)]
            for name in names:
                dump = _core_dump(fd, folder, name, pattern)
                if dump is not None and dump.at_s >= since_s:
                    yield dump
        except OSError as error:
            refused(folder, error.strerror or "error")
        finally:
            os.close(fd)


def _core_dump(fd: int, folder: str, name: str, pattern: "re.Pattern[str]") -> "CoreDump | None":
    match = pattern.fullmatch(name)
    if match is None:
        return None
    try:
        facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return None
    if not stat.S_ISREG(facts.st_mode) and not (stat.S_ISDIR(facts.st_mode) and pattern is _ABRT):
        return None
    groups = match.groupdict()
    comm = _ESCAPED.sub(lambda hexadecimal: chr(int(hexadecimal.group(1), 16)), groups.get("comm") or "")
    if groups.get("path"):
        comm = groups["path"].rpartition("_")[2]
    at_s = int(groups["time"][:10]) if groups.get("time") else facts.st_mtime
    size = facts.st_size if stat.S_ISREG(facts.st_mode) else None
    pid = int(groups["pid"]) if groups.get("pid") else None
    return CoreDump("%s/%s" % (folder, name), at_s, size, comm, pid, groups.get("signal") or "")
