"""How sessions are listed, and what is told of one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..text.sanitize import printable

if TYPE_CHECKING:
    from ..session.format.layout import Meta
    from ..session.manage.catalog import Listed


def table(found: list[Listed]) -> str:
    rows = [("NAME", "STATE", "BEGAN", "LENGTH", "RECORDS", "SIZE", "CLUSTER")]
    for one in found:
        meta = one.meta
        if meta is None:
            rows.append((one.session.name, one.standing, "–", "–", "–", size(one.bytes), "–"))
        else:
            began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(meta.created / 1e9))
            rows.append((one.session.name, one.standing, began, _length(meta), str(meta.records), size(one.bytes),
                         meta.cluster))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(map(printable, lines))


def story(one: Listed) -> list[str]:
    meta = one.meta
    lines = [f"{one.session.name}  {one.standing}  {size(one.bytes)}", f"  {one.session.path}"]
    if meta is None:
        return [*lines, f"  {one.problem}"]
    lines.append(f"  {meta.records} records over {_length(meta)} of cluster {meta.cluster or '–'}")
    lines += [f"    {kind:14s} {number}" for kind, number in sorted(meta.counts.items(), key=lambda item: -item[1])]
    for part in meta.parts:
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(part.began / 1e9))
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


def _length(meta: Meta) -> str:
    if meta.first_rx is None or meta.last_rx is None:
        return "–"
    whole_s = max(0, meta.last_rx - meta.first_rx) // 1_000_000_000
    return f"{whole_s // 3600:02d}:{whole_s // 60 % 60:02d}:{whole_s % 60:02d}"


def size(value: int) -> str:
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value = value / 1000  # type: ignore[assignment]
    return f"{value:.1f} GB"
