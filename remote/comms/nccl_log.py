"""COLL lines of NCCL's log (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS with COLL): the operations each rank launched.

`opCount` counts the collectives of a communicator; grouped operations share a number. A line has the address of the
communicator in that process; `Init` lines map it to the id that all ranks share. Launched does not mean completed.
"""

import re

from .values import count, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from re import Match
    from typing import Any

    Groups = dict[tuple[str, str, str], tuple[str, int, int]]  # (host, pid, address): (id, rank, size)

#: ncclDataType_t (nccl.h) → PyTorch's name.
DATATYPES = {
    0: "Char", 1: "Byte", 2: "Int", 3: "UInt32", 4: "Long", 5: "UInt64", 6: "Half", 7: "Float", 8: "Double",
    9: "BFloat16", 10: "Float8_e4m3fn", 11: "Float8_e5m2",
}  # fmt: skip

_HEAD = r"(?:^|[\s\]])(?P<host>[^\s:\[\]]{1,128}):(?P<pid>\d{1,9}):(?P<tid>\d{1,9}) (?:\[-?\d+\] )?NCCL INFO "
_LINE = re.compile(
    _HEAD + r"(?P<op>[A-Z]\w{2,40}): opCount (?P<seq>[0-9a-f]{1,16}) sendbuff \S+ recvbuff \S+"
    r" count (?P<count>\d{1,19}) datatype (?P<type>\d{1,3}) op \d+ root (?P<root>-?\d{1,9})"
    r" comm (?P<comm>\S{1,32})(?: \[nranks=(?P<size>\d{1,9})\])?"
)
_INIT = re.compile(
    _HEAD + r"(?:\[Rank \d+\] )?nccl\w{1,40} comm (?P<comm>\S{1,32}) rank (?P<rank>\d{1,9})"
    r" n[rR]anks (?P<size>\d{1,9}) .{0,200}?commId (?P<id>0x[0-9a-f]{1,16})"
)
_P2P = ("Send", "Recv")


class NcclLog(object):
    """`entries`: fields of `collective` records plus `host` and `pid`; `unnamed`: those without an `Init` line."""

    def __init__(self, entries: "list[dict[str, Any]]", unnamed: int) -> None:
        self.entries = entries
        self.unnamed = unnamed


def parse(data: bytes, limit: int = 4096) -> "NcclLog":
    """The newest `limit` operations of a log; other lines are ignored."""
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
    entries = [_entry(launch, groups) for launch in launches[-limit:]]
    return NcclLog(entries, sum(1 for entry in entries if entry["process_group"] is None))


def _entry(launch: "Match[str]", groups: "Groups") -> "dict[str, Any]":
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
    }


def _p2p_name(operation: str, group: "tuple[str, int, int] | None", launch: "Match[str]") -> str:
    """PyTorch's form: `send 1->2`. The log has the peer in the field of the root."""
    peer = launch.group("root")
    if group is None or peer.startswith("-"):
        return operation.lower()
    return "%s %d%s%s" % (operation.lower(), group[1], "->" if operation == "Send" else "<-", peer)
