"""How sessions are listed, and what is told of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..text import format
from ..text.table import table

if TYPE_CHECKING:
    from ..session.format.layout import Meta
    from ..session.manage.catalog import Listed


def sessions_text(found: list[Listed]) -> str:
    """A table with a line for each session."""
    rows = []
    for one in found:
        meta = one.meta
        cells = (format.date_time(meta.created), _duration(meta), format.count(meta.records)) if meta else ("–",) * 3
        rows.append((one.session.name, one.standing, *cells, format.size(one.bytes), meta.cluster if meta else "–"))
    header = ("NAME", "STATE", "BEGAN", "LENGTH", "RECORDS", "SIZE", "CLUSTER")
    return "\n".join(table(rows, header=header, align="<<<>>>"))


def story(one: Listed) -> list[str]:
    meta = one.meta
    lines = [f"{one.session.name}  {one.standing}  {format.size(one.bytes)}", f"  {one.session.path}"]
    if meta is None:
        return [*lines, f"  {one.problem}"]
    lines.append(f"  {meta.records} records over {_duration(meta)} of cluster {meta.cluster or '–'}")
    lines += [f"    {kind:14s} {number}" for kind, number in sorted(meta.counts.items(), key=lambda item: -item[1])]
    for part in meta.parts:
        began = format.date_time(part.began)
        lines.append(f"  recorded from {began}, {part.how}, by gconsole {part.version or '–'}")
    if one.standing == "crashed":
        lines.append(f"  its console crashed; mend it: gconsole sessions recover {one.session.name}")
    return lines


def row(one: Listed) -> dict[str, Any]:
    meta = one.meta
    return {
        "name": one.session.name, "path": str(one.session.path), "state": one.standing, "bytes": one.bytes,
        "problem": one.problem or None, "session": meta,
    }  # fmt: skip


def _duration(meta: Meta) -> str:
    if meta.first_rx is None or meta.last_rx is None:
        return format.UNKNOWN
    return format.duration_compact(meta.last_rx - meta.first_rx)
