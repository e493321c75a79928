"""Rows as a fuzz input: whatever a layout and its rows are, they give what the objects that they stand for give."""

from __future__ import annotations

import contextlib
import json

import msgspec

from gconsole.fleet import row_reader
from gconsole.fleet.row_reader import RowReader
from gconsole.fleet.wire import MalformedFrame
from gconsole.records import BadRecord, decode, encode
from gconsole.records.rows import LISTED, Layout, column_order

from .conversation import FuzzedConversation

_RAWS = msgspec.json.Decoder(list[msgspec.Raw])


def read_rows(data: bytes) -> None:
    """Lines as a node's bytes; and rows of each layout that they declare, compared with objects."""
    conversation = FuzzedConversation()
    conversation.send_hello()
    conversation.receive(data + b"\n")
    conversation.check()
    reader = RowReader(conversation.receiver)
    for line in data.split(b"\n"):
        if line.startswith(row_reader.LAYOUT):
            with contextlib.suppress(MalformedFrame):
                reader.declare(line)
        elif line.startswith(row_reader.ROWS):
            for layout in list(reader._layouts.values()):
                _compare(layout, line)


def _compare(layout: Layout, line: bytes) -> None:
    """Rows of a line by this layout, also one that it does not name."""
    try:
        rows = _RAWS.decode(bytes(_RAWS.decode(line)[5]))[:4]
    except (msgspec.DecodeError, ValueError, IndexError, RecursionError):
        return
    for (seq, record, size), row in zip(layout.records(rows, 100, 8, 9), rows, strict=True):
        readable = layout.readable(row, seq, 8, 9)
        if readable is None:
            assert record is None, "a row without a value for each name was taken"
            continue
        is_listed = not {*layout.names}.isdisjoint(LISTED)
        assert size == len(readable) or b" " in row_text(row) or is_listed, "other bytes count"
        try:
            expected = decode(readable)
        except BadRecord:
            assert record is None, "what is invalid as an object was taken"
            continue
        if record is not None:
            assert type(record) is type(expected)
            assert encode(record) == encode(expected)


def row_text(row: msgspec.Raw) -> bytes:
    """The text of a row, with white space that objects do not have as blanks."""
    return bytes(row).translate(bytes.maketrans(b"\t\r\n", b"   "))


def rows_seeds() -> list[bytes]:
    """A layout of each kind with rows, and some that name other fields."""
    examples = {"int": 3, "float": 1.5, "str": "x", "bool": True}
    seeds = []
    for number, (kind, names) in enumerate(column_order().items()):
        values = [{"t": 8, "mono": 9}.get(name, examples["int" if number % 2 else "float"]) for name in names]
        layout = {"layout": number, "kind": kind, "names": names}
        rows = [number, 1, 2, 8, 9, [values, values[:-1]]]
        seeds.append(_lines(layout, rows))
    gpu = {"layout": 0, "kind": "gpu", "names": ["index", "uuid", "util_pct", "clocks_event_reasons", "grown"]}
    row = [0, "GPU-1", 5, ["sw_power_cap"], {"pcie_replays": 3}]
    stat = {"layout": 1, "kind": "rank_stat", "names": ["pid", "start_ticks", "state", "job", "rank"]}
    seeds.append(_lines(gpu, [0, 1, 2, 8, 9, [row, row]], stat, [1, 3, 1, 8, 9, [[7, 1, "moving", "j", 0]]]))
    seeds.append(_lines({**gpu, "names": ["t", "mono", "index", "uuid"]}, [0, 5, 1, 8, 9, [[1, 2, 0, "u"]]]))
    host = {"layout": 2, "kind": "host", "names": ["low", "mean", "high", "cpu_pct"]}
    row = [{"cpu_pct": 1, "a\\u0000é": 2}, [3, 4], {"cpu_pct": 5}, 6]
    seeds.append(_lines(host, [2, 1, 3, 8, 9, [row, [row[0], [1], [2, 3], 4], [{}, [], [], 1]]]))
    seeds.append(_lines({**gpu, "kind": "fpga"}, [0, 5, 1, 8, 9, [row]], [9, 6, 1, 8, 9, [row]]))
    return seeds


def _lines(*frames: object) -> bytes:
    return b"\n".join(json.dumps(frame, separators=(",", ":")).encode() for frame in frames)
