"""What the Python interface returns: verdicts, captures of stacks and results of queries.

Each prints as the console shows it, as text in a terminal and as HTML in a notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, TypeAlias, overload

import numpy as np

from ..core.store import CaptureNow
from ..monitor.captures import PLAIN, CaptureLine, Model, lines_of, newest_of
from ..monitor.crash import crash_verdicts
from ..monitor.hang import verdicts
from ..present.crash import crash_lines
from ..present.spans import Line, as_text
from ..present.stacks import captures_text
from ..present.verdict import VERDICT_STATUS, verdict_lines
from ..records import Stack
from ..report import CrashVerdict, Verdict
from ..session.export.stacks import STACK_FORMATS, folded_stacks
from ..session.query.output import ResultColumn, value_of, write, write_arrays
from ..text.sanitize import printable_lines
from .frames import ColumnKind, ColumnTable, result_frame

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from ..core.store import Store
    from ..session.query.engine import Database

#: The verdict on a job that hangs, is slow or makes progress, or on one that died.
JobVerdict: TypeAlias = Verdict | CrashVerdict

#: Formats of `SqlResult.write`.
TableFormat = Literal["table", "json", "csv", "parquet"]

#: CSS colours of the styles of a line; others have none.
_COLOURS: Final = {
    "failed": "#c62828", "warning": "#b26a00", "ok": "#2e7d32", "accent": "#1565c0", "muted": "#757575",
    "unknown": "#757575", "stale": "#757575",
}  # fmt: skip
_PRE: Final = '<pre style="line-height:1.3;white-space:pre-wrap">'
_WIDTH: Final = 110


class DisplayText(str):
    """Text that a notebook shows in a fixed-width font."""

    def _repr_html_(self) -> str:
        return f"{_PRE}{escape(self)}</pre>"

    def __repr__(self) -> str:
        return str(self)


class JobVerdicts(Sequence[JobVerdict]):
    """The verdicts of a diagnosis, the worst first: one per job that died or has stacks.

    Each is the record that the Hang view and the report have. The attributes are those of the worst one.
    """

    def __init__(
        self, hangs: Iterable[Verdict], crashes: Iterable[CrashVerdict] = (), notes: Sequence[str] = ()
    ) -> None:
        """`notes` are sentences on what could not be read."""
        order = list(VERDICT_STATUS)
        stalled = sorted(hangs, key=lambda verdict: (not verdict.stalled, order.index(verdict.state)))
        self._verdicts: tuple[JobVerdict, ...] = (*crashes, *stalled)
        self.notes = tuple(notes)

    @classmethod
    def of_store(cls, store: Store, jobs: Sequence[str] = ()) -> JobVerdicts:
        """The verdicts on all jobs of a store, or on those that have one of `jobs` in their names."""
        hangs, crashes = verdicts(store), crash_verdicts(store)
        if jobs:
            hangs = [verdict for verdict in hangs if any(name in verdict.job for name in jobs)]
            crashes = [verdict for verdict in crashes if any(name in verdict.job for name in jobs)]
        return cls(hangs, crashes)

    @overload
    def __getitem__(self, index: int) -> JobVerdict: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[JobVerdict]: ...
    def __getitem__(self, index: int | slice) -> JobVerdict | Sequence[JobVerdict]:
        return self._verdicts[index]

    def __len__(self) -> int:
        return len(self._verdicts)

    def __getattr__(self, name: str) -> Any:
        """An attribute of the worst verdict: state, kind, culprits, confidence, summary, evidence, next_step, …."""
        if name.startswith("_") or not self._verdicts:
            reason = "" if self._verdicts else ": there is no verdict, because no rank was captured"
            raise AttributeError(f"{name}{reason}")
        return getattr(self._verdicts[0], name)

    def __dir__(self) -> list[str]:
        fields = self._verdicts[0].__struct_fields__ if self._verdicts else ()
        return [*super().__dir__(), *fields]

    def df(self) -> pd.DataFrame:
        """A row per culprit of each job; a job without one has one row."""
        rows = []
        for verdict in self._verdicts:
            common = {name: getattr(verdict, name) for name in ("job", "state", "kind", "confidence", "summary")}
            for culprit in verdict.culprits or (None,):
                site = culprit.site if culprit is not None else None
                place = {"function": site.function, "file": site.file, "line": site.line or None} if site else {}
                who = {name: getattr(culprit, name, None) for name in ("rank", "node", "pid")}
                rows.append(common | who | place | {"source": site.source if site else None})
        kinds: dict[str, ColumnKind] = dict.fromkeys(("job", "state", "kind", "confidence", "summary"), "string")
        kinds |= {"rank": "Int64", "node": "string", "pid": "Int64", "function": "string", "file": "string"}
        return ColumnTable("verdicts", {**kinds, "line": "Int64", "source": "string"}, {}, rows).frame()

    def lines(self, width: int = _WIDTH) -> list[Line]:
        """The lines of the Hang view, wrapped to `width` cells."""
        lines: list[Line] = []
        for verdict in self._verdicts:
            drawn = crash_lines(verdict, width) if isinstance(verdict, CrashVerdict) else verdict_lines(verdict, width)
            lines += [*([Line()] if lines else []), *drawn]
        return lines

    def __str__(self) -> str:
        text = as_text(self.lines()) or "no verdict: no rank was captured"
        return printable_lines("\n".join([text, *(f"note: {note}" for note in self.notes)]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f"\nnote: {escape(note)}" for note in self.notes)
        return f"{_PRE}{_as_html(self.lines()) or escape(str(self))}{notes}</pre>"


def lines_html(lines: Sequence[Line]) -> str:
    """The lines as HTML in a fixed-width font."""
    return f"{_PRE}{_as_html(lines)}</pre>"


def _as_html(lines: Sequence[Line]) -> str:
    drawn = []
    for line in lines:
        spans = []
        for span in line.spans:
            text, colour = escape(span.text), _COLOURS.get(span.style)
            text = f'<span style="color:{colour}">{text}</span>' if colour else text
            spans.append(f"<b>{text}</b>" if span.style == "strong" else text)
        drawn.append("".join(spans).rstrip())
    return "\n".join(drawn)


class StackCapture:
    """The stacks of one capture, of all ranks at one instant."""

    def __init__(self, capture: CaptureNow, models: Sequence[Model], failures: Mapping[str, str]) -> None:
        """`failures` are the nodes that were not captured, with the reason."""
        self._captures, self._models = [capture], models
        self.id, self.failures = capture.id, dict(failures)

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The records: one per thread and sample."""
        return tuple(self._captures[0].stacks)

    @property
    def ranks(self) -> list[int]:
        """Ranks with a stack, in order."""
        return sorted({stack.rank for stack in self.stacks if stack.rank is not None and stack.status == "ok"})

    @property
    def groups(self) -> list[CaptureLine]:
        """Per job, the ranks grouped by call path, as in the report."""
        return lines_of(self._captures, self._models)

    @property
    def tree(self) -> DisplayText:
        """The calls of all ranks as a tree, as the Hang view draws it; equal paths are one branch."""
        failed = "".join(f"\n◌ {node}: {reason}" for node, reason in sorted(self.failures.items()))
        text = captures_text(newest_of(self._captures, self._models)) or "no stacks"
        return DisplayText(printable_lines(text + failed))

    def to_folded(self) -> str:
        """Folded stacks for flame graph programs, a line per distinct stack."""
        return folded_stacks(stack for stack in self.stacks if not stack.native)

    def to_format(self, name: str) -> str:
        """The capture in a format of `gconsole batch --capture --format`: text, json, folded, speedscope or dot."""
        if name not in STACK_FORMATS:
            raise ValueError(f"{name!r} is not a format; use {', '.join(STACK_FORMATS)}")
        return STACK_FORMATS[name].write(self._captures, self._models, PLAIN)

    def df(self) -> pd.DataFrame:
        """A row per thread and sample: process, state, the innermost call, and the whole stack, outermost first."""
        rows = []
        for stack in self.stacks:
            frames = stack.frames or ()
            calls = [f"{frame.function} ({frame.file}:{frame.line})" for frame in frames]
            inner = frames[-1] if frames else None
            rows.append({
                **{name: getattr(stack, name) for name in _STACK_COLUMNS},
                "function": inner.function if inner else None, "file": inner.file if inner else None,
                "line": inner.line or None if inner else None, "stack": "\n".join(calls) if calls else None,
                "locals": {local.name: local.value for local in stack.locals} if stack.locals is not None else None,
            })  # fmt: skip
        kinds: dict[str, ColumnKind] = {**_STACK_COLUMNS, "function": "string", "file": "string", "line": "Int64"}
        return ColumnTable("stacks", {**kinds, "stack": "string", "locals": "object"}, {}, rows).frame()

    def __repr__(self) -> str:
        return f"<StackCapture {self.id}: {len(self.ranks)} ranks, {len(self.stacks)} stacks>"

    def _repr_html_(self) -> str:
        return self.tree._repr_html_()


_STACK_COLUMNS: Final[dict[str, ColumnKind]] = {
    "job": "string", "attempt": "Int64", "rank": "Int64", "node": "string", "pid": "Int64", "role": "string",
    "sample": "Int64", "t": "instant", "status": "string", "reason": "string", "proc_state": "string",
    "cpu_delta_s": "Float64", "thread_id": "Int64", "thread_name": "string", "native": "boolean",
}  # fmt: skip


class SqlResult:
    """The result of a query, in memory. `damage` names what could not be read: the result is without it."""

    def __init__(
        self, columns: Sequence[ResultColumn], arrays: Sequence[NDArray[Any]], damage: Sequence[str] = ()
    ) -> None:
        self._columns, self._arrays, self.damage = tuple(columns), list(arrays), tuple(damage)

    def write(self, how: TableFormat, out: BinaryIO) -> None:
        """Write the rows as a text table with units, JSON, CSV or Parquet. Raises OSError."""
        if how == "parquet":
            write_arrays(self._columns, self._arrays, out)
        else:
            write(how, self._columns, [[tuple(row.values()) for row in self.rows()]], out, with_units=True)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self._columns]

    def df(self) -> pd.DataFrame:
        """The result as a DataFrame: nullable types, UTC timestamps for t, rx and t_cluster, units in `attrs`."""
        return result_frame(self._columns, self._arrays)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as column → value; instants are as the query has them."""
        plain = [
            [value_of(_plain(value, column.type)) for value in np.ma.getdata(array)]
            for column, array in zip(self._columns, self._arrays, strict=True)
        ]
        masks = [np.ma.getmaskarray(array) for array in self._arrays]
        for index in range(len(self)):
            yield {
                name: None if mask[index] else values[index]
                for name, values, mask in zip(self.columns, plain, masks, strict=True)
            }

    def __len__(self) -> int:
        return len(self._arrays[0]) if self._arrays else 0

    def __repr__(self) -> str:
        return f"<SqlResult: {len(self)} rows of {', '.join(self.columns)}; .df() is a DataFrame>"

    def _repr_html_(self) -> str:
        return str(self.df()._repr_html_())


def join_results(parts: Sequence[SqlResult]) -> SqlResult:
    """The rows of several results with the same columns, one after the other."""
    join: Any = np.ma.concatenate
    arrays = [join(column) for column in zip(*(part._arrays for part in parts), strict=True)]
    damage = tuple(dict.fromkeys(text for part in parts for text in part.damage))
    return SqlResult(parts[0]._columns, arrays, damage)


def run_sql(query: str, source: Any, timeout_s: float, database: Database | None = None) -> SqlResult:
    """Run a query over a source in this thread; `database` is one of the source that is kept. Raises QueryError."""
    from ..session.query.engine import Database

    used = database if database is not None else Database(source, getattr(source, "scratch", None))
    try:
        columns, arrays = used.arrays(query, deadline_s=timeout_s)
        return SqlResult(columns, arrays, tuple(map(str, getattr(source, "damage", ()))))
    finally:
        if database is None:
            used.close()


def _plain(value: Any, sql_type: str) -> Any:
    """A value of an array as Python has it; large integers and decimals are text there."""
    if isinstance(value, str) and (sql_type.endswith("HUGEINT") or sql_type.startswith("DECIMAL")):
        return Decimal(value)
    if isinstance(value, np.datetime64):
        return str(value)
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
