"""The journal of systemd, through journalctl: entries of services and of the kernel that matter to a training job.

What an entry says of its origin is believed only where journald itself noted it (systemd.journal-fields(7)): the fields
that begin with an underscore. Any user may write any text under any identifier.
"""

import glob
import json
import os
import re
import time

from ..agent.commands import LineStream
from . import service_faults

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

#: Limits of one call of journalctl.
TIMEOUT_S, MAX_BYTES = 15.0, 16 << 20
#: Seconds. What is older is not read.
OLDEST_S = 24 * 3600
FOLDERS = ("/var/log/journal", "/run/log/journal")
#: Users of services have smaller ids (login.defs, SYS_UID_MAX).
FIRST_USER = 1000
#: MESSAGE_ID of systemd-coredump (systemd, sd-messages.h).
CORE_DUMP = "fc2e22bc6ee647b6b90729ab34a250b1"
_FIELDS = (
    "MESSAGE", "MESSAGE_ID", "SYSLOG_FACILITY", "UNIT", "_TRANSPORT", "_PID", "_UID", "_SYSTEMD_UNIT", "_BOOT_ID",
    "_SOURCE_MONOTONIC_TIMESTAMP", "COREDUMP_PID", "COREDUMP_UID", "COREDUMP_SIGNAL", "COREDUMP_COMM", "COREDUMP_EXE",
    "COREDUMP_FILENAME", "COREDUMP_TIMESTAMP",
)  # fmt: skip
_CONTROL = re.compile("[\x00-\x1f\x7f]")


class Entry(object):
    """One entry: text, time (CLOCK_REALTIME, ns), boot, and the fields of its origin."""

    __slots__ = ("at_ns", "boot_id", "cursor", "fields", "text")

    def __init__(self, fields: "dict[str, Any]") -> None:
        """Raises KeyError or ValueError for what is not an entry."""
        self.fields = fields
        self.at_ns = _number(fields["__REALTIME_TIMESTAMP"]) * 1000
        self.cursor = str(fields["__CURSOR"])
        self.boot_id = str(fields.get("_BOOT_ID", ""))
        self.text = _text(fields.get("MESSAGE"))

    def word(self, name: str) -> str:
        """The value of a field, "" if it is absent or not one text."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> "int | None":
        """The value of a field as a number, or None."""
        try:
            return _number(self.word(name))
        except ValueError:
            return None

    @property
    def is_kernel(self) -> bool:
        """Whether journald read it from the kernel log, and the kernel itself wrote it there (facility 0)."""
        return self.word("_TRANSPORT") == "kernel" and self.number("SYSLOG_FACILITY") == 0

    @property
    def is_of_system(self) -> bool:
        """Whether a process of the system, not of a person, wrote it."""
        uid = self.number("_UID")
        return self.word("_TRANSPORT") in ("journal", "stdout", "syslog") and uid is not None and uid < FIRST_USER

    def since_boot_s(self) -> "float | None":
        """For a message of the kernel: its time there, s since boot, the same as in /dev/kmsg."""
        micros = self.number("_SOURCE_MONOTONIC_TIMESTAMP")
        return None if micros is None else micros / 1e6


class Journal(object):
    """Calls of journalctl; `reason` is why the last one was not complete."""

    def __init__(self) -> None:
        self.reason = ""
        self.cpu_s = 0.0  # of the last call
        self.unparsed = self.parsed = 0

    def entries(
        self, matches: "list[str]", since: "list[str]", most: int = 1 << 20, command: str = "journal"
    ) -> "Iterator[Entry]":
        """Entries that match, the newest first unless `command` is another. Raises OSError if it does not start."""
        fields = "--output-fields=" + ",".join(_FIELDS)
        words = {"{fields}": [fields], "{since}": since, "{matches}": matches}
        stream = LineStream(command, words, TIMEOUT_S, MAX_BYTES)
        lines = iter(stream)
        self.unparsed = self.parsed = 0
        try:
            for line in lines:
                entry = _entry(line)
                self.unparsed += entry is None
                if entry is not None:
                    self.parsed += 1
                    yield entry
                if self.parsed >= most:
                    return
        finally:
            lines.close()  # type: ignore[attr-defined]
            self.reason, self.cpu_s = stream.reason, stream.cpu_s
            if self.unparsed and not self.parsed:
                self.reason = "journalctl prints another format than JSON"


class JournalFollower(object):
    """Entries of some matches that are wanted: those of the last `OLDEST_S` first, then each time the newer ones."""

    def __init__(self, matches: "list[str]", is_wanted: "Callable[[Entry], bool]") -> None:
        self._matches, self._is_wanted = matches, is_wanted
        self._cursor = ""  # of the newest entry that was read
        self._since_s = time.time() - OLDEST_S

    def read(self, source: "Journal", until: "list[str]") -> "list[Entry]":
        """Wanted entries, the oldest first. Raises OSError if journalctl does not start."""
        began_s, is_first = time.time(), not self._cursor
        since = ["--since=@%d" % self._since_s] if is_first else ["--after-cursor=" + self._cursor]
        wanted, newest = [], ""
        for entry in source.entries(self._matches, since + until, command="journal" if is_first else "journal_after"):
            newest = newest if newest and is_first else entry.cursor
            if self._is_wanted(entry):
                wanted.append(entry)
        if source.reason and not newest:
            self._cursor = ""  # its entry may have been deleted
        else:
            self._cursor, self._since_s = newest or self._cursor, began_s
        return wanted[::-1] if is_first else wanted


def obstacle(folders: "tuple[str, ...]" = FOLDERS, can_read: "Callable[[str, int], bool]" = os.access) -> "str | None":
    """Why this process can read no journal of the system: "" if there is none, None if it can."""
    files = [path for folder in folders for path in glob.glob(glob.escape(folder) + "/*/system*.journal")[:64]]
    if not files:
        return ""
    if not any(can_read(path, os.R_OK) for path in files):
        return "the journal of the system may not be read"
    return None


def service_matches() -> "list[str]":
    """Matches for the entries of services, of systemd about units, and of core dumps."""
    matches = ["_SYSTEMD_UNIT=" + unit for unit in service_faults.units()]
    matches += ["+"] + ["UNIT=" + unit for unit in service_faults.IMPORTANT]
    return matches + ["+", "MESSAGE_ID=" + CORE_DUMP]


KERNEL_MATCHES = ["_TRANSPORT=kernel"]


def _entry(line: bytes) -> "Entry | None":
    try:
        fields = json.loads(line.decode("utf-8", "replace"))
        return Entry(fields) if isinstance(fields, dict) else None
    except (KeyError, ValueError, RecursionError):
        return None


def _number(text: "Any") -> int:
    """A number of ASCII digits. Raises ValueError."""
    if not isinstance(text, str) or not re.match(r"[0-9]{1,18}$", text):
        raise ValueError("not a number")
    return int(text)


def _text(value: "Any") -> str:
    """The message as one line: bytes are an array of numbers, large ones null; controls as /dev/kmsg escapes them."""
    if isinstance(value, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
        value = bytes(bytearray(value)).decode("utf-8", "replace")
    if not isinstance(value, str):
        return ""
    return _CONTROL.sub(lambda match: "\\x%02x" % ord(match.group()), value.rstrip("\n"))
