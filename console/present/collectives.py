"""Collectives of a job as lines: sources, faults, process groups, traffic, load, statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..analysis.collectives.align import ProcessGroup
from ..analysis.collectives.communication import Communication
from ..analysis.collectives.fault import Fault
from ..analysis.collectives.traffic import TrafficMatrix
from ..text import format
from ..text.cells import clean, fit
from ..text.nodeset_fold import fold_numbers
from ..text.sanitize import Printable
from .spans import GLYPHS, Line, Span, as_text, confidence_word, cut, plain, wrapped

#: Ranks. Larger matrices are only in the report.
_MAX_RANKS = 24
#: Lines of a long list; the report has the rest.
_MAX_LINES = 40

NOTHING = (
    plain("No collective data."),
    plain(""),
    plain("Optional. A capture reads these sources where they exist:", "muted"),
    plain("the worker server of a rank (TORCH_WORKER_SERVER_SOCKET), Flight Recorder", "muted"),
    plain("dumps (TORCH_FR_BUFFER_SIZE), NCCL RAS on port 28028, NCCL logs.", "muted"),
)


def collective_lines(communication: Communication | None, width: int) -> tuple[Line, ...]:
    """Everything known of one job's collectives; analyses that lack data give their reason instead."""
    if communication is None:
        return NOTHING
    lines = fault_lines(communication, width)
    for section in (_groups, _traffic, _loads, _statistics):
        lines += [plain(""), *section(communication, width)]
    return tuple(lines)


def collectives_text(communications: Iterable[Communication], width: int = 110) -> Printable:
    """Sources and faults of each job as text; empty without collective data."""
    lines: list[Line] = []
    for communication in communications:
        if communication.faults or communication.troubles or communication.sources:
            attempt = f" attempt {communication.attempt}" if communication.attempt else ""
            lines += [plain("")] if lines else []
            lines += [plain(f"collectives  {clean(communication.job)}{attempt}"), *fault_lines(communication, width)]
    return as_text(lines)


def job_text(communication: Communication, *, is_matrix_only: bool = False, width: int = 110) -> Printable:
    """Everything known of one job's collectives as text, or its traffic matrix alone, of any number of ranks."""
    attempt = f" attempt {communication.attempt}" if communication.attempt else ""
    head = plain(f"collectives  {clean(communication.job)}{attempt}")
    if not is_matrix_only:
        return as_text([head, *collective_lines(communication, width)])
    matrix = communication.matrix
    lines = [head, plain(f"  bytes sent from each rank (row) to each rank (column): {len(matrix.cells)} rank pairs")]
    lines += [*_wrapped(f"not available: {matrix.refused}", width, "muted")] if matrix.refused else _matrix(matrix)
    for kind, count in matrix.left_out.items():
        lines.append(plain(f"  excluded: {format.count(count)} {clean(kind)}, which names no pair of ranks"))
    return as_text(lines)


def fault_lines(communication: Communication, width: int) -> list[Line]:
    """Sources and their errors, faults, circular waits."""
    lines: list[Line] = [_heading("SOURCES", "")]
    for source, ranks in communication.sources:
        lines.append(Line((Span(f"  {source}  ", "text"), Span(f"[{fold_numbers(ranks)}]" if ranks else "", "strong"))))
    for trouble in communication.troubles:
        rank = f" rank {trouble.rank}" if trouble.rank is not None else ""
        lines += _wrapped(f"{GLYPHS['warning']} {trouble.source}{rank}: {trouble.text}", width, "warning")
        lines += _wrapped(f"try: {trouble.try_}", width, "accent") if trouble.try_ else []
    lines += [plain(""), _heading("FAULTS", str(len(communication.faults)))]
    for fault in communication.faults:
        lines += _fault_lines(fault, width)
    for cycle in communication.graph.cycles:
        path = " → ".join(map(str, (*cycle, cycle[0])))
        lines += _wrapped(f"{GLYPHS['failed']} circular wait (deadlock): {path}", width, "failed")
    if communication.graph.causes:
        lines.append(plain(f"  root of the wait chain: [{fold_numbers(communication.graph.causes)}]", "strong"))
    return lines


def _heading(title: str, count: str) -> Line:
    return Line((Span(title, "accent"), Span(f" {count}" if count else "", "muted")))


def _wrapped(text: str, width: int, style: str) -> list[Line]:
    return [plain(f"  {part}", style) for part in wrapped(clean(text), width - 2)]


def _fault_lines(fault: Fault, width: int) -> Iterator[Line]:
    glyph, style = (GLYPHS["unknown"], "muted") if fault.follows else (GLYPHS["failed"], "failed")
    head = f"{glyph} {fault.kind.replace('_', ' ')} in {fault.op} of {fault.title}"
    number = f" #{fault.seq}" if fault.seq is not None else ""
    confidence = Span(f"  confidence: {confidence_word(fault.confidence)}", "muted")
    yield Line(cut((Span(f"  {clean(head)}{number}", style), confidence), width))
    yield from _wrapped(fault.text, width, "text")
    for side in fault.sides:
        yield Line(cut((Span(f"    {clean(side.what)}  "), Span(f"[{fold_numbers(side.ranks)}]", "strong")), width))
    for rank, title in fault.held:
        yield plain(f"    rank {rank} is itself blocked in group {clean(title)}", "muted")


def _groups(communication: Communication, width: int) -> Iterator[Line]:
    yield _heading("PROCESS GROUPS", str(len(communication.groups)))
    for group in communication.groups:
        whole = "" if group.is_whole else "  (incomplete)"
        spans = (
            Span(f"  {clean(group.title)}  "),
            Span(f"[{fold_numbers(group.ranks)}]", "strong"),
            Span(whole, "muted"),
        )
        yield Line(cut(spans, width))
        for last, ranks in _fronts(group):
            word = "none entered" if last < 0 else f"last entered #{last}"
            yield Line(cut((Span(f"    {word:20} ", "muted"), Span(f"[{fold_numbers(ranks)}]")), width))
        if group.unseen:
            unseen = Span(f"[{fold_numbers(group.unseen)}]", "unknown")
            yield Line(cut((Span("    no data from ", "muted"), unseen), width))


def _fronts(group: ProcessGroup) -> list[tuple[int, list[int]]]:
    """Ranks by the newest sequence number they entered, the lowest first."""
    fronts: dict[int, list[int]] = {}
    for rank, member in group.members.items():
        fronts.setdefault(member.last, []).append(rank)
    return sorted(fronts.items())


def _traffic(communication: Communication, width: int) -> Iterator[Line]:
    yield _heading(
        "TRAFFIC MATRIX", communication.pattern.pattern.replace("_", " ") if communication.pattern.pattern else ""
    )
    if communication.matrix.refused:
        yield from _wrapped(f"not available: {communication.matrix.refused}", width, "muted")
    elif len(communication.matrix.ranks) > _MAX_RANKS or 6 * len(communication.matrix.ranks) > width:
        yield from _wrapped(f"{len(communication.matrix.cells)} rank pairs; the report lists all", width, "muted")
    else:
        yield from _matrix(communication.matrix)
    if communication.pattern.refused:
        yield from _wrapped(f"pattern not available: {communication.pattern.refused}", width, "muted")
    for kind, count in communication.matrix.left_out.items():
        yield plain(f"  excluded: {format.count(count)} {clean(kind)}", "muted")
    if communication.slow_links.refused:
        yield from _wrapped(f"slow links not available: {communication.slow_links.refused}", width, "muted")
    for link in communication.slow_links.links[:_MAX_LINES]:
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


def _loads(communication: Communication, width: int) -> Iterator[Line]:
    yield _heading("LOAD", "bytes sent per rank")
    if communication.imbalance.refused:
        yield from _wrapped(f"not available: {communication.imbalance.refused}", width, "muted")
    for load in sorted(communication.imbalance.loads, key=lambda load: -abs(load.deviation))[:_MAX_LINES]:
        style = "warning" if abs(load.deviation) >= 0.1 else "text"
        took = "" if load.total_ms is None else f"  {load.total_ms:.1f} ms total"
        yield plain(f"  rank {load.rank:>5}  {format.size_compact(load.bytes):>6}  {load.deviation:+.0%}{took}", style)


def _statistics(communication: Communication, width: int) -> Iterator[Line]:
    yield _heading("COLLECTIVES", "")
    for statistic in communication.statistics[:_MAX_LINES]:
        waits = f"  {statistic.pending} pending" if statistic.pending else ""
        times = (
            ""
            if statistic.mean_ms is None
            else f"  avg {statistic.mean_ms:.2f} ms, min {statistic.least_ms:.2f}, max {statistic.most_ms:.2f}"
        )
        reductions = f"  {clean(', '.join(statistic.red_ops))}" if statistic.red_ops else ""
        streams = f"  {format.plural(statistic.streams, 'stream')} a rank" if statistic.streams else ""
        spans = (
            Span(
                f"  {fit(clean(statistic.op), 18)} {fit(clean(statistic.group), 18)} "
                f"{format.count(statistic.count):>7}×  "
            ),
            Span(f"{format.size_compact(statistic.bytes):>6}{times}{reductions}{streams}", "muted"),
            Span(waits, "warning"),
        )
        yield Line(cut(spans, width))
