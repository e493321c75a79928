"""The output of a job for the screen: the newest lines, equal lines of several ranks folded into one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from ....launch.output_fold import Folded, LineFold, Writer, interleave
from ....records import Log
from ....text.cells import clean
from ...models.filter_language import FilterField, Value, Vocabulary
from ...models.grouping import NONE, RowInContext
from ...models.list_kind import ColumnField, ListKind, keyed
from ...models.numbered_log import NumberedLog
from ...models.row import PlainRow

#: Seconds. Equal lines of different ranks within this time are folded; nodes read the output five times a second.
FOLD_S: Final = 0.6
#: Lines. At least this many are kept; the whole output is in files on the nodes.
KEPT: Final = 20_000
#: Characters. Longer lines are cut.
LONGEST: Final = 4_096


@dataclass(frozen=True, slots=True)
class LogLine(PlainRow):
    """One line and its writers; without writers a message of the console."""

    number: int
    who: str
    writers: tuple[Writer, ...]
    raw: str

    @property
    def key(self) -> int:
        """Number of the line."""
        return self.number

    @property
    def version(self) -> int:
        """Number of the line: lines never change."""
        return self.number

    @property
    def text(self) -> str:
        """The line, sanitised."""
        return clean(self.raw)


class JobLog(NumberedLog[Folded, LogLine]):
    """The output lines of one job, which has `writers` ranks."""

    def __init__(self, job: str, writers: int) -> None:
        super().__init__(KEPT)
        self.job = job
        self._fold = LineFold(writers, FOLD_S)

    def add(self, records: Iterable[Log], now_s: float) -> None:
        """Add output records, oldest first; `now_s` is any monotonic clock, in seconds."""
        new: dict[Writer, list[str]] = {}
        for record in records:
            if record.job == self.job:
                writer: Writer = record.rank if record.rank is not None else record.node
                new.setdefault(writer, []).extend(record.text.split("\n"))
        for writer, line in interleave(new):
            self._fold.add(writer, line if len(line) <= LONGEST else line[:LONGEST], now_s)
        self.append(self._fold.lines(now_s))

    def add_note(self, text: str) -> None:
        """Add a message of the console between the lines."""
        self.append([Folded("", (), text)])

    def row(self, number: int) -> LogLine:
        """The line of that number."""
        return LogLine(number, *self.items[number - self.first])


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
    ColumnField("who", "ranks", lambda row: row.who, lambda row: row.number, lambda row, _: "muted"),
    ColumnField("text", "output", lambda row: row.text, lambda row: row.number,
        lambda row, _: "text" if row.writers else "warning"),
)  # fmt: skip


def _object(row: LogLine) -> dict[str, Any]:
    return {"ranks": [writer for writer in row.writers if isinstance(writer, int)],
            "launchers": [writer for writer in row.writers if isinstance(writer, str)], "text": row.raw}  # fmt: skip


KIND: Final = ListKind("line", "who", FIELDS, LINES, (NONE,), lambda row: None, _object)
