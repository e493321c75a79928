"""The Jobs view as a list: what its columns say, how they sort, what jobs are grouped by, what is copied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ....present.status import BY_WEIGHT
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import fold, natural
from ...models.field import Field, field, integer, word
from ...models.filter_language import Field as Named
from ...models.filter_language import Vocabulary
from ...models.grouping import NONE, Grouping
from ...models.list_kind import Kind
from ...models.row_context import Seen
from .model import JobRow, ranks_text, state_text


def _style(row: JobRow, text: str) -> str:
    return "muted" if text == format.UNKNOWN else "text"


def _told(row: JobRow, text: str) -> str:
    return row.status if row.status != "ok" else _style(row, text)


def _badness(row: JobRow) -> tuple[int, str]:
    return (BY_WEIGHT.index(row.status), row.word)


def _began(row: JobRow) -> int:
    """The newest first; what was only found last."""
    return -row.started.ordered.created if row.started else 0


def _exit(row: JobRow) -> int | None:
    return row.started.exit_code if row.started and row.started.is_over else None


def _length(ns: int | None) -> str:
    return format.UNKNOWN if ns is None else format.length(ns)


FIELDS: dict[str, Field[JobRow]] = {
    found.key: found
    for found in (
        Field("state", "state", state_text, _badness, lambda row, _: row.status),
        Field("job", "job", lambda row: clean(row.name), lambda row: natural(row.name), _style),
        Field("age", "started", lambda row: _age(row), _began, _style),
        field("ran", "ran", lambda row: row.ran_ns, _length, _style),
        field("nodes", "nodes", lambda row: len(row.nodes), integer, _style),
        Field("ranks", "ranks", ranks_text, lambda row: row.world_size, _style),
        field("step", "step", lambda row: row.ranks.step if row.ranks else None, format.count, _style),
        field("launcher", "launcher", lambda row: row.launcher or None, word, _style),
        field("exit", "exit", _exit, integer, lambda row, text: "failed" if _exit(row) else _style(row, text)),
        field("where", "on", lambda row: fold(row.nodes) if row.nodes else None, word, _style, natural),
        field("reason", "why", lambda row: row.reason or None, word, _told),
        field("command", "command", lambda row: row.command or None, word, _style),
    )
}  # fmt: skip


def _age(row: JobRow) -> str:
    return f"{format.age(row.now - row.started.ordered.created)} ago" if row.started else format.UNKNOWN


def _words(seen: Seen[JobRow]) -> Iterable[str]:
    row = seen.row
    yield clean(row.name)
    yield row.word
    yield row.command
    yield row.reason
    yield from map(clean, row.nodes)


JOBS: Vocabulary[Seen[JobRow]] = Vocabulary(
    (
        Named("state", "word", lambda seen: (seen.row.word, seen.row.status), "running, failed, partial, found, …"),
        Named("job", "text", lambda seen: clean(seen.row.name), "a part of its name"),
        Named("node", "word", lambda seen: tuple(map(clean, seen.row.nodes)), "a node it runs on, e.g. node0[1-3]*"),
        Named("tag", "word", lambda seen: tuple(tag for node in seen.row.nodes for tag in seen.around.tags(node)),
              "a tag of one of its nodes in hosts.toml"),
        Named("launcher", "word", lambda seen: clean(seen.row.launcher) or None, "what started its ranks"),
        Named("ranks", "number", lambda seen: seen.row.world_size, "how many it has, e.g. >8"),
        Named("exit", "number", lambda seen: _exit(seen.row), "its exit code, once it is over"),
        Named("command", "text", lambda seen: seen.row.command or None, "a part of its command"),
        Named("reason", "text", lambda seen: seen.row.reason or None, "why it is not well"),
    ),
    _words,
)  # fmt: skip

#: What jobs can be grouped by.
GROUPINGS: Final[tuple[Grouping[JobRow], ...]] = (
    NONE,
    Grouping("state", lambda seen: seen.row.word, is_state=True),
    Grouping("launcher", lambda seen: clean(seen.row.launcher) or None),
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


KIND: Final = Kind("job", "age", FIELDS, JOBS, GROUPINGS, lambda row: (row.status, row.word), _object)
