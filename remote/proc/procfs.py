"""Reads /proc, one process at a time, with few system calls.

A process that is gone raises FileNotFoundError or ProcessLookupError (`GONE`), one that is not ours PermissionError.
"""

import os

GONE = (FileNotFoundError, ProcessLookupError)

#: The value of an argument whose name contains one of these is masked.
SECRETS = ("password", "passwd", "secret", "token", "api_key", "apikey", "access_key", "credential")

MAX_CMDLINE = 512
#: Bytes of maps that are read of a process; one with torch and all libraries of CUDA has 0.5 MB.
MOST_MAPS = 8 << 20

#: A thread of the kernel itself (linux/sched.h); in a container pid 2 is an ordinary process.
PF_KTHREAD = 0x00200000


class Stat(object):
    """/proc/PID/stat, or that of a thread (proc(5) numbers its fields from 1). Times in clock ticks, `rss` in pages.

    `faults` are page faults, minor and major; `processor` is the one it ran on last.
    `reaped_ticks` is the CPU time of children that ended and were waited for.

    `env_start` (50) and `exit_code` (52) are 0 where the reader lacks the rights.
    """

    __slots__ = (
        "comm", "cpu_ticks", "env_start", "exit_code", "faults", "kernel", "ppid", "processor", "reaped_ticks", "rss",
        "start_ticks", "state", "threads",
    )  # fmt: skip

    def __init__(self, data: bytes) -> None:
        # comm may hold spaces and parentheses: the last ")" ends it
        head, _, tail = data.rpartition(b")")
        fields = tail.split()
        self.comm = head.partition(b"(")[2].decode("utf-8", "replace")
        self.state = fields[0].decode("ascii", "replace")
        self.ppid = int(fields[1])
        self.kernel = bool(int(fields[6]) & PF_KTHREAD)
        self.faults = int(fields[7]) + int(fields[9])
        self.cpu_ticks = int(fields[11]) + int(fields[12])
        self.reaped_ticks = int(fields[13]) + int(fields[14])
        self.threads = int(fields[17])
        self.start_ticks = int(fields[19])
        self.rss = int(fields[21])
        self.processor = int(fields[36]) if len(fields) > 36 else 0
        self.env_start = int(fields[47]) if len(fields) > 47 else 0
        self.exit_code = int(fields[49]) if len(fields) > 49 else 0

    @property
    def dead(self) -> bool:
        """Whether all threads have ended: the main thread may be a zombie while others run."""
        return self.state in "ZXx" and self.threads <= 1


class Status(object):
    """/proc/PID/status: real uid, innermost pid, context switches, tracer, memory swapped out.

    `switches` are all of the thread, `waits` the voluntary ones.
    """

    __slots__ = ("ns_pid", "swapped_bytes", "switches", "tracer_pid", "uid", "waits")

    def __init__(self, data: bytes) -> None:
        uids = _line(data, b"\nUid:")
        self.uid = int(uids[0]) if uids else None
        pids = _line(data, b"\nNSpid:")
        self.ns_pid = int(pids[-1]) if pids else None
        tracer = _line(data, b"\nTracerPid:")
        self.tracer_pid = int(tracer[0]) if tracer else None
        swapped = _line(data, b"\nVmSwap:")
        self.swapped_bytes = int(swapped[0]) * 1024 if swapped else None
        voluntary = _line(data, b"\nvoluntary_ctxt_switches:")
        involuntary = _line(data, b"\nnonvoluntary_ctxt_switches:")
        self.waits = int(voluntary[0]) if voluntary else None
        self.switches = int(voluntary[0]) + int(involuntary[0]) if voluntary and involuntary else None


class ProcFs(object):
    """The proc file system at `root`."""

    def __init__(self, root: str = "/proc") -> None:
        self.root = root

    def names(self) -> "set[str]":
        """Every name in the root, as a set of strings: the processes and the rest."""
        return set(os.listdir(self.root))

    def uptime_s(self) -> "float | None":
        """Seconds since boot, or None."""
        words = (read_text(self.root + "/uptime") or "").split()
        try:
            return float(words[0]) if words else None
        except ValueError:
            return None

    def path(self, pid: "int | str", name: str) -> str:
        """The path of a file of a process."""
        return "%s/%s/%s" % (self.root, pid, name)

    def open(self, pid: "int | str", name: str) -> int:
        """A descriptor of a file of a process, to be given back to `release`."""
        return os.open(self.path(pid, name), os.O_RDONLY | os.O_CLOEXEC)

    def release(self, fd: int) -> None:
        """Close what `open` has opened."""
        os.close(fd)

    def read(self, pid: "int | str", name: str, limit: int = 1 << 20) -> bytes:
        """The bytes of one file of a process, at most about `limit`."""
        fd = self.open(pid, name)
        try:
            parts = []
            while limit > 0:
                part = os.read(fd, 65536)  # a short read is not the end: maps is read in whole lines
                if not part:
                    break
                parts.append(part)
                limit -= len(part)
            return b"".join(parts)
        finally:
            self.release(fd)

    def maps(self, pid: "int | str") -> bytes:
        """The mappings of a process, at most about `MOST_MAPS`. A path in it may be as long: search in linear time."""
        return self.read(pid, "maps", MOST_MAPS)

    def read_at_once(self, pid: "int | str", name: str) -> bytes:
        """The bytes of a file that the kernel makes in one piece (stat, status, wchan, comm): one read."""
        fd = self.open(pid, name)
        try:
            return os.read(fd, 16384)
        finally:
            self.release(fd)

    def stat(self, pid: "int | str") -> "Stat":
        """The parsed `stat` of a process."""
        return Stat(self.read_at_once(pid, "stat"))

    def status(self, pid: "int | str") -> "Status":
        """The parsed `status` of a process."""
        return Status(self.read_at_once(pid, "status"))

    def link(self, pid: "int | str", name: str) -> str:
        """The target of a link of a process."""
        return os.readlink(self.path(pid, name))

    def argv(self, pid: "int | str") -> "list[str]":
        """The arguments, decoded; [] for a kernel thread, or a process that has overwritten them with nothing."""
        data = self.read(pid, "cmdline", 1 << 17)
        return [part.decode("utf-8", "replace") for part in data.rstrip(b"\0").split(b"\0")] if data else []

    def wchan(self, pid: "int | str") -> "str | None":
        """The kernel function the main thread sleeps in; None if it runs or is not readable."""
        try:
            name = self.read_at_once(pid, "wchan").decode("ascii", "replace")
        except OSError:
            return None
        return name if name not in ("", "0") else None

    def io_bytes(self, pid: "int | str") -> "tuple[int, int] | None":
        """(bytes read, bytes written) by read(), write() and their kin so far; None if not readable."""
        try:
            data = self.read_at_once(pid, "io")
        except OSError:
            return None
        read, written = _line(b"\n" + data, b"\nrchar:"), _line(data, b"\nwchar:")
        return (int(read[0]), int(written[0])) if read and written else None

    def thread_names(self, pid: "int | str", most: int = 48) -> "list[str]":
        """The names of the first threads of a process: these are world-readable."""
        names = []
        try:
            for tid in sorted(os.listdir(self.path(pid, "task")))[:most]:
                names.append(self.read_at_once(pid, "task/%s/comm" % tid).decode("utf-8", "replace").strip())
        except OSError:
            pass  # gone, or not readable
        return names


def _line(data: bytes, name: bytes) -> "list[bytes]":
    """The values after `name`; [] if it is missing."""
    start = data.find(name)
    if start < 0:
        return []
    start += len(name)
    return data[start : data.find(b"\n", start)].split()


def command_line(argv: "list[str]") -> "str | None":
    """Arguments joined by spaces: secrets masked, control characters replaced, at most MAX_CMDLINE characters."""
    if not argv:
        return None
    shown = []
    mask = False
    for argument in argv[:256]:
        name, equals, _ = argument.partition("=")
        if mask and (" " in argument or not argument.startswith("-")):  # no flag has a blank in it
            argument = "***"
        elif equals and _is_secret(name):
            argument = name + "=***"
        mask = not equals and name.startswith("-") and _is_secret(name)
        shown.append(argument)
    return printable(" ".join(shown), MAX_CMDLINE)


def printable(text: str, most: int) -> str:
    """`text` with unprintable characters as spaces, cut at `most` characters."""
    text = text[:most]
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def _is_secret(name: str) -> bool:
    name = name.lower().replace("-", "_")
    return any(word in name for word in SECRETS)


def read_text(path: str) -> "str | None":
    """The stripped text; None also for an empty file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # half the time of open()
        try:
            data = part = os.read(fd, 65536)
            while part:
                part = os.read(fd, 65536)
                data += part
        finally:
            os.close(fd)
        return data.decode("utf-8", "replace").strip() or None
    except OSError:  # absent, forbidden, or one that answers EINVAL while its link is down
        return None


def read_number(path: str) -> "int | None":
    """An integer; None for any other content."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None
