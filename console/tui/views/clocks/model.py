"""A row a node of the Clocks view: its line to the common clock, its edges, its past, what its own service claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....core.store import Store
from ....present.spans import Span
from ....present.status import GLYPHS, Status
from ....records import ClockCost, ClockNode, ClockSource, ClockWindow, GpuClock
from ....text.nodeset_fold import natural
from ...models.row import PlainRow

#: A line that is older is drawn as stale, ns: three windows of the background.
STALE_NS: Final = 180_000_000_000
#: Warnings that make a node's clock suspicious; the others are remarks.
_GRAVE: Final = frozenset({"step", "noncausal", "wide", "rate", "island", "slew"})


@dataclass(frozen=True, slots=True)
class ClockRow(PlainRow):
    """One node. `age_ns` is that of its line; None where it has none."""

    node: str
    line: ClockNode | None
    source: ClockSource | None
    cost: ClockCost | None
    edges: tuple[ClockWindow, ...]  # the newest window of each edge that ends here
    past: tuple[ClockNode, ...]  # oldest first, the line itself last
    age_ns: int | None
    gpus: tuple[GpuClock, ...] = ()  # the timers of its GPUs, by index

    @property
    def key(self) -> str:
        return self.node

    @property
    def version(self) -> tuple[object, ...]:
        line, source = self.line, self.source
        age_s = None if self.age_ns is None else self.age_ns // 1_000_000_000
        return (self.node, line and line.seq, source and source.seq, age_s, len(self.edges), self.gpus)

    @property
    def note(self) -> Span | None:
        """Why there are no figures, where there are none."""
        if self.line is not None and self.line.at_common is not None:
            return None
        words = {"island": "not connected to the reference", "inconsistent": "measurements contradict other nodes"}
        text = words.get(self.line.status, "no measurement yet") if self.line else "no measurement yet"
        return Span(text, self.status)

    @property
    def is_reference(self) -> bool:
        return self.line is not None and self.line.node == self.line.reference

    @property
    def word(self) -> str:
        """`reference`, `ok`, `wide`, `unknown`, …"""
        line = self.line
        if line is None or line.bound_ns is None:
            return line.status.replace("_", " ") if line and line.status != "ok" else "unknown"
        if line.status != "ok":
            return line.status
        if self.age_ns is not None and self.age_ns > STALE_NS:
            return "stale"
        grave = [word for word in line.warnings if word in _GRAVE]
        if not grave and self.source is not None and self.source.synced is False and self.source.daemon is not None:
            return "unsynced"
        return grave[0] if grave else "reference" if self.is_reference else "ok"

    @property
    def status(self) -> Status:
        words: dict[str, Status] = {
            "ok": "ok", "reference": "ok", "stale": "stale", "inconsistent": "failed", "noncausal": "failed",
            "unknown": "unknown", "no data": "unknown", "island": "failed",
        }  # fmt: skip
        return words.get(self.word, "warning")

    @property
    def loss_pct(self) -> float | None:
        """Of the probes of all its edges."""
        sent = sum(edge.pairs for edge in self.edges)
        return 100.0 * sum(edge.lost for edge in self.edges) / sent if sent else None

    @property
    def residual_ns(self) -> int | None:
        """The largest of its edges', against the whole mesh; None where no loop passes any."""
        return max((abs(edge.residual_ns) for edge in self.edges if edge.residual_ns is not None), default=None)


@dataclass(frozen=True)
class ClockSummary:
    """All nodes at one look; `windows` are the newest of every edge."""

    reference: str | None = None
    rows: tuple[ClockRow, ...] = ()
    windows: tuple[ClockWindow, ...] = ()

    @property
    def worst_ns(self) -> int | None:
        """How well the worst known clock is known; None where none but the reference's is."""
        worst = self.worst
        return worst.line.bound_ns or None if worst is not None and worst.line is not None else None

    @property
    def worst(self) -> ClockRow | None:
        """The node whose clock is known worst, of those that are known at all."""
        bounded = [row for row in self.rows if row.line is not None and row.line.bound_ns is not None]
        return max(bounded, key=lambda row: row.line.bound_ns if row.line and row.line.bound_ns else 0, default=None)


#: Before the first clock window.
NO_CLOCKS: Final = ClockSummary()


def clock_rows(store: Store, now: int) -> ClockSummary:
    """What the store knows of clocks at an instant of the console's clock."""
    book = store.clocks
    windows = tuple(book.windows[key][-1] for key in sorted(book.windows, key=lambda key: (natural(key[0]), key[1])))
    by_node: dict[str, list[ClockWindow]] = {}
    for window in windows:
        by_node.setdefault(window.node, []).append(window)
        by_node.setdefault(window.dst, []).append(window)
    names = sorted({*book.nodes, *book.sources, *book.snapshots}, key=natural)
    gpus: dict[str, list[GpuClock]] = {}
    for key in sorted(book.gpus):
        gpus.setdefault(key[0], []).append(book.gpus[key])
    rows = []
    for name in names:
        past = tuple(book.nodes.get(name) or ())
        line = past[-1] if past else None
        rows.append(
            ClockRow(
                name, line, book.sources.get(name), book.costs.get(name), tuple(by_node.get(name, ())), past,
                None if line is None else max(0, now - line.rx), tuple(gpus.get(name, ())),
            )
        )  # fmt: skip
    newest = max((row.line for row in rows if row.line), key=lambda line: line.window_id, default=None)
    return ClockSummary(newest.reference if newest else None, tuple(rows), windows)


def state_text(row: ClockRow) -> str:
    """`● ok`, `▲ wide`."""
    return f"{GLYPHS[row.status]} {row.word}"


def service_text(source: ClockSource | None) -> str | None:
    """What the node's own service claims, in a few words: `chrony +12 ±40 µs`, `chrony: no source`."""
    if source is None:
        return None
    if source.daemon is None:
        return "none"
    if source.synced is False:
        return f"{source.daemon}: no source"
    if source.bound_ns is None:
        return f"{source.daemon}: no status" if source.synced is None else source.daemon
    offset = "" if source.offset_ns is None else f" {source.offset_ns / 1000:+.0f}"
    return f"{source.daemon}{offset} ±{source.bound_ns / 1000:.0f} µs"
