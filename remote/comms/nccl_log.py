"""COLL lines of NCCL's log (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS with COLL): what each rank launched last.

`opCount` counts the collectives of a communicator; operations launched as one share a number. A line names the
communicator by its address in that process; the `Init` lines say which one that is for all. A launch is no completion.
"""

import re

from .values import count, text

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
    """`entries`: fields of `collective` records with `host` and `pid` beside them; `unnamed`: how many of them are of
    communicators whose beginning is not in the log."""

    def __init__(self, entries, unnamed):
        self.entries = entries
        self.unnamed = unnamed


def parse(data, most=4096):
    """The newest `most` operations in the bytes of a log; lines that are something else are passed over."""
    groups, found = {}, []
    for raw in data.splitlines():
        if b"NCCL INFO" not in raw:
            continue
        line = raw[:2048].decode("utf-8", "backslashreplace")
        begun = _INIT.search(line)
        if begun:
            place = (begun.group("host"), begun.group("pid"), begun.group("comm"))
            groups[place] = (begun.group("id"), int(begun.group("rank")), int(begun.group("size")))
            continue
        launched = _LINE.search(line)
        if launched:
            found.append(launched)
    entries = [_entry(one, groups) for one in found[-most:]]
    return NcclLog(entries, sum(1 for entry in entries if entry["process_group"] is None))


def _entry(one, groups):
    group = groups.get((one.group("host"), one.group("pid"), one.group("comm")))
    datatype = DATATYPES.get(int(one.group("type")), one.group("type"))
    operation = one.group("op")
    size = group[2] if group else one.group("size") and int(one.group("size"))
    is_p2p = operation in _P2P
    seq = int(one.group("seq"), 16)
    return {
        "host": text(one.group("host"), 128),
        "pid": int(one.group("pid")),
        "process_group": [group[0], ""] if group else None,
        "group_rank": group[1] if group else None,
        "group_size": size or None,
        "collective_seq_id": None if is_p2p else count(seq),
        "profiling_name": "nccl:" + (_p2p_name(operation, group, one) if is_p2p else operation),
        "is_p2p": is_p2p,
        "input_numel": count(int(one.group("count"))),
        "input_dtypes": [datatype],
    }


def _p2p_name(operation, group, one):
    """As PyTorch would write it: `send 1->2`. The peer of a send or receive stands where a root does."""
    peer = one.group("root")
    if group is None or peer.startswith("-"):
        return operation.lower()
    return "%s %d%s%s" % (operation.lower(), group[1], "->" if operation == "Send" else "<-", peer)
