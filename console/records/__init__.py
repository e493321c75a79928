"""The vocabulary: every fact gconsole handles, one file a family, and the strict union of them all.

These structs are the schema; their docstrings and comments are the data dictionary. `gconsole schema` prints it.
"""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from .base import Missing, Record
from .event import Confidence, Console, Finding, Gap, Log, Mark, Severity
from .gpu import Gpu, GpuInfo
from .node import AgentCost, Failure, Host, Node, NodeState, State
from .process import Process, Rank, RankStat, RankState, RankStatus

AnyRecord = (
    Console | NodeState | Node | Host | AgentCost | GpuInfo | Gpu | Process | Rank | RankStat | Log | Mark | Gap | Finding
)

KINDS: Final[dict[str, type[Record]]] = {
    str(struct.__struct_config__.tag): struct for struct in get_args(AnyRecord)
}

_decoder = msgspec.json.Decoder(AnyRecord)
_encoder = msgspec.json.Encoder()


class RawRecord(msgspec.Struct):
    """A record of a kind this version does not know: kept as it came, and counted."""

    kind: str
    node: str = ""
    agent: str = ""
    seq: int = 0
    rx: int = 0
    raw: bytes = b""  # the line as it came


class BadRecord(ValueError):
    """Bytes that claim to be a record of a known kind and are not; the message says where they differ."""


def decode(line: bytes) -> AnyRecord | RawRecord:
    """The record in one line of JSON; fields this version does not know are ignored.

    An unknown kind comes back as `RawRecord`. Raises `BadRecord` for anything else that does not fit.
    """
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError as error:
        raw = _unknown(line)
        if raw is None:
            raise BadRecord(str(error)) from error
        return raw
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecord(str(error)) from error


_raw_decoder = msgspec.json.Decoder(RawRecord)


def _unknown(line: bytes) -> RawRecord | None:
    try:
        raw = _raw_decoder.decode(line)
    except msgspec.ValidationError:
        return None
    raw.raw = line
    return None if raw.kind in KINDS else raw


def encode(record: Record | RawRecord) -> bytes:
    """One line of JSON without the newline; `decode` gives the record back. A raw record keeps all its fields."""
    if isinstance(record, RawRecord):
        fields = msgspec.json.decode(record.raw)
        fields.update(node=record.node, agent=record.agent, rx=record.rx)
        return _encoder.encode(fields)
    return _encoder.encode(record)


__all__ = [
    "KINDS",
    "AgentCost",
    "AnyRecord",
    "BadRecord",
    "Confidence",
    "Console",
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
