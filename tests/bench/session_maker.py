"""Generates a long session of a whole fleet quickly, by repeating one minute of records, shifted in time.

Busy nodes with 8 GPUs and every value each second, ranks and their steps, NICs, NVLink traffic, clocks; and
occasional findings, XIDs, markers, a lost node, captures of all ranks. Frames, segments, Parquet and `session.json`
are written by the product's own writers; only decoding and encoding of single records is skipped. Seeded: the same
arguments give the same session.

    python -m tests.bench.session_maker FOLDER NAME --records 10000000 [--no-parquet | --no-segments]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from gconsole import __version__
from gconsole.core.bus import Published
from gconsole.records import encode
from gconsole.session.format import writer as create
from gconsole.session.format import zstd_frames
from gconsole.session.format.layout import AgentProgress, Meta, RecorderRun, Session, named, write_checked
from gconsole.session.format.manifest import MANIFEST, Manifest
from gconsole.session.format.parquet_writer import PartWriter, hour_of
from gconsole.session.format.writer import RecordCounts, SegmentWriter, add_counts, count_records

from .fleet_minute import AGAIN, BEGAN_NS, MINUTE_NS, NUMBERS, Fleet

#: Placeholder in a line for a number that differs between minutes; no value of the fleet is near it.
_PLACE: Final = 8_111_111_111_111_110_000
#: Segments are compacted one per step, as in the product.
_STEP: Final = 4


@dataclass(frozen=True)
class Line:
    """A record of the first minute as JSON with placeholders, and their initial values and increments per minute."""

    kind: str
    text: bytes
    first: tuple[float, ...]
    later: tuple[float, ...]

    def at(self, minute: int) -> bytes:
        return self.text % tuple(first + minute * later for first, later in zip(self.first, self.later, strict=True))


@dataclass
class Second:
    """The records of one second of the minute, in order of arrival."""

    lines: list[Line] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    first_rx: int = 0
    last_rx: int = 0


def make_long(
    session: Session, records: int, *, fleet: Fleet | None = None, segments: bool = True, parquet: bool = True,
    progress: Callable[[int], None] = lambda minute: None,
) -> Meta:  # fmt: skip
    """Generate a session with at least that many records, up to the end of a minute."""
    fleet = fleet or Fleet()
    meta = create.create_session(session, Meta(cluster="long", created=BEGAN_NS))
    began = list(fleet.beginning())
    minute = [list(second) for second in islice(fleet.seconds(), 60)]
    seconds = [_second(brought) for brought in minute]
    agents = {record.agent: record for second in minute for record in second}
    each = sum(len(second.lines) for second in seconds)
    minutes = max(1, -(-records // each))
    writer = _Segments(session, meta) if segments else None
    tables = _Tables(session) if parquet else None
    for number in range(minutes):
        events = [*(began if not number else ()), *fleet.events(number)]
        if writer is not None:
            writer.minute(number, seconds, events)
        else:
            _count_minute(meta, number, seconds, events)
        if tables is not None:
            tables.minute(number, seconds, events)
        progress(number)
    if writer is not None:
        writer.close()
    if tables is not None:
        tables.close()
    for agent, record in agents.items():
        seq = record.seq + (minutes - 1) * NUMBERS
        meta.agents[agent] = AgentProgress(record.node, seq, record.rx + (minutes - 1) * MINUTE_NS)
    _close(session, meta, minutes)
    return meta


def _close(session: Session, meta: Meta, minutes: int) -> None:
    ended = BEGAN_NS + minutes * MINUTE_NS
    meta.parts = (RecorderRun(began=BEGAN_NS, ended=ended, how="stopped", console="bench", version=__version__),)
    meta.state, meta.closed, meta.sealed = "closed", ended, len(session.segments())
    session.write(meta)


# -- segments ----------------------------------------------------------------------------------------------------------


def _second(brought: Sequence[Published]) -> Second:
    result = Second(first_rx=brought[0].rx, last_rx=max(record.rx for record in brought))
    for record in brought:
        line = _line(record)
        result.lines.append(line)
        result.kinds[line.kind] += 1
    return result


def _line(record: Any) -> Line:
    kind = str(record.__struct_config__.tag)
    changes = AGAIN[kind](record)
    first = tuple(getattr(record, name) for name in changes)
    marked = msgspec.structs.replace(record)
    for place, name in enumerate(changes):
        setattr(marked, name, _PLACE + place)  # structs accept any type; only decoding validates
    text = encode(marked).replace(b"%", b"%%")
    for place, value in enumerate(first):
        text = text.replace(b"%d" % (_PLACE + place), b"%.3f" if isinstance(value, float) else b"%d")
    order = sorted(range(len(first)), key=lambda place: encode(marked).index(b"%d" % (_PLACE + place)))
    later = tuple(changes.values())
    return Line(kind, text, tuple(first[index] for index in order), tuple(later[index] for index in order))


class _Segments:
    """Appends one frame per second, as a recorder does."""

    def __init__(self, session: Session, meta: Meta) -> None:
        self._meta, self._writer = meta, SegmentWriter(session)

    def minute(self, number: int, seconds: Sequence[Second], events: Sequence[Published]) -> None:
        if events:
            holds = count_records(events)
            self._append([encode(record) for record in events], holds)
        for second in seconds:
            self._append([line.at(number) for line in second.lines], _batch(second, number))

    def close(self) -> None:
        self._meta.seals += (self._writer.seal,) if self._writer.size else ()
        self._writer.close()

    def _append(self, lines: list[bytes], holds: RecordCounts) -> None:
        self._writer.append(zstd_frames.pack(lines, holds.kinds, holds.first_rx, holds.last_rx))
        add_counts(self._meta, holds)
        if self._writer.is_full:
            self._meta.seals += (self._writer.roll(),)


def _batch(second: Second, number: int) -> RecordCounts:
    shift = number * MINUTE_NS
    return RecordCounts(dict(second.kinds), {}, second.first_rx + shift, second.last_rx + shift)


def _count_minute(meta: Meta, number: int, seconds: Sequence[Second], events: Sequence[Published]) -> None:
    if events:
        add_counts(meta, count_records(events))
    for second in seconds:
        add_counts(meta, _batch(second, number))


# -- Parquet -----------------------------------------------------------------------------------------------------------


class _Tables:
    """Writes Parquet as compaction does: a new file once there are enough records."""

    #: Minutes per step; the product has about four segments for that many.
    STEP_MINUTES: Final = 20

    def __init__(self, session: Session) -> None:
        session.parquet_folder.mkdir(mode=0o700)
        self._session, self._done = session, Manifest()
        self._begin(0)

    def minute(self, number: int, seconds: Sequence[Second], events: Sequence[Published]) -> None:
        if number and number % self.STEP_MINUTES == 0:
            self._end()
            self._begin(number // self.STEP_MINUTES)
        hour = hour_of(BEGAN_NS + number * MINUTE_NS)
        self._writer.add(events)
        kinds: dict[str, list[str]] = {}
        for line in (line for second in seconds for line in second.lines):
            kinds.setdefault(line.kind, []).append(line.at(number).decode())
        for kind, lines in kinds.items():
            self._writer.add_lines(kind, hour, lines)

    def close(self) -> None:
        self._end()
        self._done.segments = {path.name: path.stat().st_size for path in self._session.segments()}
        write_checked(self._session.parquet_folder / MANIFEST, self._done)

    def _begin(self, step: int) -> None:
        first = step * _STEP + 1
        prefix = f"part-{first:06d}-{first + _STEP - 1:06d}"
        self._writer = PartWriter(self._session.parquet_folder, prefix)

    def _end(self) -> None:
        self._done.parts += self._writer.finish()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--no-segments", action="store_true")
    parser.add_argument("--no-parquet", action="store_true")
    options = parser.parse_args()
    began = time.monotonic()

    def tell(minute: int) -> None:
        print(f"\rminute {minute}, {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)

    meta = make_long(
        named(options.name, options.folder), options.records, segments=not options.no_segments,
        parquet=not options.no_parquet, progress=tell,
    )  # fmt: skip
    print(f"\n{meta.records:,} records: {meta.counts}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
