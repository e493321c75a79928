"""The holders of TCP ends that ranks of other nodes wait for: `connection` records of the ends that a capture names."""

from .thread_waits import MAX_HOLDERS, SocketTables, holders_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..proc.procfs import ProcFs
    from .thread_waits import Holders

    Fields = dict[str, Any]
    End = tuple[tuple[str, int], tuple[str, int]]  # (local, remote), as this node sees it

#: Ends per request.
MAX_ENDS = 512


class BadEnds(ValueError):
    """An invalid list of ends; the text is the reason."""


def parse_ends(values: "Any") -> "list[End]":
    """`[["10.0.0.1 29500", "10.0.0.2 41234"], …]`: local and remote address of each wanted end. Raises BadEnds."""
    if not isinstance(values, list) or len(values) > MAX_ENDS:
        raise BadEnds("sockets is not a list of at most %d" % MAX_ENDS)
    try:
        return [(_address(local), _address(remote)) for local, remote in values]
    except (TypeError, ValueError):
        raise BadEnds("sockets has an entry that is not a pair of addresses")


def _address(text: str) -> "tuple[str, int]":
    host, port = text.split(" ")
    return host, int(port)


def connections(ends: "Iterable[End]", pids: "Iterable[int]", procfs: "ProcFs", holders: "Holders") -> "list[Fields]":
    """Fields of the `connection` records of those ends that a process of this node holds, or is about to accept."""
    tables = SocketTables(procfs)
    networks = {id(entries): entries for entries in map(tables.tcp, pids)}
    records: "list[Fields]" = []
    for local, remote in ends:
        for entries in networks.values():
            holding = holders_of(holders, entries, local, remote)
            if holding:
                records.append({
                    "local": "%s %d" % local, "remote": "%s %d" % remote, "pids": holding[:MAX_HOLDERS],
                })  # fmt: skip
                break
    return records
