"""Boots and shutdowns of the node: when it booted, and whether it was shut down before.

/var/log/wtmp has records of struct utmp (utmp(5)): 384 bytes where its times have
32 bits (x86_64, ppc64), else 400.
"""

import os
import stat
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

    from .journal import Entry

WTMP = "/var/log/wtmp"
#: Bytes that are read of it, from its end.
MAX_BYTES = 1 << 20
RUN_LEVEL, BOOT = 1, 2
#: type, user, kernel release, seconds, µs.
_FORMATS = {384: struct.Struct("=h2x4x32x4x32s256s4x4xii36x"), 400: struct.Struct("=h2x4x32x4x32s256s4x8xqq36x4x")}
#: Seconds by which the clock may be wrong when the record of a boot is written.
WRONG_S = 600
#: What the last entries of a journal say when a node is shut down (systemd).
_SHUTDOWN = ("Journal stopped", "Reached target Shutdown", "Reached target System Shutdown", "Reached target Reboot",
             "Reached target System Reboot", "Reached target Power-Off", "Reached target System Power Off",
             "Reached target Final Step", "Reached target Late Shutdown", "Reached target reboot.target",
             "Reached target poweroff.target", "Reached target shutdown.target", "Reached target final.target",
             "Shutting down.", "The system will reboot now", "The system will power off now", "System is rebooting",
             "System is powering down")  # fmt: skip


def read_tail(path: str, most: int) -> "tuple[bytes, int]":
    """(its last `most` bytes, its size) of a regular file, opened without links or waiting. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(22, "not a regular file", path)
        return os.pread(fd, most, max(0, facts.st_size - most)), facts.st_size
    finally:
        os.close(fd)


class Record(object):
    """A boot (`is_boot`), shutdown or other record of wtmp: time in s, kernel release."""

    __slots__ = ("at_s", "is_boot", "is_shutdown", "kernel")

    def __init__(self, at_s: float, is_boot: bool, is_shutdown: bool, kernel: str) -> None:
        self.at_s, self.is_boot, self.is_shutdown, self.kernel = at_s, is_boot, is_shutdown, kernel


class Boot(object):
    """The last boot, as far as known: `was_orderly` is None if unknown; `last_s` is the last sign of life before it."""

    __slots__ = ("kernel_before", "last_s", "was_orderly")

    def __init__(self, was_orderly: "bool | None" = None, last_s: "float | None" = None, kernel: str = "") -> None:
        self.was_orderly, self.last_s, self.kernel_before = was_orderly, last_s, kernel


def read_wtmp(path: str = WTMP) -> "list[Record]":
    """Its newest records, the oldest first. Raises OSError; ValueError if it has another format."""
    data, size = read_tail(path, MAX_BYTES)
    if not data:
        return []
    for length, layout in _FORMATS.items():
        if size % length == 0:
            records = list(_records(data[len(data) % length :], layout))
            if records:
                return records
    raise ValueError("%s: not the format of this machine's wtmp" % path)


def _records(data: bytes, layout: "struct.Struct") -> "Iterator[Record]":
    for kind, user, kernel, seconds, micros in layout.iter_unpack(data):
        if not 0 <= kind <= 9 or not 0 <= micros < 1000000 or not 0 <= seconds < 1 << 33:
            return
        if seconds:
            name = user.partition(b"\0")[0]
            is_shutdown = kind == RUN_LEVEL and name == b"shutdown"
            release = kernel.partition(b"\0")[0].decode("utf-8", "replace") if kind in (RUN_LEVEL, BOOT) else ""
            yield Record(seconds + micros / 1e6, kind == BOOT, is_shutdown, release)


def last_boot(records: "list[Record]", booted_s: float) -> Boot:
    """How the boot at `booted_s` came about, from records of wtmp; unknown if they lack it."""
    index = max([i for i, record in enumerate(records) if record.is_boot] or [-1])
    if index < 1 or abs(records[index].at_s - booted_s) > WRONG_S:
        return Boot()
    before = records[:index]
    previous = max([i for i, record in enumerate(before) if record.is_boot] or [-1])
    is_orderly = any(record.is_shutdown for record in before[previous + 1 :])
    kernels = [record.kernel for record in before if record.is_boot and record.kernel]
    last_s = max(record.at_s for record in before[max(previous, 0) :])
    return Boot(is_orderly if is_orderly or previous >= 0 else None, last_s, kernels[-1] if kernels else "")


def boot_of_journal(entries: "list[Entry]") -> Boot:
    """The same from the newest entries of the boot before; unknown without any."""
    if not entries:
        return Boot()
    is_orderly = any(
        entry.text.startswith(_SHUTDOWN) or " - System Shutdown" in entry.text
        for entry in entries
        if entry.is_of_system or entry.word("_TRANSPORT") == "driver"
    )
    return Boot(is_orderly, max(entry.at_ns for entry in entries) / 1e9)
