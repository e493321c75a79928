"""The page of one job: its plan and its state on each node as lines, and the output of its ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....launch.format import layout_text
from ....launch.output_fold import Folded, JobOutput, LineFold, Writer
from ....launch.state import JobNodeStatus, JobStatus
from ....present.spans import BY_WEIGHT, GLYPHS, Line, Span, Status, cut, state_word
from ....records import Log
from ....text import format
from ....text.cells import clean, fit
from ....text.nodeset_fold import fold_ranks
from ...models.column import ColumnField, keyed
from ...models.detail import Fact, PageItem, fact_lines, section
from ...models.filter_language import FilterField, Value, Vocabulary
from ...models.grouping import NONE, RowInContext
from ...models.job_ranks import RankListRow, state_spans
from ...models.list_kind import ListKind
from ...models.numbered_log import NumberedLog
from ...models.rows import PlainRow
from .model import JobRow, ending, node_status, state_text


@dataclass(frozen=True)
class _JobOnNode:
    """A job on one node."""

    node: str
    status: Status
    word: str
    ranks: str
    rows: Sequence[RankListRow]
    why: str


def title_spans(row: JobRow) -> tuple[Span, ...]:
    """`train-3f9a1c ● running  00:02:11`."""
    ran = row.ran_ns
    spans = [Span(clean(row.name), "accent"), Span(f"  {state_text(row)}", row.status)]
    return (*spans, Span(f"  {format.duration_compact(ran)} " if ran is not None else " ", "muted"))


def page_lines(row: JobRow, width: int) -> tuple[Line, ...]:
    """The plan, and one line per node."""
    facts = [*_plan(row)] if row.started else [*_discovered(row)]
    return (*fact_lines(facts, width), Line(), *section("NODES", _parts(row), _node_line, width))


def _plan(row: JobRow) -> Iterator[Fact]:
    view = row.started
    assert view is not None
    ordered = view.ordered
    if row.reason:
        yield Fact("status detail", row.reason, row.status)
    if view.is_over:
        yield Fact("exit code", str(view.exit_code), "text" if view.exit_code == 0 else "failed")
    yield Fact("command", row.command)
    gpus = f"{ordered.gpus_per_node} GPUs" if ordered.gpus_per_node else "no GPUs"
    yield Fact("plan", f"{layout_text(len(ordered.nodes), ordered.procs_per_node)}, "
                       f"{gpus} per node, {clean(ordered.launcher)}")  # fmt: skip
    yield Fact("rendezvous", clean(f"{ordered.master_addr}:{ordered.master_port}"))
    yield Fact("workdir", clean(ordered.workdir or "home directory"))
    yield Fact("started", f"{format.clock_time(ordered.created)}, {format.age(row.now - ordered.created)} ago")
    yield from _progress(row)


def _discovered(row: JobRow) -> Iterator[Fact]:
    """Facts of a job that gconsole did not start: only its ranks are known."""
    yield Fact("started by", clean(row.launcher) or "unknown")
    yield Fact("stop", "not started by gconsole; stop it with its launcher")
    yield Fact("ranks", format.seen(row.ranks.discovered if row.ranks else None, row.world_size))
    yield from _progress(row)


def _progress(row: JobRow) -> Iterator[Fact]:
    if row.ranks is not None and row.ranks.steps:
        steps = ", ".join(f"{count} at {format.count(step)}" for step, count in row.ranks.steps[:3])
        yield Fact("step", f"{format.count(row.ranks.step)} (median; {steps})")
    for reason, ranks in row.ranks.missing if row.ranks is not None and row.word in ("running", "partial") else ():
        yield Fact("missing", f"rank {fold_ranks(ranks)}: {clean(reason)}", "warning")


def _parts(row: JobRow) -> list[_JobOnNode]:
    by_node: dict[str, list[RankListRow]] = {}
    for rank in row.ranks.rows if row.ranks else ():
        if rank.rank is not None and rank.state != "exited":
            by_node.setdefault(rank.rank.node, []).append(rank)
    if row.started is None:
        return [
            _JobOnNode(node, _worst(rows), "found", fold_ranks([row.number for row in rows]), rows, "")
            for node, rows in by_node.items()
        ]
    per_node = row.started.ordered.procs_per_node
    return [_started_part(line, per_node, by_node) for line in row.started.lines]


def _started_part(line: JobNodeStatus, per_node: int, by_node: Mapping[str, Sequence[RankListRow]]) -> _JobOnNode:
    first = line.index * per_node
    ranks = str(first) if per_node == 1 else f"{first}-{first + per_node - 1}"
    now = line.now
    if now is None:
        return _JobOnNode(line.node, node_status(line), "unknown", ranks, (), line.why)
    bad = now.state == "failed" or now.signal is not None
    why = ending(now.exit_code, now.signal, now.reason) if bad else now.reason or ""
    if now.state == "failed" and now.local_rank is not None:
        why = f"rank {first + now.local_rank}: {why}"
    return _JobOnNode(line.node, node_status(line), now.state, ranks, by_node.get(line.node, ()), why)


def _worst(rows: Sequence[RankListRow]) -> Status:
    return min((row.status for row in rows), key=BY_WEIGHT.index, default="unknown")


def _node_line(part: _JobOnNode, width: int) -> Line:
    counts: dict[str, int] = {}
    for row in part.rows:
        counts[row.state] = counts.get(row.state, 0) + 1
    steps = [row.stat.step for row in part.rows if row.stat and row.stat.step is not None]
    last = f"–{format.count(max(steps))}" if len(set(steps)) > 1 else ""
    progress = f"step {format.count(min(steps))}{last}" if steps else ""
    spans = [
        Span(f"{GLYPHS[part.status]} ", part.status), Span(fit(clean(part.node), 12), "strong"),
        Span(f" {state_word(part.word):<12}", part.status), Span(f"rank {part.ranks:<8}", "muted"),
        *([Span(f" {progress:<14}")] if progress else []), *state_spans(counts),
        *([Span(f" {clean(part.why)}", part.status)] if part.why else []),
    ]  # fmt: skip
    return Line(cut(spans, width), PageItem("node", part.node))


#: Seconds. Equal lines of different ranks within this time are folded; nodes read the output five times a second.
FOLD_S: Final = 0.6
#: Lines. At least this many are kept; the whole output is in files on the nodes.
KEPT: Final = 20_000
#: Characters. Longer lines are cut.
LONGEST: Final = 4_096


@dataclass(frozen=True, slots=True)
class LogLine(PlainRow):
    """One line and its writers; without writers a message of the console."""

    key: int  # number of the line
    who: str
    writers: tuple[Writer, ...]
    raw: str

    @property
    def version(self) -> int:
        """Number of the line: lines never change."""
        return self.key

    @property
    def text(self) -> str:
        """The line, sanitised."""
        return clean(self.raw)


class JobLog(NumberedLog[Folded, LogLine]):
    """The output lines of one job."""

    def __init__(self, status: JobStatus) -> None:
        super().__init__(KEPT)
        self.job, self._output = status.ordered.job, JobOutput(status)
        self._fold = LineFold(status.ordered.world_size, FOLD_S)

    def add(self, records: Sequence[Log], now_s: float) -> None:
        """Add output records, oldest first; `now_s` is any monotonic clock, in seconds."""
        self._output.collect(records)
        for line in self._output.pop_lines():
            self._fold.add(line.writer, line.text[:LONGEST], now_s, stream=line.stream)
        self.append(self._fold.lines(now_s))

    def add_note(self, text: str) -> None:
        """Add a message of the console between the lines."""
        self.append([Folded("", (), text)])

    def row(self, number: int) -> LogLine:
        """The line of that number."""
        return LogLine(number, *self.items[number - self.first][:3])


def _ranks(entry: RowInContext[LogLine]) -> Value:
    return tuple(float(writer) for writer in entry.row.writers if isinstance(writer, int))


def _nodes(entry: RowInContext[LogLine]) -> Value:
    return tuple(clean(writer) for writer in entry.row.writers if isinstance(writer, str))


LINES: Final[Vocabulary[RowInContext[LogLine]]] = Vocabulary(
    (
        FilterField("rank", "number", _ranks, "rank that wrote the line, e.g. 0-7"),
        FilterField("launcher", "word", _nodes, "node whose launcher wrote the line"),
        FilterField("text", "text", lambda entry: entry.row.text, "part of the line", offered=False),
    ),
    lambda entry: (entry.row.text,),
)


FIELDS: Final[dict[str, ColumnField[LogLine]]] = keyed(
    ColumnField("who", "ranks", lambda row: row.who, lambda row: row.key, lambda row, _: "muted"),
    ColumnField("text", "output", lambda row: row.text, lambda row: row.key,
        lambda row, _: "text" if row.writers else "warning"),
)  # fmt: skip


def _object(row: LogLine) -> dict[str, Any]:
    return {"ranks": [writer for writer in row.writers if isinstance(writer, int)],
            "launchers": [writer for writer in row.writers if isinstance(writer, str)], "text": row.raw}  # fmt: skip


KIND: Final = ListKind("line", "who", FIELDS, LINES, (NONE,), lambda row: None, _object, lambda row: row.raw)
