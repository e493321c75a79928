"""What communication libraries recorded of a job, in lines: what is wrong, how far each rank is, who sends whom."""

from __future__ import annotations

from collections.abc import Iterator

from ....analysis.collectives import Communication, Fault, ProcessGroup, TrafficMatrix
from ....present.spans import Line, Span, cut, plain, wrapped
from ....present.status import GLYPHS
from ....text import format
from ....text.cells import clean, fit
from ....text.rank_ranges import ranges

#: A larger matrix is no picture any more; the report has it whole.
_MOST_RANKS = 24
#: So many lines of a long list are shown; the report has the rest.
_MOST_LINES = 40

NOTHING = (
    plain("No collective data."),
    plain(""),
    plain("Optional. A capture reads these sources where they exist:", "muted"),
    plain("the worker server of a rank (TORCH_WORKER_SERVER_SOCKET), Flight Recorder", "muted"),
    plain("dumps (TORCH_FR_BUFFER_SIZE), NCCL RAS on port 28028, NCCL logs.", "muted"),
)


def collective_lines(said: Communication | None, width: int) -> tuple[Line, ...]:
    """All that is known; what the records do not carry is refused in its place, with the reason."""
    if said is None:
        return NOTHING
    lines: list[Line] = [_heading("SOURCES", "")]
    for witness, ranks in said.heard:
        lines.append(Line((Span(f"  {witness}  ", "text"), Span(f"[{ranges(ranks)}]" if ranks else "", "strong"))))
    for trouble in said.troubles:
        who = f" rank {trouble.rank}" if trouble.rank is not None else ""
        lines += _wrapped(f"{GLYPHS['warning']} {trouble.source}{who}: {trouble.text}", width, "warning")
        lines += _wrapped(f"try: {trouble.try_}", width, "accent") if trouble.try_ else []
    lines += [plain(""), _heading("FAULTS", str(len(said.faults)))]
    for fault in said.faults:
        lines += _fault_lines(fault, width)
    for circle in said.graph.cycles:
        words = " → ".join(map(str, (*circle, circle[0])))
        lines += _wrapped(f"{GLYPHS['failed']} circular wait (deadlock): {words}", width, "failed")
    if said.graph.causes:
        lines.append(plain(f"  root of the wait chain: [{ranges(said.graph.causes)}]", "strong"))
    lines.append(plain(""))
    for part in (_groups(said, width), _traffic(said, width), _loads(said, width), _statistics(said, width)):
        lines += [*part, plain("")]
    return tuple(lines[:-1])


def _heading(title: str, count: str) -> Line:
    return Line((Span(title, "accent"), Span(f" {count}" if count else "", "muted")))


def _wrapped(text: str, width: int, style: str) -> list[Line]:
    return [plain(f"  {part}", style) for part in wrapped(clean(text), width - 2)]


def _fault_lines(fault: Fault, width: int) -> Iterator[Line]:
    glyph, style = (GLYPHS["unknown"], "muted") if fault.follows else (GLYPHS["failed"], "failed")
    head = f"{glyph} {fault.kind.replace('_', ' ')} in {fault.op} of {fault.title}"
    number = f" #{fault.seq}" if fault.seq is not None else ""
    sure = Span(f"  confidence: {fault.confidence}", "muted")
    yield Line(cut((Span(f"  {clean(head)}{number}", style), sure), width))
    yield from _wrapped(fault.text, width, "text")
    for side in fault.sides:
        yield Line(cut((Span(f"    {clean(side.what)}  "), Span(f"[{ranges(side.ranks)}]", "strong")), width))
    for rank, title in fault.held:
        yield plain(f"    rank {rank} is itself blocked in group {clean(title)}", "muted")


def _groups(said: Communication, width: int) -> Iterator[Line]:
    yield _heading("PROCESS GROUPS", str(len(said.groups)))
    for group in said.groups:
        whole = "" if group.is_whole else "  (incomplete)"
        spans = (Span(f"  {clean(group.title)}  "), Span(f"[{ranges(group.ranks)}]", "strong"), Span(whole, "muted"))
        yield Line(cut(spans, width))
        for last, ranks in _fronts(group):
            word = "none entered" if last < 0 else f"last entered #{last}"
            yield Line(cut((Span(f"    {word:20} ", "muted"), Span(f"[{ranges(ranks)}]")), width))
        if group.unseen:
            unseen = Span(f"[{ranges(group.unseen)}]", "unknown")
            yield Line(cut((Span("    no data from ", "muted"), unseen), width))


def _fronts(group: ProcessGroup) -> list[tuple[int, list[int]]]:
    """The ranks by the newest number they entered, those that are behind first."""
    found: dict[int, list[int]] = {}
    for rank, member in group.members.items():
        found.setdefault(member.last, []).append(rank)
    return sorted(found.items())


def _traffic(said: Communication, width: int) -> Iterator[Line]:
    yield _heading("TRAFFIC MATRIX", said.pattern.pattern.replace("_", " ") if said.pattern.pattern else "")
    if said.matrix.refused:
        yield from _wrapped(f"not available: {said.matrix.refused}", width, "muted")
    elif len(said.matrix.ranks) > _MOST_RANKS or 6 * len(said.matrix.ranks) > width:
        yield from _wrapped(f"{len(said.matrix.cells)} rank pairs; the report lists all", width, "muted")
    else:
        yield from _matrix(said.matrix)
    if said.pattern.refused:
        yield from _wrapped(f"pattern not available: {said.pattern.refused}", width, "muted")
    for kind, count in said.matrix.left_out.items():
        yield plain(f"  excluded: {format.count(count)} {clean(kind)}", "muted")
    if said.slow_links.refused:
        yield from _wrapped(f"slow links not available: {said.slow_links.refused}", width, "muted")
    for link in said.slow_links.links[:_MOST_LINES]:
        share = f"{link.utilisation:.0%} of the median link"
        slow = f"{format.byte_rate(link.bytes_s)}, {share}, {link.measured} measured"
        yield plain(f"  {GLYPHS['warning']} {link.source} → {link.destination}  {slow}", "warning")


def _matrix(matrix: TrafficMatrix) -> Iterator[Line]:
    """Bytes from the rank of the line to that of the column."""
    cells = {(cell.source, cell.destination): cell for cell in matrix.cells}
    yield plain("  from\\to" + "".join(f"{rank:>6}" for rank in matrix.ranks), "muted")
    for source in matrix.ranks:
        spans = [Span(f"  {source:>7}", "muted")]
        for destination in matrix.ranks:
            cell = cells.get((source, destination))
            text = "·" if cell is None else format.size_compact(cell.bytes)
            spans.append(Span(f"{text:>6}", "muted" if cell is None else "text"))
        yield Line(tuple(spans))


def _loads(said: Communication, width: int) -> Iterator[Line]:
    yield _heading("LOAD", "bytes sent per rank")
    if said.imbalance.refused:
        yield from _wrapped(f"not available: {said.imbalance.refused}", width, "muted")
    for load in sorted(said.imbalance.loads, key=lambda load: -abs(load.deviation))[:_MOST_LINES]:
        style = "warning" if abs(load.deviation) >= 0.1 else "text"
        took = "" if load.total_ms is None else f"  {load.total_ms:.1f} ms total"
        yield plain(f"  rank {load.rank:>5}  {format.size_compact(load.bytes):>6}  {load.deviation:+.0%}{took}", style)


def _statistics(said: Communication, width: int) -> Iterator[Line]:
    yield _heading("COLLECTIVES", "")
    for statistic in said.statistics[:_MOST_LINES]:
        waits = f"  {statistic.pending} pending" if statistic.pending else ""
        times = (
            ""
            if statistic.mean_ms is None
            else f"  avg {statistic.mean_ms:.2f} ms, min {statistic.least_ms:.2f}, max {statistic.most_ms:.2f}"
        )
        spans = (
            Span(
                f"  {fit(clean(statistic.op), 18)} {fit(clean(statistic.group), 18)} "
                f"{format.count(statistic.count):>7}×  "
            ),
            Span(f"{format.size_compact(statistic.bytes):>6}{times}", "muted"),
            Span(waits, "warning"),
        )
        yield Line(cut(spans, width))
