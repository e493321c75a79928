"""NCCL's RAS service: found among the sockets of ranks and queried as its own client does; its STATUS response parsed.

The response is JSON (from 2.28.7 on) or text with the operations each rank has launched, counted on the CPU: equal
counts do not identify the hanging operation. Ranks are numbered within their communicator. 2.28.9 omits a comma in
`missing_ranks`.

Every NCCL process may listen on the same port (localhost:28028, or NCCL_RAS_ADDR), of other jobs too; whichever
accepts responds for its own job. So RAS is queried only where a rank of the job holds the socket, and the response
must name one of its ranks.
"""

import json
import re

from ..proc.numbers import parse_count
from . import sockets
from .values import SourceError, count, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from re import Match
    from typing import Any, Callable, Iterator, Mapping

    from ..proc.procfs import ProcFs
    from .sockets import ListeningSocket

    Fields = dict[str, Any]

PORT = 28028
VARIABLES = ("NCCL_RAS_ADDR", "NCCL_RAS_ENABLE")
MAX_BYTES = 16 << 20
#: Mapped by every process that uses NCCL. Reading the socket tables takes 10 ms on a busy node, so only these have
#: theirs read.
LIBRARIES = (b"libcuda.so", b"libnccl.so")
#: Seconds. RAS timeout per leg (its default is 5): the response takes that long if a node is gone.
LEG_TIMEOUT_S = 2
#: Attempts. With several jobs on one port, chance decides which one responds.
TRIES = 4
MAX_GROUPS, MAX_RANKS = 4096, 1 << 17
#: ncclResult_t (nccl.h): 0 success, 7 in progress.
_SUCCESS, _IN_PROGRESS = 0, 7
_MISSING_COMMA = re.compile(r'([0-9"}\]]|true|false|null)[ \t]*\n([ \t]*["{\[])')


class BadRasResponse(ValueError):
    """The data is not a RAS response; the text is the reason."""


class RasStatus(object):
    """`groups`: fields of `pg_status` records, one per rank of a communicator; `problems`: dropped parts; `repaired`:
    whether a missing comma was inserted."""

    def __init__(self, version: "str | None", groups: "list[Fields]", problems: "list[str]", repaired: bool) -> None:
        self.version = version
        self.groups = groups
        self.problems = problems
        self.repaired = repaired


def port_of(env: "Mapping[str, str]") -> "int | None":
    """The RAS port of a rank with this environment; None if RAS is disabled."""
    if env.get("NCCL_RAS_ENABLE", "").strip() == "0":
        return None
    word = env.get("NCCL_RAS_ADDR", "").rpartition(":")[2]
    return parse_count(word, 65535) or PORT


def find_socket(procfs: "ProcFs", pid: int, env: "Mapping[str, str]") -> "ListeningSocket | None":
    """The RAS socket of a rank, or None. Raises SourceError."""
    port = port_of(env)
    if port is None:
        return None
    listeners = sockets.listeners_at(procfs, pid, port)
    if not listeners:
        return None
    try:
        for inode in sockets.inodes_of(procfs, pid):
            if inode in listeners:
                return listeners[inode]
    except PermissionError:
        raise SourceError(
            "no_permission",
            "no permission to find the owner of port %d" % port,
            'run_as = "sudo"',
        )
    except OSError:
        pass  # ended
    return None


def query_status(
    procfs: "ProcFs",
    listener: "ListeningSocket",
    deadline: float,
    pids: "set[int]",
    parsed: "Callable[[bytes], RasStatus] | None" = None,
) -> "tuple[RasStatus, int]":
    """(status of the job of one of `pids`, bytes received); pids of their own PID namespace. Raises SourceError.

    `parsed` is `parse`, possibly in another process.
    """
    for _ in range(TRIES):
        data = _query(procfs, listener, deadline)
        try:
            status = (parsed or parse)(data)
        except ValueError as error:
            raise SourceError("unreadable", "RAS: %s" % error)
        named = {group["pid"] for group in status.groups}
        if not named - {None} or named & pids:
            return status, len(data)
    raise SourceError("elsewhere", "RAS at %s responds for another job" % listener)


def _query(procfs: "ProcFs", listener: "ListeningSocket", deadline: float) -> bytes:
    connection = sockets.connect(procfs, listener, deadline)
    try:
        lines = _RasConnection(connection, deadline)
        if not lines.command("CLIENT PROTOCOL 2").startswith("SERVER PROTOCOL"):
            raise SourceError("refused", "the listener at %s is not RAS" % listener)
        lines.command("TIMEOUT %d" % LEG_TIMEOUT_S)
        lines.command("SET FORMAT json")  # unknown before 2.28.7: the response is text then
        connection.sendall(b"VERBOSE STATUS\n")
        return lines.rest + b"".join(sockets.receive(connection, deadline, MAX_BYTES))
    except OSError as error:
        raise SourceError("refused", "connection lost: %s" % error)
    finally:
        connection.close()


class _RasConnection(object):
    """Commands with one-line responses."""

    def __init__(self, connection: "socket.socket", deadline: float) -> None:
        self._connection, self._deadline = connection, deadline
        self.rest = b""

    def command(self, command: str) -> str:
        self._connection.sendall(command.encode() + b"\n")
        pieces = sockets.receive(self._connection, self._deadline, 1 << 16)
        while b"\n" not in self.rest:
            piece = next(pieces, None)
            if piece is None:
                raise SourceError("refused", "RAS closed the connection after %s" % command)
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode("utf-8", "replace").strip()


# -- the response -----------------------------------------------------------------------------------------------------


def parse(data: bytes) -> "RasStatus":
    """Parse a response, JSON or text. Raises BadRasResponse."""
    response = data.decode("utf-8", "backslashreplace")
    begin = response.find("{")
    if begin >= 0 and '"communicators"' in response:
        return _parse_json(response[begin:])
    if "NCCL version" in response or "Job summary" in response or re.search(r"^#\d+-\d+ \(", response, re.MULTILINE):
        return _parse_text(response)
    raise BadRasResponse("neither JSON nor text of RAS: %s" % (text(response, 80) or "empty"))


def _parse_json(response: str) -> "RasStatus":
    repaired = False
    try:
        document = json.loads(response)
    except (ValueError, RecursionError) as first:
        try:
            document = json.loads(_MISSING_COMMA.sub(r"\1,\n\2", response))
            repaired = True
        except (ValueError, RecursionError):
            raise BadRasResponse("invalid JSON: %s" % first)
    if not isinstance(document, dict):
        raise BadRasResponse("JSON, but not an object")
    groups: "list[Fields]" = []
    problems: "list[str]" = []
    for index, group in enumerate(_list(document.get("communicators"), MAX_GROUPS)):
        if not isinstance(group, dict) or not text(group.get("hash"), 64):
            problems.append("communicator %d is malformed" % index)
            continue
        groups.extend(_ranks(group, problems))
    return RasStatus(text(document.get("nccl_version"), 32) or None, groups[:MAX_RANKS], problems, repaired)


def _ranks(group: "Fields", problems: "list[str]") -> "Iterator[Fields]":
    name = text(group["hash"], 64)
    size = count(group.get("size"))
    kinds: "tuple[tuple[str, Callable[[Any], str]], ...]" = (("ranks", _state), ("missing_ranks", _absence))
    for kind, state_of in kinds:
        for index, rank in enumerate(_list(group.get(kind), MAX_RANKS)):
            if not isinstance(rank, dict) or count(rank.get("rank")) is None:
                problems.append("%s %d of %s is malformed" % (kind, index, name))
                continue
            counts = rank.get("collective_counts")
            counts = counts if isinstance(counts, dict) else {}
            figures = {text(key, 64): count(value) for key, value in list(counts.items())[:64]}
            yield {
                "process_group": [name, ""],
                "group_size": size,
                "group_rank": count(rank["rank"]),
                "pid": count(rank.get("pid")) or None,
                "host": _host(rank.get("host")),
                "op_counts": {key: value for key, value in figures.items() if key and value is not None},
                "group_state": state_of(rank.get("status")),
            }


def _state(status: "Any") -> str:
    """State of a rank as RAS itself derives it (src/ras/client_support.cc), the worst first."""
    status = status if isinstance(status, dict) else {}
    for key in ("async_error", "init_state"):
        code = count(status.get(key))
        if code is not None and code not in (_SUCCESS, _IN_PROGRESS):
            return "error %d" % code
    if status.get("abort_flag") is True:
        return "abort"
    if status.get("finalize_called") is True or status.get("destroy_flag") is True:
        return "finalize"
    return "init" if status.get("init_state") == _IN_PROGRESS else "running"


def _absence(status: "Any") -> str:
    status = status if isinstance(status, dict) else {}
    if status.get("considered_dead") is True:
        return "considered_dead"
    return "unresponsive" if status.get("unresponsive") is True else "no_communicator"


def _host(value: "Any") -> "str | None":
    name = text(value, 128)
    return name if name and name != "unknown" else None


def _list(value: "Any", limit: int) -> "list[Any]":
    return value[:limit] if isinstance(value, list) else []


# -- text ------------------------------------------------------------------------------------------------------------

_HEAD = re.compile(r"^#\d+-\d+ \(([0-9a-fx]+)\) (INCOMPLETE|ERROR|MISMATCH)")
_COUNTS = re.compile(r"^\s*Communicator ranks have different (\w+) operation counts")
_MANY = re.compile(r"^\s*(\d{1,9}) ranks have (?:launched up to operation (\d{1,18})|not launched any operations)")
_RANK = re.compile(
    r"^\s*Rank (\d{1,9})(?: has (?:launched up to operation (\d{1,18})|(not launched any) operations"
    r"|status (\w+)))?(?: reported ([\w ]+?))? -- (.*)"
)
_PROCESS = re.compile(r"managed by process (\d{1,9}) on node (\S{1,128})")
_VERSION = re.compile(r"^NCCL version (\S{1,32})")


def _parse_text(response: str) -> "RasStatus":
    """The text form, which lists only outlier ranks."""
    groups: "list[Fields]" = []
    problems: "list[str]" = []
    version: "str | None" = None
    name: "str | None" = None
    operation: "str | None" = None
    launched: "int | None" = None
    kind = ""
    for line in response.splitlines():
        version_line = _VERSION.match(line)
        if version_line:
            version = version_line.group(1)
        head = _HEAD.match(line)
        if head:
            name, kind = "0x" + head.group(1).replace("0x", "").lstrip("0"), head.group(2)
            operation = launched = None
            continue
        if not line.strip():
            operation = launched = None
            continue
        counts = _COUNTS.match(line)
        if counts:
            operation, launched = counts.group(1), None
            continue
        many = _MANY.match(line)
        if many:
            launched = int(many.group(2) or 0)
            problems.append("%s of %s: %s ranks are at %d" % (operation, name, many.group(1), launched))
            continue
        rank = _RANK.match(line)
        if rank and name is not None and len(groups) < MAX_RANKS:
            groups.append(_outlier(rank, name, kind, operation, launched))
    return RasStatus(version, groups, problems, repaired=False)


def _outlier(rank: "Match[str]", name: str, kind: str, operation: "str | None", launched: "int | None") -> "Fields":
    """Fields of a listed rank; without a count of its own it has that of the line above it."""
    number, own, none, status, error, rest = rank.groups()
    process = _PROCESS.search(rest)
    operations = int(own) if own else 0 if none else launched
    states = {"INCOMPLETE": "unresponsive", "ERROR": "error " + (error or "").strip()}
    return {
        "process_group": [name, ""],
        "group_size": None,
        "group_rank": int(number),
        "pid": int(process.group(1)) if process else None,
        "host": text(process.group(2), 128) if process else None,
        "op_counts": {operation: operations} if operation and operations is not None else {},
        "group_state": (status or "").lower() or states.get(kind, "running").strip(),
    }
