"""Reads the rows of one connection: the compact form of records on the wire. All input is untrusted."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from ..core.bus import Published
from ..records import BadRecord
from ..records.base import Instant
from ..records.rows import MOST_NAMES, BadLayout, Layout
from .record_receiver import RecordReceiver
from .wire import DECODE_ERRORS, MalformedFrame

#: How lines of rows, and of the layouts that precede them, begin.
ROWS, LAYOUT = b"[", b'{"layout":'
#: Layouts of one connection, rows of one line and bytes of it, as in the agent: the event loop is free in between.
MOST_LAYOUTS, MOST_ROWS, MAX_ROWS_LINE = 128, 64, 1 << 20

_Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,63}\Z")]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=MOST_LAYOUTS)]


class _Layout(msgspec.Struct):
    layout: _Number
    kind: _Word
    names: Annotated[tuple[_Word, ...], msgspec.Meta(min_length=1, max_length=MOST_NAMES)]


class _Rows(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    layout: _Number
    first: Annotated[int, msgspec.Meta(ge=1, lt=2**62)]  # seq of the first row
    count: int
    t: Instant
    mono: Instant
    rows: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=MOST_ROWS)]


_layout_decoder = msgspec.json.Decoder(_Layout)
_rows_decoder = msgspec.json.Decoder(_Rows)
#: The cause of records that are lost with a layout.
UNDECLARED: Final = "rows of a layout that was not declared"


class RowReader:
    """The layouts of one connection; passes the records of its rows to a receiver."""

    def __init__(self, receiver: RecordReceiver) -> None:
        self._receiver = receiver
        self._layouts: dict[int, Layout] = {}

    def declare(self, line: bytes) -> None:
        """Read a layout; one may be declared again. Raises MalformedFrame."""
        try:
            frame = _layout_decoder.decode(line)
            declared = self._layouts.get(frame.layout)
            if declared is None:
                self._layouts[frame.layout] = Layout(frame.kind, frame.names)
            elif (declared.kind, declared.names) != (frame.kind, frame.names):
                raise BadLayout(f"number {frame.layout} is that of another one")
        except (*DECODE_ERRORS, BadLayout) as error:
            raise MalformedFrame(f"malformed layout: {error}") from error

    def read(self, line: bytes, rx: int, records: list[Published]) -> None:
        """Append the records of a line of rows. Raises MalformedFrame; records that are lost with it are counted."""
        try:
            if len(line) > MAX_ROWS_LINE:
                raise MalformedFrame("malformed rows: line too long")
            frame = _rows_decoder.decode(line)
        except DECODE_ERRORS as error:
            raise MalformedFrame(f"malformed rows: {error}") from error
        if frame.count != len(frame.rows):
            raise MalformedFrame(f"malformed rows: {len(frame.rows)} instead of {frame.count}")
        layout = self._layouts.get(frame.layout)
        if layout is None:
            self._receiver.reject_up_to(frame.first, frame.first + frame.count - 1, UNDECLARED)
            raise UndeclaredLayout(f"protocol error: {UNDECLARED}, {frame.layout}")
        receiver = self._receiver
        for seq, record, size in layout.records(frame.rows, frame.first, frame.t, frame.mono):
            if record is not None:
                accepted = receiver.accept(record, size, rx)  # type: ignore[arg-type]
            else:
                accepted = self._receive_readable(layout, frame, seq, rx)
            if accepted is not None:
                records.append(accepted)

    def _receive_readable(self, layout: Layout, frame: _Rows, seq: int, rx: int) -> Published | None:
        """Receive a row as the object that it stands for, which names what is wrong with it."""
        line = layout.readable(frame.rows[seq - frame.first], seq, frame.t, frame.mono)
        if line is not None:
            return self._receiver.receive(line, rx)
        text = f"a row of {layout.kind} that does not have {len(layout.names)} values"
        self._receiver.reject(BadRecord(text, seq))
        return None


class UndeclaredLayout(MalformedFrame):
    """Rows whose names were not sent: the agent is to send objects from now on."""
