"""The holders of TCP ends that ranks of other nodes wait for: `connection` records of the ends that a capture names."""

from .thread_waits import MAX_HOLDERS, Holders, SocketTables, holders_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from ..proc.procfs import ProcFs

    Fields = dict[str, Any]
    End = tuple[tuple[str, int], tuple[str, int]]  # (local, remote), as this node sees it

#: Ends per request, and processes that are searched for their holders.
MAX_ENDS, MAX_PROCESSES = 512, 8192


class BadEnds(ValueError):
    """An invalid list of ends; the text is the reason."""


def parse_ends(values: "Any") -> "list[End]":
    """`[["10.0.0.1 29500", "10.0.0.2 41234"], …]`: local and remote address of each wanted end. Raises BadEnds."""
    if not isinstance(values, list) or len(values) > MAX_ENDS:
        raise BadEnds("sockets is not a list of at most %d" % MAX_ENDS)
    try:
        return [(_address(local), _address(remote)) for local, remote in values]
    except (AttributeError, TypeError, ValueError):
        raise BadEnds("sockets has an entry that is not a pair of addresses")


def _address(text: str) -> "tuple[str, int]":
    host, port = text.split(" ")
    return host, int(port)


def connections(ends: "Iterable[End]", pids: "Iterable[int]", procfs: "ProcFs", holders: "Holders") -> "list[Fields]":
    """Fields of the `connection` records of those ends that a process of this node holds, or is about to accept.

    The processes `pids`, those of `holders`, are searched first, and all others only for ends that none of them has.
    """
    tables = SocketTables(procfs)
    records: "list[Fields]" = []
    others = _find(ends, pids, tables, holders, records)
    if others:
        rest = _other_pids(procfs, pids)
        _find(others, rest, tables, Holders(procfs, rest), records)
    return records


def _find(
    ends: "Iterable[End]", pids: "Iterable[int]", tables: "SocketTables", holders: "Holders", records: "list[Fields]"
) -> "list[End]":
    """Append the records of those ends that these processes hold; the other ends."""
    networks = {id(entries): entries for entries in map(tables.tcp, pids)}
    others: "list[End]" = []
    for local, remote in ends:
        holding = next(filter(None, (holders_of(holders, each, local, remote) for each in networks.values())), None)
        if holding is None:
            others.append((local, remote))
        else:
            records.append({
                "local": "%s %d" % local, "remote": "%s %d" % remote, "pids": holding[:MAX_HOLDERS],
            })  # fmt: skip
    return others


def _other_pids(procfs: "ProcFs", pids: "Iterable[int]") -> "list[int]":
    given = set(pids)
    everyone = sorted(int(name) for name in procfs.names() if name.isdigit())
    return [pid for pid in everyone if pid not in given][:MAX_PROCESSES]
