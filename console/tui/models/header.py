"""The top line: cluster, nodes, GPUs, ranks, recordings, warnings. Unknown is `–`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ...present.spans import Span
from ...text import format
from ...text.cells import clean, fit, width_of
from .node_summary import FleetSummary

NAME = "gconsole"
_GAP = 2


class RecordingStatus(msgspec.Struct, frozen=True):
    """A running recording."""

    name: str
    length_ns: int
    trouble: str = ""  # why nothing can be written now


class Header(msgspec.Struct, frozen=True):
    """Everything the top line can show."""

    cluster: str
    fleet: FleetSummary
    gpus_seen: int | None = None
    gpus_expected: int | None = None  # None while some node has not reported them
    job: str | None = None  # the only job's name
    jobs: int | None = None  # None before every node was sampled once
    ranks_found: int | None = None
    ranks_expected: int | None = None
    simulated: bool = False
    replay_at: int | None = None  # console time of the newest record, ns; None where this is live
    frozen_at: int | None = None  # console time, ns
    staging: tuple[int, int] | None = None  # nodes with py-spy, of all; None when complete
    clock_ns: int | None = None  # largest error bound of any clock; None if unknown
    age_ns: int | None = None  # of the newest data, if no node has fresh data
    recordings: tuple[RecordingStatus, ...] = ()
    black_box: RecordingStatus | None = None


@dataclass(frozen=True)
class _Part:
    """A part of the line. On narrow screens the highest `drop` is dropped first, 0 never."""

    drop: int
    spans: tuple[Span, ...]

    @property
    def width(self) -> int:
        return sum(width_of(span.text) for span in self.spans)


def header_spans(header: Header, width: int) -> tuple[Span, ...]:
    """The line for that many cells; parts that do not fit are dropped, least important first."""
    parts = _parts(header)
    while len(parts) > 1 and _width(parts) > width:
        worst = max(parts, key=lambda part: part.drop)
        if worst.drop == 0:
            break
        parts.remove(worst)
    spans: list[Span] = [Span(" ")]
    for part in parts:
        if len(spans) > 1:
            spans.append(Span(" " * _GAP))
        spans.extend(part.spans)
    return tuple(spans)


def _width(parts: Sequence[_Part]) -> int:
    return 2 + sum(part.width for part in parts) + _GAP * (len(parts) - 1)


def _parts(header: Header) -> list[_Part]:
    fleet = header.fleet
    parts = [_Part(9, (Span(NAME, "strong"),)), _Part(5, (Span(clean(header.cluster), "accent"),))]
    if header.simulated:
        parts.append(_Part(0, (Span(" SIM ", "badge-warning"),)))
    if header.frozen_at is not None:
        parts.append(_Part(0, (Span(f" FROZEN {format.clock_time(header.frozen_at)} ", "badge", "frames.freeze"),)))
    if header.replay_at is not None:
        parts.append(_Part(0, (Span(f" REPLAY {format.clock_time(header.replay_at)} ", "badge"),)))
    is_failed = any(node.status == "failed" and not node.fresh for node in fleet.nodes)
    nodes_style = "text" if fleet.ok == fleet.expected else "failed" if is_failed else "warning"
    parts.append(_Part(0, (Span(format.seen(fleet.ok, fleet.expected), nodes_style), Span(" nodes", "muted"))))
    if header.age_ns is not None:
        parts.append(_Part(1, (Span(f"◐ data {format.age(header.age_ns)} old", "stale"),)))
    parts.append(_Part(4, _gpus(header)))
    if header.job is not None:
        parts.append(_Part(8, (Span("job ", "muted"), Span(_short(clean(header.job)), "text"))))
    parts.append(_Part(2, _ranks(header)))
    if header.clock_ns is not None:
        parts.append(_Part(7, (Span("clock ", "muted"), Span(f"±{format.micro(header.clock_ns)} µs", "text"))))
    if header.recordings:
        parts += _recordings(header.recordings)
    if header.black_box is not None:
        parts.append(_black_box(header.black_box))
    if header.staging is not None:
        staged, expected = header.staging
        parts.append(_Part(6, (Span(f"uploading py-spy {staged}/{expected}", "muted"),)))
    return parts


def _recordings(recordings: Sequence[RecordingStatus]) -> list[_Part]:
    """A recording in trouble, else the oldest, and the number of others."""
    first = next((recording for recording in recordings if recording.trouble), recordings[0])
    more = f" +{len(recordings) - 1}" if len(recordings) > 1 else ""
    if first.trouble:
        return [_Part(0, (Span(f"▲ REC {_short(clean(first.name), 16)}{more} {clean(first.trouble)}", "failed"),))]
    record = "recordings.record"
    named = (Span("● REC ", "failed", record), Span(_short(clean(first.name), 16) + more, "text", record))
    return [_Part(1, named), _Part(7, (Span(format.duration_compact(first.length_ns), "muted"),))]


def _black_box(box: RecordingStatus) -> _Part:
    """What is kept without a recording; in whole minutes, so that the line is not drawn each second."""
    if box.trouble:
        return _Part(3, (Span(f"▲ {box.name}: {clean(box.trouble)}", "warning"),))
    whole = box.length_ns // 60_000_000_000
    minutes = f"{whole} min" if whole else "<1 min"
    return _Part(10, (Span(f"{box.name} ", "muted", "recordings.record"), Span(minutes, "muted", "recordings.record")))


def _gpus(header: Header) -> tuple[Span, ...]:
    if header.gpus_seen is None:
        return (Span(format.UNKNOWN, "unknown"), Span(" GPUs", "muted"))
    short = header.gpus_expected is not None and header.gpus_seen < header.gpus_expected
    return (
        Span(format.seen(header.gpus_seen, header.gpus_expected), "warning" if short else "text"),
        Span(" GPUs", "muted"),
    )


def _ranks(header: Header) -> tuple[Span, ...]:
    if header.jobs is None:
        return (Span(format.UNKNOWN, "unknown"), Span(" ranks", "muted"))
    if header.jobs == 0:
        return (Span("no job", "muted"),)
    short = header.ranks_expected is not None and (header.ranks_found or 0) < header.ranks_expected
    count = Span(format.seen(header.ranks_found, header.ranks_expected), "warning" if short else "text")
    label = Span(" ranks", "muted")
    return (count, label) if header.jobs == 1 else (Span(f"{header.jobs} jobs ", "muted"), count, label)


def _short(name: str, width: int = 24) -> str:
    return fit(name, width).rstrip()
