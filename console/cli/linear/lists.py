"""Lists and single things as lines of labelled values: the columns, filters and details of the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from ...present.spans import GLYPHS
from ...records import Finding
from ...text import format
from ...text.cells import clean
from ...text.nodeset_fold import natural
from ...tui.models.detail import Detail, finding_detail, gpu_detail, job_detail, node_detail, rank_detail
from ...tui.models.filter_language import FilterError, parse
from ...tui.models.grouping import RowContext
from ...tui.models.heat_map import index_of
from ...tui.models.list_kind import ListKind, row_predicate
from ...tui.snapshot import ScreenSnapshot
from ...tui.views.events.columns import KIND as EVENTS
from ...tui.views.gpus.model import KIND as GPUS
from ...tui.views.gpus.model import GpuRows, ranks_on
from ...tui.views.jobs.model import KIND as JOBS
from ...tui.views.jobs.model import job_rows
from ...tui.views.nodes.model import KIND as NODES
from ...tui.views.nodes.model import node_rows
from ...tui.views.ranks.model import KIND as RANKS

#: Newest events that a list has.
MOST_EVENTS: Final = 1_000


class CommandError(Exception):
    """A command cannot be carried out; the text says why, and what to type instead."""


class RowList(NamedTuple):
    """A list of the screen: `columns` are the ones that are read out, the first ones without their titles."""

    kind: ListKind[Any]
    rows: Callable[[ScreenSnapshot], Sequence[Any]]
    leads: int
    columns: tuple[str, ...]


def _gpus(frame: ScreenSnapshot) -> Sequence[Any]:
    ranks = ranks_on(frame.gpu_processes.values(), frame.jobs, frame.gpus)
    return GpuRows().rows(frame.fleet, frame.gpus, ranks, frame.findings, None, frame.nodes)


#: Lists by the command that prints them.
LISTS: Final[dict[str, RowList]] = {
    "nodes": RowList(
        NODES, lambda frame: node_rows(frame.fleet, frame.nodes, frame.gpus, frame.jobs), 2,
        ("node", "state", "cpu", "mem", "io_stall", "rx", "tx", "gpus", "ranks", "tags", "reason"),
    ),
    "ranks": RowList(
        RANKS, lambda frame: [row for job in frame.jobs.jobs for row in job.rows], 2,
        ("rank", "state", "node", "gpu", "pid", "step", "cpu", "rss", "wchan", "job"),
    ),
    "gpus": RowList(
        GPUS, _gpus, 3,
        ("node", "gpu", "state", "util", "mem", "power", "temp", "sm_clock", "held", "reasons", "ecc", "ranks"),
    ),
    "jobs": RowList(
        JOBS, lambda frame: job_rows(frame.started, frame.jobs, frame.now), 2,
        ("job", "state", "ranks", "step", "ran", "nodes", "launcher", "exit", "reason", "command"),
    ),
    "events": RowList(
        EVENTS, lambda frame: frame.events.newest(lambda _: True, MOST_EVENTS), 4, ("time", "node", "kind", "text"),
    ),
}  # fmt: skip


class Listing:
    """How the lists were filtered and sorted last, by name."""

    def __init__(self) -> None:
        self.last = "nodes"
        self._filters: dict[str, str] = {}
        self._sorts: dict[str, tuple[str, bool]] = {}

    def filter(self, name: str, text: str) -> None:
        """Filter a list from now on; "" removes its filter. Raises CommandError."""
        try:
            parse(text, LISTS[name].kind.vocabulary)
        except FilterError as error:
            raise CommandError(f"filter: {error.text}; {error.try_}") from error
        self._filters[name] = text

    def sort(self, name: str, column: str, *, descending: bool) -> None:
        """Sort a list by a column, named by key or title; "" restores the initial order. Raises CommandError."""
        kind = LISTS[name].kind
        key = next((key for key, field in kind.fields.items() if column.lower() in (key, field.title.lower())), None)
        if column and key is None:
            raise CommandError(f"no column {clean(column)}; columns of {name}: {', '.join(kind.fields)}")
        self._sorts[name] = (key or "", descending)

    def lines(self, name: str, frame: ScreenSnapshot) -> list[str]:
        """A line for each row that passes the filter, after one that counts them."""
        self.last = name
        kind, make_rows, leads, columns = LISTS[name]
        text = self._filters.get(name, "")
        context = RowContext(frame.fleet, frame.nodes, frame.gpus, frame.jobs)
        passes = row_predicate(parse(text, kind.vocabulary), context)
        rows = make_rows(frame)
        shown = [row for row in rows if passes is None or passes(row)]
        key, descending = self._sorts.get(name, ("", False))
        if key:
            valued = [row for row in shown if kind.fields[key].order(row) is not None]
            unvalued = [row for row in shown if kind.fields[key].order(row) is None]
            shown = [*sorted(valued, key=kind.fields[key].order, reverse=descending), *unvalued]
        where = f" of {len(rows)} match {clean(text)}" if text else ""
        head = f"{name}: {len(shown)}{where}" + (f", sorted by {key}" if key else "")
        named = (*columns, key) if key and key not in columns else columns
        return [head, *(row_text(kind, row, leads, named) for row in shown)]


def row_text(kind: ListKind[Any], row: Any, leads: int, columns: Sequence[str]) -> str:
    """`node001, ok, CPU % 3, ranks 8`: known values of a row, those after the first `leads` ones with their titles."""
    parts = []
    for number, key in enumerate(columns):
        field = kind.fields[key]
        text = without_glyph(field.text(row))
        if text in ("", format.UNKNOWN):
            continue
        parts.append(text if number >= leads and not field.title else f"{_lead(key)}{text}" if number < leads
                     else f"{field.title} {text}")  # fmt: skip
    note = kind.row_note(row)
    return ", ".join([*parts, *([note] if note and note not in parts else [])])


def _lead(key: str) -> str:
    return {"rank": "rank ", "gpu": "GPU "}.get(key, "")


def without_glyph(text: str) -> str:
    """The text without the glyph of a state before it: a screen reader names it or skips it."""
    glyph, blank, rest = text.partition(" ")
    return rest.strip() if blank and glyph in GLYPHS.values() else text.strip()


# -- single things -----------------------------------------------------------------------------------------------------


def detail_lines(detail: Detail) -> Iterator[str]:
    """A title, and a line for each fact."""
    yield clean(detail.title)
    for fact in detail.facts:
        if fact.label:
            yield f"{without_glyph(fact.label)}: {fact.text.strip()}"


def node_lines(frame: ScreenSnapshot, name: str) -> Iterator[str]:
    """The facts of a node. Raises CommandError."""
    summary = frame.fleet.by_name.get(name)
    if summary is None:
        names = sorted(frame.fleet.by_name, key=natural)
        raise CommandError(f"no node {clean(name)}; nodes: {clean(format.some(names, 20))}")
    yield from detail_lines(node_detail(summary, frame.nodes.get(name)))


def rank_lines(frame: ScreenSnapshot, number: int) -> Iterator[str]:
    """The facts of the rank of that number, in every job. Raises CommandError."""
    rows = [row for job in frame.jobs.jobs for row in job.rows if row.number == number]
    if not rows:
        raise CommandError(f"no rank {number}; ranks lists all")
    for row in rows:
        rank = row.rank
        process = frame.processes.get((rank.node, rank.pid, rank.start_ticks)) if rank is not None else None
        yield from detail_lines(rank_detail(row, process))


def gpu_lines(frame: ScreenSnapshot, name: str) -> Iterator[str]:
    """The facts of a GPU, named NODE:INDEX. Raises CommandError."""
    node, _, index = name.rpartition(":")
    summary = frame.fleet.by_name.get(node)
    for now in frame.gpus.of(node) if summary is not None else ():
        if summary is not None and str(index_of(now)) == index.removeprefix("gpu"):
            yield from detail_lines(gpu_detail(summary, now))
            return
    raise CommandError(f"no GPU {clean(name)}; type gpu NODE:INDEX; gpus lists all")


def job_lines(frame: ScreenSnapshot, name: str) -> Iterator[str]:
    """The facts of the jobs with that in their name. Raises CommandError."""
    jobs = [job for job in frame.jobs.jobs if name in job.job]
    if not jobs:
        raise CommandError(f"no job {clean(name)}; jobs lists all")
    for job in jobs:
        yield from detail_lines(job_detail(job))


def finding_lines(number: int, finding: Finding | None) -> Iterator[str]:
    """A finding with its evidence. Raises CommandError without one."""
    if finding is None:
        raise CommandError(f"no open finding {number}; findings lists them")
    yield f"finding {number}: {finding.severity}"
    yield from detail_lines(finding_detail(finding))
