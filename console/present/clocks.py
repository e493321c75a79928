"""Clocks of the nodes: rows with their state, lines for the screen, tables as text."""

from __future__ import annotations

from typing import Final

import msgspec

from ..core.store.clocks import ClockTables
from ..records import ClockCost, ClockNode, ClockSource, ClockWindow, GpuClock
from ..text import format
from ..text.cells import clean, table
from ..text.format import micro
from ..text.nodeset_fold import natural
from ..text.sanitize import Printable, join_lines, printable
from .spans import GLYPHS, Line, Span, Status, cut

#: ns. Older results are stale: three background windows.
STALE_NS: Final = 180_000_000_000
#: Warnings that make a node's clock suspicious; the others are informational.
_GRAVE: Final = frozenset({"step", "noncausal", "wide", "rate", "island", "slew"})


class ClockRow(msgspec.Struct, frozen=True):
    """One node: its newest result, the edges and results before it, its time service; `age_ns` of the result."""

    node: str
    line: ClockNode | None
    source: ClockSource | None
    cost: ClockCost | None
    edges: tuple[ClockWindow, ...]  # the newest window of each edge that ends here
    past: tuple[ClockNode, ...]  # oldest first, the line itself last
    age_ns: int | None
    gpus: tuple[GpuClock, ...] = ()  # the timers of its GPUs, by index

    @property
    def banner(self) -> None:
        """No group header."""

    @property
    def key(self) -> str:
        """The node's name."""
        return self.node

    @property
    def version(self) -> tuple[object, ...]:
        """Changes whenever the row's cells change."""
        line, source = self.line, self.source
        age_s = None if self.age_ns is None else self.age_ns // 1_000_000_000
        return (self.node, line and line.seq, source and source.seq, age_s, len(self.edges), self.gpus)

    @property
    def note(self) -> Span | None:
        """Why a node has no figures; None where it has."""
        if self.line is not None and self.line.at_common is not None:
            return None
        words = {"island": "not connected to the reference", "inconsistent": "measurements contradict other nodes"}
        text = words.get(self.line.status, "no measurement yet") if self.line else "no measurement yet"
        return Span(text, self.status)

    @property
    def is_reference(self) -> bool:
        """True for the node whose clock is the common clock."""
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
        """Status of `word`."""
        words: dict[str, Status] = {
            "ok": "ok", "reference": "ok", "stale": "stale", "inconsistent": "failed", "noncausal": "failed",
            "unknown": "unknown", "no data": "unknown", "island": "failed",
        }  # fmt: skip
        return words.get(self.word, "warning")

    @property
    def loss_pct(self) -> float | None:
        """Lost probes of all its edges in percent."""
        sent = sum(edge.pairs for edge in self.edges)
        return 100.0 * sum(edge.lost for edge in self.edges) / sent if sent else None

    @property
    def residual_ns(self) -> int | None:
        """Largest residual of its edges against the mesh fit; None without a loop through any of them."""
        return max((abs(edge.residual_ns) for edge in self.edges if edge.residual_ns is not None), default=None)


class ClockSummary(msgspec.Struct, frozen=True):
    """All nodes; `windows` has the newest window of every edge."""

    reference: str | None = None
    rows: tuple[ClockRow, ...] = ()
    windows: tuple[ClockWindow, ...] = ()

    @property
    def worst_ns(self) -> int | None:
        """Largest error bound; None if only the reference has one."""
        worst = self.worst
        return worst.line.bound_ns or None if worst is not None and worst.line is not None else None

    @property
    def worst(self) -> ClockRow | None:
        """Node with the largest error bound."""
        bounded = [row for row in self.rows if row.line is not None and row.line.bound_ns is not None]
        return max(bounded, key=lambda row: row.line.bound_ns if row.line and row.line.bound_ns else 0, default=None)


#: Before the first clock window.
NO_CLOCKS: Final = ClockSummary()


def clock_rows(book: ClockTables, now: int) -> ClockSummary:
    """Clocks of a store's tables at `now`, an instant of the console's clock in ns."""
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
    """Status of a node's time service: `chrony +12 ±40 µs`, `chrony: no source`."""
    if source is None:
        return None
    if source.daemon is None:
        return "none"
    if source.synced is False:
        return f"{source.daemon}: no source"
    if source.bound_ns is None:
        return f"{source.daemon}: no status" if source.synced is None else source.daemon
    offset = "" if source.offset_ns is None else f" {micro(source.offset_ns, signed=True, digits=2)}"
    return f"{source.daemon}{offset} ±{micro(source.bound_ns, digits=2)} µs"


def head_spans(seen: ClockSummary) -> tuple[Span, ...]:
    """`reference: node001  62 of 64 nodes measured  worst ±48 µs (node044)`."""
    if seen.reference is None:
        return (Span("  no clock data yet ", "muted"),)
    measured = sum(row.line is not None and row.line.bound_ns is not None for row in seen.rows)
    spans = [
        Span("  reference: ", "muted"), Span(clean(seen.reference), "accent"),
        Span(f"  {measured} of {len(seen.rows)} nodes measured", "text" if measured == len(seen.rows) else "warning"),
    ]  # fmt: skip
    worst = seen.worst
    if worst is not None and worst.line is not None and worst.line.bound_ns:
        spans.append(Span(f"  worst ±{micro(worst.line.bound_ns)} µs ({clean(worst.node)})", "muted"))
    return (*spans, Span(" "))


def gpu_lines(row: ClockRow, width: int) -> list[Line]:
    """Timer of each GPU of a node minus the node's CLOCK_REALTIME."""
    sim = "  SIM" if any(gpu.simulated for gpu in row.gpus) else ""
    title = Span("  timer minus CLOCK_REALTIME", "muted")
    lines = [Line((Span("GPU TIMERS", "accent"), Span(f" {len(row.gpus)}", "muted"), title, Span(sim, "warning")))]
    for gpu in row.gpus:
        name = Span(f"gpu{gpu.index:<3} ", "muted")
        if gpu.ahead_ns is None:
            lines.append(Line(cut((name, Span(clean(gpu.error or format.UNKNOWN), "warning")), width)))
            continue
        drift = "" if gpu.drift_ppm is None else f"  drift {gpu.drift_ppm:+.3f} ppm"
        bound = f"±{micro(gpu.bound_ns)} µs"
        text = f"{micro(gpu.ahead_ns, signed=True):>12} {bound:<10}  resolution {gpu.step_ns} ns{drift}"
        lines.append(Line(cut((name, Span(text)), width)))
    return lines


def clocks_text(seen: ClockSummary) -> Printable:
    """Tables of nodes and edges, GPU timers and probing cost; "" without measurements."""
    if all(row.line is None for row in seen.rows) and not seen.windows:
        return join_lines(())
    parts = [f"clocks: reference {seen.reference or 'none'}; offsets of CLOCK_REALTIME in µs, ± is the error bound"]
    parts += table(
        [_node_cells(row, row.line) for row in seen.rows if row.line is not None],
        header=("node", "offset", "±", "drift ppm", "±", "repeatability", "method", "time sync", ""),
        align="<>>>>>", indent="  ",
    )  # fmt: skip
    if seen.windows:
        parts += ["", "edges: offset of MONOTONIC_RAW, far minus near"]
        parts += table(
            [_edge_cells(window) for window in seen.windows],
            header=("edge", "offset", "±", "min rtt", "kept", "lost", "method", "stamps", ""),
            align="<>>>>>", indent="  ",
        )  # fmt: skip
    parts += [f"UDP blocked {window.node} → {window.dst}" for window in seen.windows if window.udp_blocked]
    for row in seen.rows:
        parts += ["", row.node, *(line.text for line in gpu_lines(row, 110))] if row.gpus else []
    costs = [row.cost for row in seen.rows if row.cost is not None]
    if costs:
        worst = max(costs, key=lambda cost: cost.cpu_pct)
        records = format.byte_rate(max(cost.records_bytes_s for cost in costs))
        parts.append(f"max probing cost {worst.cpu_pct:.1f} % of a core ({worst.node}), {records} of records per node")
    return join_lines(parts)


def longer_cadence_lines(seen: ClockSummary, cadence_us: int, cpu_cap_pct: int) -> list[str]:
    """A line for each node that probes less often than `cadence_us`, with the reason."""
    lines = []
    for row in seen.rows:
        cost = row.cost
        if cost is not None and cost.cadence_us > cadence_us:
            reason = f"the CPU limit of {cpu_cap_pct} % of a core (clock.cpu_cap_pct)"
            if cost.over_rate:
                reason += f" and the packet rate limit ({cost.over_rate} packets dropped)"
            lines.append(f"{row.node}: a triple every {cost.cadence_us} µs instead of {cadence_us} µs: {reason}")
        if row.line is not None and "loaded" in row.line.warnings:
            lines.append(
                f"{row.node}: more than 5 % of its triples were skipped: the node was too busy to send in time"
            )
    return [printable(line) for line in lines]


def _node_cells(row: ClockRow, line: ClockNode) -> tuple[str, ...]:
    words = ("" if line.status == "ok" else f"{line.status} ") + " ".join(line.warnings)
    return (
        row.node + (" *" if row.is_reference else ""), micro(line.offset_ns, signed=True), micro(line.bound_ns),
        _ppm(line.drift_ppm), _ppm(line.drift_bound_ppm), micro(line.repeat_ns),
        f"{line.method} {line.stamps or ''}".rstrip(), service_text(row.source) or format.UNKNOWN, words.strip(),
    )  # fmt: skip


def _edge_cells(window: ClockWindow) -> tuple[str, ...]:
    words = ("" if window.status == "ok" else window.status) + (" flagged" if window.flagged else "")
    return (
        f"{window.node} → {window.dst}", micro(window.beta_ns, signed=True), micro(window.bound_ns),
        micro(window.min_rtt_ns), str(window.kept), str(window.lost), window.method, window.stamps, words.strip(),
    )  # fmt: skip


def _ppm(value: float | None) -> str:
    return format.UNKNOWN if value is None else f"{value:.2f}"
