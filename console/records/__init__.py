"""The vocabulary: every fact gconsole handles, one file a family, and the strict union of them all.

These structs are the schema; their docstrings and comments are the data dictionary. `gconsole schema` prints it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Final, get_args

import msgspec

from .base import Count, DigestibleRecord, Int, Missing, Record
from .capture import (
    AsyncTask,
    Collective,
    CollectiveSource,
    Connection,
    FlightStatus,
    Local,
    PgStatus,
    Stack,
    StackFrame,
    StackStatus,
    WaitTarget,
)
from .clock import (
    ClockBin,
    ClockBins,
    ClockCost,
    ClockNode,
    ClockSnapshot,
    ClockSource,
    ClockWindow,
    Exchange,
    GpuClock,
    Point,
)
from .event import Confidence, ConsoleRecord, Finding, Gap, Log, Mark, Severity
from .gpu import Digest, Gpu, GpuDigest, GpuEvent, GpuInfo, GpuLink, GpuProcess
from .node import AgentCost, Capacity, Failure, Host, Inventory, Node, NodeSetting, NodeState, State
from .process import (
    Job,
    JobNode,
    JobNodeState,
    JobState,
    Output,
    OutputStream,
    Place,
    Process,
    Rank,
    RankSetting,
    RankStat,
    RankState,
    RankStatus,
    RankTraffic,
    Watched,
)
from .topology import Ancestor, End, EndKind, Link, LinkType, Nic

AnyRecord = (
    ConsoleRecord | NodeState | Node | Inventory | NodeSetting | Capacity | Host | AgentCost | GpuInfo | Gpu | GpuDigest
    | GpuLink | GpuEvent | GpuProcess | Nic | Link | Process | Rank | RankStat | RankSetting | Place | RankTraffic
    | Output | Stack | Connection | Collective | PgStatus | Job | JobNode | Log | Mark | Gap | Finding | ClockBins
    | ClockSnapshot | ClockSource | GpuClock | ClockCost | ClockWindow | ClockNode
)  # fmt: skip

KINDS: Final[dict[str, type[Record]]] = {str(struct.__struct_config__.tag): struct for struct in get_args(AnyRecord)}

#: Errors of msgspec for bytes that are not JSON of the expected type, not UTF-8, or nested too deeply.
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

#: How a line begins that gconsole wrote; the kind follows.
_BEGIN: Final = b'{"kind":"'
_encoder = msgspec.json.Encoder()
#: By kind, as it is needed: a decoder of all kinds takes 10 ms of each start.
_decoders: Final[dict[bytes, msgspec.json.Decoder[AnyRecord]]] = {}


class _UnknownRecord(msgspec.Struct):
    """The fields that are read of a record of an unknown kind."""

    kind: Annotated[str, msgspec.Meta(max_length=64)]
    node: str = ""
    agent: str = ""
    seq: Count = 0
    rx: Int = 0


class RawRecord(_UnknownRecord):
    """A record of a kind that is unknown to this version: kept unchanged, and counted."""

    raw: bytes = b""  # the line as received


class BadRecord(ValueError):
    """An invalid record; the message names the first invalid field. `seq` is its number, None if that is unreadable."""

    def __init__(self, text: str, seq: int | None = None) -> None:
        super().__init__(text)
        self.seq = seq


def decode(line: bytes) -> AnyRecord | RawRecord:
    """The record in one line of JSON; unknown fields are ignored.

    An unknown kind comes back as `RawRecord`. Raises `BadRecord` for anything else that does not fit.
    """
    try:
        return _decoder_of(line).decode(line)
    except msgspec.ValidationError as error:
        raw = _head(line)
        if raw is None or raw.kind in KINDS:
            raise BadRecord(str(error), raw.seq if raw else None) from error
        return raw
    except UNREADABLE as error:
        raise BadRecord(str(error)) from error


def _decoder_of(line: bytes) -> msgspec.json.Decoder[AnyRecord]:
    if not line.startswith(_BEGIN):
        return _any_decoder()
    kind = line[len(_BEGIN) : line.find(b'"', len(_BEGIN))]
    decoder = _decoders.get(kind)
    if decoder is None:
        struct = KINDS.get(kind.decode("utf-8", "replace"))
        if struct is None:
            return _any_decoder()
        decoder = _decoders[kind] = msgspec.json.Decoder(struct)
    return decoder


@functools.cache
def _any_decoder() -> msgspec.json.Decoder[AnyRecord]:
    return msgspec.json.Decoder(AnyRecord)


_head_decoder = msgspec.json.Decoder(_UnknownRecord)
_field_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _head(line: bytes) -> RawRecord | None:
    try:
        head = _head_decoder.decode(line)
        line.decode()  # msgspec does not check the fields it skips, and the line is written as received
    except UNREADABLE:
        return None
    return RawRecord(head.kind, head.node, head.agent, head.seq, head.rx, raw=line)


def encode(record: Record | RawRecord) -> bytes:
    """One line of JSON without the newline; `decode` gives the record back. A raw record keeps all its fields."""
    if isinstance(record, RawRecord):
        head = {"node": record.node, "agent": record.agent, "rx": record.rx}
        return _encoder.encode({**_field_decoder.decode(record.raw), **head})
    return _encoder.encode(record)


def encode_lines(records: Sequence[Record | RawRecord]) -> bytes:
    """The lines of these records, each with its newline; a third of the time of `encode` for each."""
    if RawRecord in map(type, records):
        return b"".join(encode(record) + b"\n" for record in records)
    return _encoder.encode_lines(records)
