"""Clock windows as JSONL for other programs: one object per line, `type` "window" or "node".

alpha is a rate near 1.0, beta_ns an offset; unknown values are null. Field names are those of the records.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..core.bus import Published
from ..records import ClockNode, ClockWindow
from ..text.atomic_files import open_truncated
from ..text.format import file_stamp


class ClockWindowLine(msgspec.Struct, tag="window"):
    """One edge and window: far clock = near clock * alpha + beta at its centre; see `clock_window`."""

    window_id: int
    src: str
    dst: str
    alpha: float | None
    beta_ns: int | None
    bound_ns: int | None
    pairs: int
    kept: int
    lost: int
    min_rtt_ns: int | None
    method: str
    stamps: str
    status: str
    udp_blocked: bool
    flagged: bool
    residual_ns: int | None
    repeat_ns: int | None
    t: int  # console time of its end, ns


class ClockNodeLine(msgspec.Struct, tag="node"):
    """One node and window: its relation to the common clock; see `clock_node`."""

    window_id: int
    node: str
    reference: str
    offset_ns: int | None
    alpha: float | None
    drift_ppm: float | None
    drift_bound_ppm: float | None
    bound_ns: int | None
    repeat_ns: int | None
    r_squared: float | None
    at_mono: int
    at_common: int | None
    edges: int
    min_rtt_ns: int | None
    method: str
    stamps: str | None
    status: str
    warnings: tuple[str, ...]
    t: int


Line = ClockWindowLine | ClockNodeLine


def line_of(record: ClockWindow | ClockNode) -> Line:
    """The line of one record."""
    return window_line(record) if isinstance(record, ClockWindow) else node_line(record)


def window_line(record: ClockWindow) -> ClockWindowLine:
    """The line of one edge and window."""
    own = {name: getattr(record, name) for name in ClockWindowLine.__struct_fields__ if name != "src"}
    return ClockWindowLine(src=record.node, **own)


def node_line(record: ClockNode) -> ClockNodeLine:
    """The line of one node and window."""
    return ClockNodeLine(**{name: getattr(record, name) for name in ClockNodeLine.__struct_fields__})


class ClockLines:
    """A sink of the hub that writes a line per window and node; it stops at the first failure, kept in `failure`."""

    def __init__(self, file: BinaryIO) -> None:
        self.failure: OSError | None = None
        self._file = file

    def __call__(self, records: Sequence[Published]) -> None:
        if self.failure is not None:
            return
        wrote = False
        try:
            for record in records:
                if isinstance(record, ClockWindow | ClockNode):
                    self._file.write(msgspec.json.encode(line_of(record)) + b"\n")
                    wrote = True
            if wrote:
                self._file.flush()
        except OSError as error:
            self.failure = error

    def close(self) -> None:
        """Close the file; an error is kept in `failure`."""
        try:
            self._file.close()
        except OSError as error:
            self.failure = self.failure or error


def new_file(folder: str, cluster: str) -> ClockLines:
    """A sink that writes into a new file in `folder`, which is created if missing. Raises OSError."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    name = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in cluster)
    return ClockLines(open_truncated(Path(folder, f"clocks-{name}-{file_stamp(time.time_ns())}.jsonl")))
