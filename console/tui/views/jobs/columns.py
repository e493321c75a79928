"""The Jobs view as a list: columns, filter fields and groupings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import fold, natural
from ...models.filter_language import FilterField, Vocabulary
from ...models.grouping import NONE, Grouping, RowInContext
from ...models.list_kind import (
    ColumnField,
    ListKind,
    attribute,
    column_field,
    keyed,
    plain_style,
    state_filter,
    state_order,
    text_or_unknown,
)
from ...models.row import RowState
from .model import JobRow, ranks_text, state_text


def _reason_style(row: JobRow, text: str) -> str:
    return row.status if row.status != "ok" else plain_style(row, text)


def _row_state(row: JobRow) -> RowState:
    return row.status, row.word


def _began(row: JobRow) -> int:
    """Newest first, discovered jobs last."""
    return -row.started.ordered.created if row.started else 0


def _age(row: JobRow) -> str:
    return f"{format.age(row.now - row.started.ordered.created)} ago" if row.started else format.UNKNOWN


def _exit(row: JobRow) -> int | None:
    return row.started.exit_code if row.started and row.started.is_over else None


FIELDS: Final[dict[str, ColumnField[JobRow]]] = keyed(
    ColumnField("state", "state", state_text, lambda row: state_order(_row_state(row)), lambda row, _: row.status),
    ColumnField("job", "job", lambda row: clean(row.name), lambda row: natural(row.name), plain_style),
    ColumnField("age", "started", _age, _began, plain_style),
    column_field("ran", "runtime", lambda row: row.ran_ns, format.duration_compact, plain_style),
    column_field("nodes", "nodes", lambda row: len(row.nodes), format.integer, plain_style),
    ColumnField("ranks", "ranks", ranks_text, lambda row: row.world_size, plain_style),
    column_field("step", "step", attribute("ranks", "step"), format.count, plain_style),
    column_field("launcher", "launcher", lambda row: row.launcher or None, text_or_unknown, plain_style),
    column_field("exit", "exit", _exit, format.integer,
        lambda row, text: "failed" if _exit(row) else plain_style(row, text)),
    column_field("where", "node names", lambda row: fold(row.nodes) if row.nodes else None, text_or_unknown,
        plain_style, natural),
    column_field("reason", "status detail", lambda row: row.reason or None, text_or_unknown, _reason_style),
    column_field("command", "command", lambda row: row.command or None, text_or_unknown, plain_style),
)  # fmt: skip


def _words(entry: RowInContext[JobRow]) -> Iterable[str]:
    row = entry.row
    yield clean(row.name)
    yield row.word
    yield row.command
    yield row.reason
    yield from map(clean, row.nodes)


def _tags(entry: RowInContext[JobRow]) -> tuple[str, ...]:
    return tuple(tag for node in entry.row.nodes for tag in entry.context.tags(node))


JOBS: Final[Vocabulary[RowInContext[JobRow]]] = Vocabulary(
    (
        state_filter(_row_state, "running, failed, partial, discovered, …"),
        FilterField("job", "text", lambda entry: clean(entry.row.name), "part of the job name"),
        FilterField("node", "word", lambda entry: tuple(map(clean, entry.row.nodes)),
            "node it runs on, e.g. node0[1-3]*"),
        FilterField("tag", "word", _tags, "node tag in hosts.toml"),
        FilterField("launcher", "word", lambda entry: clean(entry.row.launcher) or None, "launcher of its ranks"),
        FilterField("ranks", "number", lambda entry: entry.row.world_size, "number of ranks, e.g. >8"),
        FilterField("exit", "number", lambda entry: _exit(entry.row), "exit code"),
        FilterField("command", "text", lambda entry: entry.row.command or None, "part of the command"),
        FilterField("reason", "text", lambda entry: entry.row.reason or None, "part of the status detail"),
    ),
    _words,
)  # fmt: skip

GROUPINGS: Final[tuple[Grouping[JobRow], ...]] = (
    NONE,
    Grouping("state", lambda entry: entry.row.word, is_state=True),
    Grouping("launcher", lambda entry: clean(entry.row.launcher) or None),
)


def _object(row: JobRow) -> dict[str, Any]:
    """The state on the screen, and the records of its nodes."""
    view = row.started
    return {
        "job": row.name, "state": row.word, "status": row.status, "started_by_gconsole": view is not None,
        "nodes": row.nodes, "world_size": row.world_size, "ranks_found": row.ranks.discovered if row.ranks else None,
        "step": row.ranks.step if row.ranks else None, "exit_code": _exit(row), "reason": row.reason or None,
        "ran_ns": row.ran_ns, "ordered": view.ordered if view else None,
        "on_nodes": [line.now for line in view.lines] if view else None,
    }  # fmt: skip


KIND: Final = ListKind("job", "age", FIELDS, JOBS, GROUPINGS, _row_state, _object)
