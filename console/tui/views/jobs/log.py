"""What a job writes, folded over its ranks for the screen: the newest lines, each with a number that it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....launch.output_fold import Folded, LineFold, Writer, interleave
from ....records import Log
from ....text.cells import clean
from ...models.filter_language import FilterField, Value, Vocabulary
from ...models.grouping import NONE
from ...models.list_kind import ColumnField, ListKind
from ...models.row import PlainRow
from ...models.row_context import RowInContext

#: Equal lines of different ranks that come within this are one; nodes read what is written five times a second.
FOLD_S: Final = 0.6
#: So many lines are kept at least; the whole output is in files on the nodes.
KEPT: Final = 20_000
SLACK: Final = 2_000
#: Nothing on a screen is longer.
LONGEST: Final = 4_096


@dataclass(frozen=True, slots=True)
class LogLine(PlainRow):
    """One line, and all who wrote it. Without a writer it is a remark of ours."""

    number: int
    who: str
    writers: tuple[Writer, ...]
    raw: str

    @property
    def key(self) -> int:
        return self.number

    @property
    def version(self) -> int:
        return self.number

    @property
    def text(self) -> str:
        return clean(self.raw)


class JobLog:
    """The lines of one job. `writers` is how many ranks it has."""

    def __init__(self, job: str, writers: int) -> None:
        self.job = job
        self.lines: list[Folded] = []  # oldest first; one becomes a row when it is looked at
        self.first = 0  # number of the oldest
        self._fold = LineFold(writers, FOLD_S)

    @property
    def end(self) -> int:
        """The number that the next line gets."""
        return self.first + len(self.lines)

    def add(self, records: Iterable[Log], now_s: float) -> None:
        """What came since the last time, oldest first; `now_s` is any clock that runs evenly, in seconds."""
        new: dict[Writer, list[str]] = {}
        for record in records:
            if record.job == self.job:
                writer: Writer = record.rank if record.rank is not None else record.node
                new.setdefault(writer, []).extend(record.text.split("\n"))
        add = self._fold.add
        for writer, line in interleave(new):
            add(writer, line if len(line) <= LONGEST else line[:LONGEST], now_s)
        self._keep(self._fold.lines(now_s))

    def add_note(self, text: str) -> None:
        """Say something of ours between the lines."""
        self._keep([Folded("", (), text)])

    @property
    def rows(self) -> LogRows:
        """All of them; a view of this log, no copy."""
        return LogRows(self)

    def _keep(self, lines: Sequence[Folded]) -> None:
        self.lines += lines
        if len(self.lines) >= KEPT + SLACK:
            gone = len(self.lines) - KEPT
            del self.lines[:gone]
            self.first += gone


class LogRows(Sequence[LogLine]):
    """The lines as rows."""

    def __init__(self, log: JobLog) -> None:
        self._log = log

    def __len__(self) -> int:
        return len(self._log.lines)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # rows are asked for one by one or in one slice
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        place = index if index >= 0 else len(self) + index
        return LogLine(self._log.first + place, *self._log.lines[place])


class LogFilter:
    """The lines that pass; each is looked at once."""

    def __init__(self, passes: Callable[[LogLine], bool] | None) -> None:
        self._passes = passes
        self._passing: list[LogLine] = []
        self._end = 0
        self._gone = 0

    @property
    def gone(self) -> int:
        """How many that passed are kept no more."""
        return self._gone

    def update(self, log: JobLog) -> Sequence[LogLine]:
        """All that pass, oldest first, with those that came since the last time."""
        if self._passes is None:
            self._gone = log.first
            return log.rows
        lost = next((index for index, line in enumerate(self._passing) if line.number >= log.first), len(self._passing))
        if lost:
            self._gone += lost
            del self._passing[:lost]
        rows, begin = log.rows, max(self._end, log.first) - log.first
        self._passing += filter(self._passes, (rows[index] for index in range(begin, len(rows))))
        self._end = log.end
        return self._passing


def _ranks(entry: RowInContext[LogLine]) -> Value:
    return tuple(float(writer) for writer in entry.row.writers if isinstance(writer, int))


def _nodes(entry: RowInContext[LogLine]) -> Value:
    return tuple(clean(writer) for writer in entry.row.writers if isinstance(writer, str))


def _words(entry: RowInContext[LogLine]) -> Iterable[str]:
    yield entry.row.text


LINES: Final[Vocabulary[RowInContext[LogLine]]] = Vocabulary(
    (
        FilterField("rank", "number", _ranks, "rank that wrote the line, e.g. 0-7"),
        FilterField("launcher", "word", _nodes, "node whose launcher wrote the line"),
        FilterField("text", "text", lambda entry: entry.row.text, "part of the line", offered=False),
    ),
    _words,
)


def _style(row: LogLine, _: str) -> str:
    return "text" if row.writers else "warning"


FIELDS: Final[dict[str, ColumnField[LogLine]]] = {
    "who": ColumnField("who", "ranks", lambda row: row.who, lambda row: row.number, lambda row, _: "muted"),
    "text": ColumnField("text", "output", lambda row: row.text, lambda row: row.number, _style),
}


def _object(row: LogLine) -> dict[str, Any]:
    return {"ranks": [writer for writer in row.writers if isinstance(writer, int)],
            "launchers": [writer for writer in row.writers if isinstance(writer, str)], "text": row.raw}  # fmt: skip


KIND: Final = ListKind("line", "who", FIELDS, LINES, (NONE,), lambda row: None, _object)
