"""pandas DataFrames of a store and of query results: nullable types, UTC timestamps, units in `attrs`.

Unknown is <NA> (NaT for timestamps), never 0. `frame.attrs["units"]` has the unit of each column that has one,
`frame.attrs["descriptions"]` its meaning. pandas takes a third of a second to import, so functions import it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import numpy as np
from msgspec import inspect as types

from ..core.store import NodeNow, Store
from ..monitor.coverage import coverage_of
from ..monitor.hang import jobs_of
from ..monitor.progress import progress_in
from ..records import AgentCost, Finding, Gpu, Host, Node, RankStat, Record
from ..records.kinds import kind_of
from ..report.document import make_report
from ..report.nodes import GpuLine, NodeLine, RankLine, gpu_lines, node_line, rank_line
from ..session.format.table_schema import unit_of, words_of
from ..text.nodeset_fold import natural

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from ..session.query.output import ResultColumn

#: How a column is stored: a nullable type of pandas, UTC timestamps with ns, or objects.
ColumnKind = Literal["Int64", "Float64", "boolean", "string", "instant", "object"]
#: Columns that are instants of CLOCK_REALTIME, ns since 1970; 0 is unknown. Other clocks stay integers.
INSTANT_COLUMNS: Final = ("t", "rx", "t_cluster", "first_seen", "cleared_at", "retry_at", "watched_at")
#: Fields of a record that identify its sender, not what it is about.
_HEAD: Final = frozenset({"agent", "seq", "mono", "rx"})
_NAT: Final = np.iinfo(np.int64).min


class ColumnTable(msgspec.Struct, frozen=True):
    """Rows with the kind of each column: copied from a store in its thread, made a DataFrame in any."""

    name: str
    columns: Mapping[str, ColumnKind]
    descriptions: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]

    def frame(self) -> pd.DataFrame:
        """The rows as a DataFrame; without rows it has the same columns and types."""
        import pandas as pd

        data = {
            name: _values(kind, [row.get(name) for row in self.rows]) for name, kind in self.columns.items()
        }  # fmt: skip
        return _described(pd.DataFrame(data), self.columns, self.descriptions)


def nodes_table(store: Store) -> ColumnTable:
    """A row per node: its state and why it is not reached, its host's figures, and what its agent costs.

    Figures of a node that is not connected are unknown.
    """
    coverage = coverage_of(store)
    rows = []
    for now in sorted(store.nodes.values(), key=lambda now: natural(now.name)):
        row = _fields(now.node) | _fields(now.host if _is_connected(now) else None)
        row |= {f"agent_{name}": value for name, value in _fields(now.cost if _is_connected(now) else None).items()}
        row |= _fields(node_line(now, coverage[now.name])) | {"t": now.host.t if now.host else None}
        error = now.state.error if now.state else None
        row |= {"error": error.text if error else None, "try": error.try_ if error else None}
        row["gpu_fault"] = row["gpu_fault"].text if row["gpu_fault"] else None
        rows.append(row)
    own: dict[str, ColumnKind] = {
        "node": "string",
        "state": "string",
        "t": "instant",
        "error": "string",
        "try": "string",
    }
    kinds = own | _kinds_of(NodeLine) | {"error": "string", "gpu_fault": "string"}
    kinds |= _kinds_of(Host) | {f"agent_{name}": kind for name, kind in _kinds_of(AgentCost).items() if name != "node"}
    kinds |= {name: kind for name, kind in _kinds_of(Node).items() if name not in kinds}
    return ColumnTable("nodes", kinds, _meanings("host") | _meanings("node"), rows)


def ranks_table(store: Store) -> ColumnTable:
    """A row per process that is a rank: where it runs, whether it makes progress, and its figures.

    Figures of a rank that has ended, or whose node is not connected, are unknown.
    """
    progress, rows = progress_in(store), []
    for summary in jobs_of(store).rows:
        now = store.ranks.get((summary.node, summary.pid, summary.start_ticks))
        node = store.nodes.get(summary.node)
        is_current = summary.status == "present" and (node is None or _is_connected(node))
        stat = now.stat if now is not None and is_current else None
        line = _fields(rank_line(summary, progress))
        rows.append(
            _fields(stat) | line | {"status": summary.status, "reason": summary.reason, "t": stat.t if stat else None}
        )
    kinds = _kinds_of(RankLine) | {"status": "string", "reason": "string", "t": "instant"}
    kinds |= {name: kind for name, kind in _kinds_of(RankStat).items() if name not in kinds}
    return ColumnTable("ranks", kinds, _meanings("rank_stat") | _meanings("rank"), rows)


def gpus_table(store: Store) -> ColumnTable:
    """A row per GPU or MIG device: its ranks, limits and figures.

    Figures that no longer arrive are unknown, and `stale_s` is their age.
    """
    rows = []
    for line in gpu_lines(store):
        now = store.gpus.get((line.node, line.uuid))
        is_current = line.stale_s is None and line.lost is None
        gpu = now.gpu if now is not None else None
        rows.append(_fields(gpu if is_current else None) | _fields(line) | {"t": gpu.t if gpu else None})
    kinds = _kinds_of(GpuLine) | {"t": "instant"}
    kinds |= {name: kind for name, kind in _kinds_of(Gpu).items() if name not in kinds}
    return ColumnTable("gpus", kinds, _meanings("gpu_info") | _meanings("gpu"), rows)


def findings_table(store: Store) -> ColumnTable:
    """A row per finding, open and cleared, in the order in which they were first seen."""
    findings = sorted(store.findings.values(), key=lambda finding: (finding.first_seen, finding.id))
    return records_table("finding", Finding, findings)


def records_table(name: str, kind: type[Record], records: Iterable[Record]) -> ColumnTable:
    """A row per record of one kind."""
    return ColumnTable(name, _kinds_of(kind), _meanings(name), [_fields(record) for record in records])


def report_of(store: Store) -> dict[str, Any]:
    """The report of `gconsole batch -o`, as Python values."""
    document: dict[str, Any] = msgspec.to_builtins(make_report(store))
    return document


def result_frame(columns: Sequence[ResultColumn], arrays: Sequence[NDArray[Any]]) -> pd.DataFrame:
    """The result of a query as a DataFrame; `arrays` as `Database.arrays` returns them."""
    import pandas as pd

    kinds = {column.name: _sql_kind(column) for column in columns}
    data = {
        column.name: _array(kinds[column.name], column.type, values)
        for column, values in zip(columns, arrays, strict=True)
    }
    return _described(pd.DataFrame(data), kinds, {})


# -- rows --------------------------------------------------------------------------------------------------------------


def _is_connected(now: NodeNow) -> bool:
    return now.state is None or now.state.state == "ok"


def _fields(struct: msgspec.Struct | None) -> dict[str, Any]:
    """The fields of a record or of a line of the report, by the names that JSON has for them."""
    if struct is None:
        return {}
    hidden = _HEAD if isinstance(struct, Record) and kind_of(struct) != "finding" else frozenset()
    return {
        field.encode_name: getattr(struct, field.name)
        for field in msgspec.structs.fields(type(struct))
        if field.encode_name not in hidden
    }


@cache
def _kinds_of(struct: type[msgspec.Struct]) -> dict[str, ColumnKind]:
    """The columns of a record or line, by the types of its fields."""
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    kinds = {field.encode_name: _kind(field.type) for field in info.fields if field.encode_name not in _HEAD}
    return {name: "instant" if name in INSTANT_COLUMNS and kind == "Int64" else kind for name, kind in kinds.items()}


def _kind(info: types.Type) -> ColumnKind:
    members = info.types if isinstance(info, types.UnionType) else (info,)
    kinds = {type(member) for member in members if not isinstance(member, types.NoneType)}
    if kinds <= {types.StrType, types.LiteralType}:
        return "string"
    if kinds == {types.IntType}:
        return "Int64"
    if kinds <= {types.IntType, types.FloatType}:
        return "Float64"
    return "boolean" if kinds == {types.BoolType} else "object"


def _meanings(kind: str) -> dict[str, str]:
    return {word.field: word.meaning for word in words_of(kind) if word.meaning}


# -- columns -----------------------------------------------------------------------------------------------------------


def _described(frame: pd.DataFrame, kinds: Mapping[str, ColumnKind], meanings: Mapping[str, str]) -> pd.DataFrame:
    units = {name: unit_of(name) for name, kind in kinds.items() if kind in ("Int64", "Float64") and unit_of(name)}
    frame.attrs["units"] = units
    frame.attrs["descriptions"] = {name: meanings[name] for name in kinds if name in meanings}
    return frame


def _values(kind: ColumnKind, values: list[Any]) -> Any:
    import pandas as pd

    if kind == "instant":
        return _timestamps(np.array([value or _NAT for value in values], dtype=np.int64))
    if kind == "object":
        column = np.empty(len(values), dtype=object)
        column[:] = values
        return column
    return pd.array(values, dtype=kind)


def _timestamps(ns: NDArray[np.int64]) -> Any:
    import pandas as pd

    return pd.DatetimeIndex(ns.view("datetime64[ns]")).tz_localize("UTC")


_INTEGERS: Final = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"})
_HUGE: Final = frozenset({"HUGEINT", "UHUGEINT", "UBIGINT"})


def _sql_kind(column: ResultColumn) -> ColumnKind:
    """The kind of a column of a query, by its SQL type; instants in ns also by its name."""
    if column.type.startswith("TIMESTAMP") or (column.type == "BIGINT" and column.name in INSTANT_COLUMNS):
        return "instant"
    if column.type in _INTEGERS or column.type in _HUGE:
        return "Int64"
    if column.type in ("FLOAT", "DOUBLE") or column.type.startswith("DECIMAL"):
        return "Float64"
    names: dict[str, ColumnKind] = {"BOOLEAN": "boolean", "VARCHAR": "string", "UUID": "string"}
    return names.get(column.type, "object")


def _array(kind: ColumnKind, sql_type: str, values: NDArray[Any]) -> Any:
    """The values of one column of a query as an array of pandas."""
    import pandas as pd

    mask = np.ma.getmaskarray(values)
    data = np.ma.getdata(values)
    if kind == "instant":
        if sql_type == "BIGINT":
            return _timestamps(np.where(mask | (data == 0), _NAT, data.astype(np.int64)))
        stamps = data.astype("datetime64[ns]")
        stamps[mask] = np.datetime64("NaT")
        return pd.DatetimeIndex(stamps).tz_localize("UTC")
    if sql_type in _HUGE or sql_type.startswith("DECIMAL"):  # as text, or of 64 bits without a sign
        number = int if kind == "Int64" else float
        numbers = [None if is_null else number(value) for value, is_null in zip(data, mask, strict=True)]
        fits = all(value is None or abs(value) < 1 << 63 for value in numbers)
        return pd.array(numbers, dtype=kind) if fits else np.array(numbers, dtype=object)
    if kind == "Int64":
        return pd.arrays.IntegerArray(data.astype(np.int64), mask.copy())
    if kind == "Float64":
        return pd.arrays.FloatingArray(data.astype(np.float64), mask.copy())
    if kind == "boolean":
        return pd.arrays.BooleanArray(data.astype(np.bool_), mask.copy())
    objects = data.astype(object)
    objects[mask] = None
    return pd.array(objects, dtype="string") if kind == "string" else objects
