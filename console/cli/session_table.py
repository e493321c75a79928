"""Session lists and details as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..text import format
from ..text.table import table

if TYPE_CHECKING:
    from ..session.format.layout import Meta
    from ..session.manage.catalog import SessionEntry


def sessions_text(entries: list[SessionEntry]) -> str:
    """A table with one line per session."""
    rows = []
    for entry in entries:
        meta = entry.meta
        cells = (format.date_time(meta.created), _duration(meta), format.count(meta.records)) if meta else ("–",) * 3
        rows.append((entry.session.name, entry.status, *cells, format.size(entry.bytes), meta.cluster if meta else "–"))
    header = ("NAME", "STATE", "STARTED", "DURATION", "RECORDS", "SIZE", "CLUSTER")
    return "\n".join(table(rows, header=header, align="<<<>>>"))


def session_lines(entry: SessionEntry) -> list[str]:
    """Details of one session, as lines."""
    meta = entry.meta
    lines = [f"{entry.session.name}  {entry.status}  {format.size(entry.bytes)}", f"  {entry.session.path}"]
    if meta is None:
        return [*lines, f"  {entry.problem}"]
    lines.append(f"  {meta.records} records, {_duration(meta)}, cluster {meta.cluster or '–'}")
    lines += [f"    {kind:14s} {number}" for kind, number in sorted(meta.counts.items(), key=lambda item: -item[1])]
    for part in meta.parts:
        began = format.date_time(part.began)
        lines.append(f"  recorded from {began}, {part.how}, by gconsole {part.version or '–'}")
    if entry.status == "crashed":
        lines.append(f"  the console crashed; repair with: gconsole sessions recover {entry.session.name}")
    return lines


def session_row(entry: SessionEntry) -> dict[str, Any]:
    """One session as JSON data."""
    meta = entry.meta
    return {
        "name": entry.session.name, "path": str(entry.session.path), "state": entry.status, "bytes": entry.bytes,
        "problem": entry.problem or None, "session": meta,
    }  # fmt: skip


def _duration(meta: Meta) -> str:
    if meta.first_rx is None or meta.last_rx is None:
        return format.UNKNOWN
    return format.duration_compact(meta.last_rx - meta.first_rx)
