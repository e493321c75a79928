"""NCCL's logs of a rank: their tails, the COLL lines of NCCL_DEBUG and the JSON lines of NCCL Inspector."""

import fnmatch
import glob
import json
import os
import re
from itertools import islice

from ..proc.user_files import RightsOf, names_in, open_regular, open_regular_at, state
from .values import SourceError, count, figure, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Match
    from typing import Any, Callable, Iterator, Mapping

    from ..proc.procfs import ProcFs

    Groups = dict[tuple[str, str, str], tuple[str, int, int]]  # (host, pid, address): (id, rank, size)

VARIABLES = ("NCCL_DEBUG_FILE", "NCCL_INSPECTOR_DUMP_DIR", "NCCL_INSPECTOR_ENABLE")
#: Bytes read from the end of a log; number of logs of one kind per node.
MAX_TAIL, MAX_FILES = 1 << 20, 64
#: Names in folders that a glob reads: a user may create any number of folders.
MAX_NAMES = 20_000
#: Bytes read from the beginning of a log, which has the Init lines of the communicators.
MAX_HEAD = 1 << 18


class LogFile(object):
    """The ends of one log: bytes read, time of the last write (ns)."""

    def __init__(self, path: str, ends: "tuple[bytes, bytes, int, int]") -> None:
        self.path = path
        self.head, self.tail, self.size, self.written = ends

    def text_for(self, source: str) -> bytes:
        """What is parsed: of a log of NCCL also its beginning, which has the Init lines of the communicators."""
        return self.tail if source == "inspector" else self.head + b"\n" + self.tail


class LogTail(object):
    """Operations of one log: `source` nccl_log or inspector; `problem`: what is missing."""

    def __init__(self, source: str, log: "LogEntries", file: "LogFile") -> None:
        self.source, self.entries = source, log.entries
        self.size, self.written = file.size, file.written
        form = "%d operations in %s without the Init lines of their communicators"
        if source == "inspector":
            form = "%d malformed lines in %s"
        self.problem = form % (log.bad, file.path) if log.bad else None


def nccl_log_of(env: "Mapping[str, str]", pid: int, hostname: str) -> "str | None":
    """Path of a rank's log by NCCL_DEBUG_FILE, with %h (host) and %p (pid) expanded; None if unset."""
    path = env.get("NCCL_DEBUG_FILE")
    if not path or path in ("stdout", "stderr") or path.startswith("/dev/"):
        return None
    return path.replace("%%", "\0").replace("%h", hostname).replace("%p", str(pid)).replace("\0", "%")


def inspector_folder_of(env: "Mapping[str, str]") -> "str | None":
    """Folder of a rank's Inspector logs; None if Inspector is off or the folder unset."""
    return env.get("NCCL_INSPECTOR_DUMP_DIR") if env.get("NCCL_INSPECTOR_ENABLE") == "1" else None


def matches(pattern: str, folder: str = "") -> "list[str]":
    """The newest files of a glob, below a folder whose name is taken literally; of `MAX_NAMES` names that are read."""
    files = []
    for path in _glob(folder, pattern.strip("/").split("/"), [MAX_NAMES]):
        try:
            files.append((os.stat(path).st_mtime_ns, path))
        except OSError:
            continue  # deleted meanwhile
    return [path for _, path in sorted(files, reverse=True)[:MAX_FILES]]


def _glob(folder: str, parts: "list[str]", left: "list[int]") -> "Iterator[str]":
    """As glob.iglob, which reads every folder that a pattern leads to, however many there are."""
    names = parts[:1]
    if glob.has_magic(parts[0]):
        try:
            with os.scandir(folder or "/") as entries:
                names = [entry.name for entry in islice(entries, left[0])]
        except OSError:
            return
        left[0] -= len(names)
        names = fnmatch.filter(names, parts[0])
    for name in names:
        path = folder + "/" + name
        if len(parts) == 1:
            yield path
        else:
            for inner in _glob(path, parts[1:], left):
                yield inner


def inspector_logs(procfs: "ProcFs", pid: int, ns_pid: int, folder: str) -> "list[str]":
    """The newest logs of a rank in its folder of NCCL Inspector, as far as its user sees them."""
    try:
        names = fnmatch.filter(names_in(procfs, pid, folder, MAX_NAMES), "*-pid%d.log" % ns_pid)
    except (OSError, KeyError, ValueError):
        return []
    paths = ["%s/%s" % (folder.rstrip("/"), name) for name in names]
    states = [(state(procfs, pid, path), path) for path in paths[: 4 * MAX_FILES]]
    newest = sorted(((status.st_mtime_ns, path) for status, path in states if status is not None), reverse=True)
    return [path for _, path in newest[:MAX_FILES]]


def read_log_of(procfs: "ProcFs", pid: int, path: str, uid: "int | None") -> "LogFile":
    """A log that a rank names, which must belong to its user. Raises SourceError."""

    def opened() -> int:
        with RightsOf.of_process(procfs, pid):
            return open_regular(procfs, pid, path)

    return _file(path, opened, uid)


def read_tail(path: str) -> "LogFile":
    """A log at a path of the agent. Raises SourceError."""

    def opened() -> int:
        with RightsOf(os.lstat(path).st_uid):  # of a link, too: it may lead to what its owner cannot read
            return open_regular_at(path)

    return _file(path, opened, None)


def _file(path: str, opened: "Callable[[], int]", uid: "int | None") -> "LogFile":
    try:
        return LogFile(path, _ends(opened(), uid))
    except OSError as error:
        raise SourceError(
            "no_permission" if isinstance(error, PermissionError) else "unreadable", "%s: %s" % (path, error.strerror)
        )
    except (KeyError, ValueError):
        raise SourceError("unreadable", "%s: its user is not known" % path)


def _ends(fd: int, uid: "int | None") -> "tuple[bytes, bytes, int, int]":
    """(beginning, end, bytes read, time of the last write); the beginning is empty if the end is the whole file."""
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if uid is not None and status.st_uid != uid:
            raise OSError(0, "owned by uid %d, the rank by uid %d" % (status.st_uid, uid))
        if status.st_size <= MAX_TAIL:
            data = file.read(MAX_TAIL)
            return b"", data, len(data), status.st_mtime_ns
        head = file.read(MAX_HEAD)
        file.seek(status.st_size - MAX_TAIL)
        file.readline()  # truncated line
        data = file.read(MAX_TAIL)
        return head, data, len(head) + len(data), status.st_mtime_ns


#: ncclDataType_t (nccl.h) → PyTorch's name.
DATATYPES = {
    0: "Char", 1: "Byte", 2: "Int", 3: "UInt32", 4: "Long", 5: "UInt64", 6: "Half", 7: "Float", 8: "Double",
    9: "BFloat16", 10: "Float8_e4m3fn", 11: "Float8_e5m2",
}  # fmt: skip

_HEAD = r"(?:^|[\s\]])(?P<host>[^\s:\[\]]{1,128}):(?P<pid>\d{1,9}):(?P<tid>\d{1,9}) (?:\[-?\d+\] )?NCCL INFO "
_LINE = re.compile(
    _HEAD + r"(?P<op>[A-Z]\w{2,40}): opCount (?P<seq>[0-9a-f]{1,16}) sendbuff \S+ recvbuff \S+"
    r" count (?P<count>\d{1,19}) datatype (?P<type>\d{1,3}) op (?P<red>\d{1,9}) root (?P<root>-?\d{1,9})"
    r" comm (?P<comm>\S{1,32})(?: \[nranks=(?P<size>\d{1,9})\])?(?: stream (?P<stream>\S{1,32}))?"
)
_INIT = re.compile(
    _HEAD + r"(?:\[Rank \d+\] )?nccl\w{1,40} comm (?P<comm>\S{1,32}) rank (?P<rank>\d{1,9})"
    r" n[rR]anks (?P<size>\d{1,9}) .{0,200}?commId (?P<id>0x[0-9a-f]{1,16})"
)
_P2P = ("Send", "Recv")
#: ncclRedOp_t (nccl.h), of the operations that reduce; larger numbers are operators of the program.
_REDUCTIONS = ("sum", "prod", "max", "min", "avg")


class LogEntries(object):
    """`entries`: fields of `collective` records plus `host` and `pid`; `bad`: number of incomplete ones or lines."""

    def __init__(self, entries: "list[dict[str, Any]]", bad: int) -> None:
        self.entries, self.bad = entries, bad


def parse_log(data: bytes, limit: int = 4096) -> "LogEntries":
    """The newest `limit` operations of a log; `bad` ones have no `Init` line. Other lines are ignored."""
    groups: "Groups" = {}
    launches = []
    for raw in data.splitlines():
        if b"NCCL INFO" not in raw:
            continue
        line = raw[:2048].decode("utf-8", "backslashreplace")
        init = _INIT.search(line)
        if init:
            key = (init.group("host"), init.group("pid"), init.group("comm"))
            groups[key] = (init.group("id"), int(init.group("rank")), int(init.group("size")))
            continue
        launch = _LINE.search(line)
        if launch:
            launches.append(launch)
    entries = [_log_entry(launch, groups) for launch in launches[-limit:]]
    return LogEntries(entries, sum(1 for entry in entries if entry["process_group"] is None))


def _log_entry(launch: "Match[str]", groups: "Groups") -> "dict[str, Any]":
    group = groups.get((launch.group("host"), launch.group("pid"), launch.group("comm")))
    datatype = DATATYPES.get(int(launch.group("type")), launch.group("type"))
    operation = launch.group("op")
    size = group[2] if group else launch.group("size") and int(launch.group("size"))
    is_p2p = operation in _P2P
    seq = int(launch.group("seq"), 16)
    return {
        "host": text(launch.group("host"), 128),
        "pid": int(launch.group("pid")),
        "process_group": [group[0], ""] if group else None,
        "group_rank": group[1] if group else None,
        "group_size": size or None,
        "collective_seq_id": None if is_p2p else count(seq),
        "profiling_name": "nccl:" + (_p2p_name(operation, group, launch) if is_p2p else operation),
        "is_p2p": is_p2p,
        "input_numel": count(int(launch.group("count"))),
        "input_dtypes": [datatype],
        "red_op": _reduction(int(launch.group("red"))) if "Reduce" in operation else None,
        "stream": launch.group("stream"),
    }


def _reduction(number: int) -> str:
    return _REDUCTIONS[number] if number < len(_REDUCTIONS) else "custom"


def _p2p_name(operation: str, group: "tuple[str, int, int] | None", launch: "Match[str]") -> str:
    """PyTorch's form: `send 1->2`. The log has the peer in the field of the root."""
    peer = launch.group("root")
    if group is None or peer.startswith("-"):
        return operation.lower()
    return "%s %d%s%s" % (operation.lower(), group[1], "->" if operation == "Send" else "<-", peer)


def parse_inspector(data: bytes, limit: int = 4096) -> "LogEntries":
    """The newest `limit` operations of a log and its malformed lines; a truncated first or last line is ignored."""
    entries, bad = [], 0
    lines = data.splitlines()
    for index, line in enumerate(lines):
        if not line.strip():
            continue
        entry = _inspector_entry(line)
        if entry is not None:
            entries.append(entry)
        elif 0 < index < len(lines) - 1:
            bad += 1
    return LogEntries(entries[-limit:], bad)


def _inspector_entry(line: bytes) -> "dict[str, Any] | None":
    try:
        document = json.loads(line.decode("utf-8", "backslashreplace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    header, metadata = _table(document, "header"), _table(document, "metadata")
    for kind, key in (("coll", "coll_perf"), ("p2p", "p2p_perf")):
        if isinstance(document.get(key), dict):
            return _operation(kind, document[key], header, metadata)
    return None


def _operation(
    kind: str, perf: "dict[str, Any]", header: "dict[str, Any]", metadata: "dict[str, Any]"
) -> "dict[str, Any] | None":
    name = text(perf.get(kind), 64)
    group = text(header.get("id"), 64)
    if not name or not group:
        return None
    took_us = figure(perf.get(kind + "_exec_time_us"))
    sequence = count(perf.get(kind + "_sn"))
    rank = count(header.get("rank"))
    fields = {
        "host": text(metadata.get("hostname"), 128) or None,
        "pid": count(metadata.get("pid")) or None,
        "version": text(metadata.get("inspector_output_format_version"), 32) or None,
        "process_group": [group, _group_description(text(header.get("comm_name"), 256))],
        "group_rank": rank,
        "group_size": count(header.get("n_ranks")),
        "collective_seq_id": sequence if kind == "coll" else None,
        "p2p_seq_id": sequence if kind == "p2p" else None,
        "is_p2p": kind == "p2p",
        "profiling_name": "nccl:" + name,
        "msg_size_bytes": count(perf.get(kind + "_msg_size_bytes")),
        "duration_ms": took_us / 1000.0 if took_us is not None else None,
        "busbw_gbs": figure(perf.get(kind + "_busbw_gbs")),
        "state": "completed",
        "retired": True,
    }
    peer = count(perf.get("p2p_peer"))
    if kind == "p2p" and rank is not None and peer is not None and name in ("Send", "Recv"):
        fields["profiling_name"] = "nccl:%s %d%s%d" % (name.lower(), rank, "->" if name == "Send" else "<-", peer)
    return fields


def _table(document: "dict[str, Any]", key: str) -> "dict[str, Any]":
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _group_description(name: str) -> str:
    return "" if name == "unknown" else name
