"""The vocabulary: every fact gconsole handles, one file a family, and the strict union of them all.

These structs are the schema; their docstrings and comments are the data dictionary. `gconsole schema` prints it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .base import Missing, Record
from .event import Confidence, Finding, Gap, Log, Mark, Severity
from .gpu import Gpu, GpuInfo
from .node import AgentCost, Failure, Host, Node, NodeState, State
from .process import Process, Rank, RankStat, RankState, RankStatus

AnyRecord = NodeState | Node | Host | AgentCost | GpuInfo | Gpu | Process | Rank | RankStat | Log | Mark | Gap | Finding

KINDS: Final[dict[str, type[Record]]] = {
    str(struct.__struct_config__.tag): struct
    for struct in (NodeState, Node, Host, AgentCost, GpuInfo, Gpu, Process, Rank, RankStat, Log, Mark, Gap, Finding)
}

_decoder = msgspec.json.Decoder(AnyRecord)
_encoder = msgspec.json.Encoder()


class RawRecord(msgspec.Struct):
    """A record of a kind this version does not know: kept as it came, and counted."""

    kind: str
    node: str
    agent: str
    raw: bytes


class BadRecord(ValueError):
    """Bytes that claim to be a record of a known kind and are not; the message says where they differ."""


def decode(line: bytes) -> AnyRecord | RawRecord:
    """The record in one line of JSON; fields this version does not know are ignored.

    An unknown kind comes back as `RawRecord`. Raises `BadRecord` for anything else that does not fit.
    """
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError as error:
        kind = _unknown_kind(line)
        if kind is None:
            raise BadRecord(str(error)) from error
        return RawRecord(kind=kind, node="", agent="", raw=line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecord(str(error)) from error


class _Kind(msgspec.Struct):
    kind: str


_kind_decoder = msgspec.json.Decoder(_Kind)


def _unknown_kind(line: bytes) -> str | None:
    try:
        kind = _kind_decoder.decode(line).kind
    except msgspec.ValidationError:
        return None
    return None if kind in KINDS else kind


def encode(record: Record | RawRecord) -> bytes:
    """One line of JSON without the newline; `decode` gives the record back. A raw record leaves as it came."""
    if isinstance(record, RawRecord):
        return record.raw
    return _encoder.encode(record)


__all__ = [
    "KINDS",
    "AgentCost",
    "AnyRecord",
    "BadRecord",
    "Confidence",
    "Failure",
    "Finding",
    "Gap",
    "Gpu",
    "GpuInfo",
    "Host",
    "Log",
    "Mark",
    "Missing",
    "Node",
    "NodeState",
    "Process",
    "Rank",
    "RankStat",
    "RankState",
    "RankStatus",
    "RawRecord",
    "Record",
    "Severity",
    "State",
    "decode",
    "encode",
]
