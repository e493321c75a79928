"""The Jobs view as a list: what its columns say, how they sort, what jobs are grouped by, what is copied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ....present.status import BY_WEIGHT, state_word
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import fold, natural
from ...models.filter_language import FilterField, Vocabulary
from ...models.grouping import NONE, Grouping
from ...models.list_kind import ColumnField, ListKind, column_field, text_or_unknown
from ...models.row_context import RowInContext
from .model import JobRow, ranks_text, state_text


def _style(row: JobRow, text: str) -> str:
    return "muted" if text == format.UNKNOWN else "text"


def _reason_style(row: JobRow, text: str) -> str:
    return row.status if row.status != "ok" else _style(row, text)


def _severity(row: JobRow) -> tuple[int, str]:
    return (BY_WEIGHT.index(row.status), row.word)


def _began(row: JobRow) -> int:
    """The newest first; what was only found last."""
    return -row.started.ordered.created if row.started else 0


def _exit(row: JobRow) -> int | None:
    return row.started.exit_code if row.started and row.started.is_over else None


FIELDS: dict[str, ColumnField[JobRow]] = {
    column.key: column
    for column in (
        ColumnField("state", "state", state_text, _severity, lambda row, _: row.status),
        ColumnField("job", "job", lambda row: clean(row.name), lambda row: natural(row.name), _style),
        ColumnField("age", "started", lambda row: _age(row), _began, _style),
        column_field("ran", "runtime", lambda row: row.ran_ns, format.duration_compact, _style),
        column_field("nodes", "nodes", lambda row: len(row.nodes), format.integer, _style),
        ColumnField("ranks", "ranks", ranks_text, lambda row: row.world_size, _style),
        column_field("step", "step", lambda row: row.ranks.step if row.ranks else None, format.count, _style),
        column_field("launcher", "launcher", lambda row: row.launcher or None, text_or_unknown, _style),
        column_field("exit", "exit", _exit, format.integer,
            lambda row, text: "failed" if _exit(row) else _style(row, text)),
        column_field("where", "node names", lambda row: fold(row.nodes) if row.nodes else None, text_or_unknown, _style,
            natural),
        column_field("reason", "status detail", lambda row: row.reason or None, text_or_unknown, _reason_style),
        column_field("command", "command", lambda row: row.command or None, text_or_unknown, _style),
    )
}  # fmt: skip


def _age(row: JobRow) -> str:
    return f"{format.age(row.now - row.started.ordered.created)} ago" if row.started else format.UNKNOWN


def _words(entry: RowInContext[JobRow]) -> Iterable[str]:
    row = entry.row
    yield clean(row.name)
    yield row.word
    yield row.command
    yield row.reason
    yield from map(clean, row.nodes)


JOBS: Vocabulary[RowInContext[JobRow]] = Vocabulary(
    (
        FilterField("state", "word", lambda entry: (entry.row.word, state_word(entry.row.word), entry.row.status),
            "running, failed, partial, discovered, …"),
        FilterField("job", "text", lambda entry: clean(entry.row.name), "part of the job name"),
        FilterField("node", "word", lambda entry: tuple(map(clean, entry.row.nodes)),
            "node it runs on, e.g. node0[1-3]*"),
        FilterField("tag", "word",
            lambda entry: tuple(tag for node in entry.row.nodes for tag in entry.context.tags(node)),
              "node tag in hosts.toml"),
        FilterField("launcher", "word", lambda entry: clean(entry.row.launcher) or None, "launcher of its ranks"),
        FilterField("ranks", "number", lambda entry: entry.row.world_size, "number of ranks, e.g. >8"),
        FilterField("exit", "number", lambda entry: _exit(entry.row), "exit code"),
        FilterField("command", "text", lambda entry: entry.row.command or None, "part of the command"),
        FilterField("reason", "text", lambda entry: entry.row.reason or None, "part of the status detail"),
    ),
    _words,
)  # fmt: skip

#: What jobs can be grouped by.
GROUPINGS: Final[tuple[Grouping[JobRow], ...]] = (
    NONE,
    Grouping("state", lambda entry: entry.row.word, is_state=True),
    Grouping("launcher", lambda entry: clean(entry.row.launcher) or None),
)


def _object(row: JobRow) -> dict[str, Any]:
    """What the screen makes of it, and what its nodes said, as it came."""
    view = row.started
    return {
        "job": row.name, "state": row.word, "status": row.status, "started_by_gconsole": view is not None,
        "nodes": row.nodes, "world_size": row.world_size, "ranks_found": row.ranks.found if row.ranks else None,
        "step": row.ranks.step if row.ranks else None, "exit_code": _exit(row), "reason": row.reason or None,
        "ran_ns": row.ran_ns, "ordered": view.ordered if view else None,
        "on_nodes": [line.now for line in view.lines] if view else None,
    }  # fmt: skip


KIND: Final = ListKind("job", "age", FIELDS, JOBS, GROUPINGS, lambda row: (row.status, row.word), _object)
