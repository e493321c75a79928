"""Fold of clock records into one result per edge, node and window."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from ...records import AgentCost, ClockBins, ClockNode, ClockSnapshot, ClockSource, ClockWindow
from .assign import Claim, ClockMesh, best_reference, claim, node_lines
from .node_bounds import EdgeKey, Flags, Settled, settle
from .pair_bounds import LEAST_BINS, EdgeWindow, edge_window

Method = Literal["auto", "probe", "ssh", "ntp", "ptp", "system"]

#: ns without probes after which node lines come from time services, and the interval of those lines.
UNPROBED_NS: Final = 180_000_000_000
CLAIMED_EVERY_NS: Final = 10_000_000_000
#: ns without clock snapshots after which a node has no line.
SILENT_NS: Final = 60_000_000_000
_SNAPSHOTS: Final = 64
#: ns. A step is reported by the next read of the clocks; they are read once a second at least (`snapshot_period_ms`).
STEP_REPORT_NS: Final = 1_000_000_000
#: Maximum records of one edge per window (normally one per second); bounds the quadratic comparison.
_MOST_OF_EDGE: Final = 1_024


class ClockLimits(msgspec.Struct, frozen=True):
    """Clock settings of the configuration."""

    window_ns: int = 4_000_000_000
    max_bound_ns: int = 100_000
    method: Method = "auto"


class ClockFold:
    """Fold of records into the results of closed windows; other kinds of records are ignored.

    A window starts with the first bins after the previous one and lasts `window_ns` by arrival on the console's clock.
    """

    def __init__(self, limits: ClockLimits) -> None:
        self.limits = limits  # may be replaced; applies to the open window
        self.pace: Callable[[], object] = lambda: None  # called after each edge of a window that closes
        self._bins: dict[EdgeKey, list[ClockBins]] = {}
        self._opened: int | None = None  # rx of the first bins of the window under way
        self._closed = 0  # rx at which the last window was closed
        self._probed = 0  # rx of the last bins
        self._snapshots: dict[str, deque[ClockSnapshot]] = {}
        self._sources: dict[str, ClockSource] = {}
        self._blocked: set[EdgeKey] = set()  # edges without any UDP reply
        self._flags = Flags()
        self._number = 0
        self._reference: str | None = None
        self._epoch: int | None = None  # common clock minus MONOTONIC_RAW of the reference
        self._last: dict[str, ClockNode] = {}

    def add(self, records: Iterable[object]) -> list[ClockWindow | ClockNode]:
        """Fold records in order of arrival; returns the results of the windows that this closed."""
        results: list[ClockWindow | ClockNode] = []
        for record in records:
            if isinstance(record, ClockBins):
                results += self._elapsed(record.rx)
                self._add_bins(record)
            elif isinstance(record, ClockSnapshot):
                results += self._elapsed(record.rx)
                self._snapshot(record)
            elif isinstance(record, AgentCost):  # every second per node, also after the last probe
                results += self._elapsed(record.rx)
            elif isinstance(record, ClockSource):
                self._sources[record.node] = record
        return results

    @property
    def held(self) -> int:
        """Records of bins in the open window."""
        return sum(map(len, self._bins.values()))

    def finish(self) -> list[ClockWindow | ClockNode]:
        """Close the open window, if any."""
        return self._close(self._closed) if self._bins else []

    def forget(self, node: str) -> None:
        """Drop a removed node."""
        self._snapshots.pop(node, None)
        self._sources.pop(node, None)
        self._last.pop(node, None)
        self._blocked = {edge for edge in self._blocked if node not in edge}

    # -- collecting ----------------------------------------------------------------------------------------------------

    def _add_bins(self, record: ClockBins) -> None:
        if self._opened is None:
            self._opened = record.rx
        self._probed = record.rx
        kept = self._bins.setdefault((record.node, record.dst), [])
        # from another agent run, perhaps before a reboot
        stale = [earlier for earlier in kept if earlier.method == record.method and earlier.agent != record.agent]
        for earlier in stale:
            kept.remove(earlier)
        if len(kept) < _MOST_OF_EDGE:
            kept.append(record)

    def _snapshot(self, record: ClockSnapshot) -> None:
        kept = self._snapshots.setdefault(record.node, deque(maxlen=_SNAPSHOTS))
        if kept and kept[-1].agent != record.agent:
            kept.clear()
        kept.append(record)

    def _elapsed(self, rx: int) -> list[ClockWindow | ClockNode]:
        if self._opened is not None:
            return self._close(rx) if rx - self._opened >= self.limits.window_ns else []
        if not self._closed:
            self._closed = rx
        if self._probed and rx - self._probed < UNPROBED_NS:
            return []
        return self._close(rx) if self._snapshots and rx - self._closed >= CLAIMED_EVERY_NS else []

    # -- closing a window ----------------------------------------------------------------------------------------------

    def _close(self, rx: int) -> list[ClockWindow | ClockNode]:
        bins, self._bins, self._opened, self._closed = self._bins, {}, None, rx
        edges = []
        for key, records in bins.items():
            window = self._edge(key, records)
            if window is not None:
                edges.append(window)
            self.pace()
        settled = settle(edges, self._reference)
        claims = self._claims(settled, rx)
        if not edges and (bins or not claims):  # tail of a probe burst: the previous lines are better
            return []
        self._number += 1
        flagged = self._flags.add(settled, [(edge.src, edge.dst) for edge in edges]) if settled else frozenset()
        reference = self._anchor(settled, claims)
        results: list[ClockWindow | ClockNode] = [self._window(edge, settled, flagged) for edge in edges]
        if reference is not None and self._epoch is not None:
            fleet = ClockMesh(
                self._number, reference, self._epoch, settled, tuple(edges), flagged, claims, self._recent(rx)
            )
            lines = node_lines(fleet, self.limits.method, self.limits.max_bound_ns)
            self._last.update((line.node, line) for line in lines)
            results += lines
        return results

    def _edge(self, key: EdgeKey, records: Sequence[ClockBins]) -> EdgeWindow | None:
        """Window of an edge by the method with the smallest bound; None for the tail of a probe burst."""
        stepped_ns = self._stepped_ns(key, records)
        windows = [
            edge_window(
                sorted((record for record in records if record.method == method), key=lambda record: record.base),
                stepped_ns,
            )
            for method in ("udp", "ssh")
            if sum(len(record.bins) for record in records if record.method == method) >= LEAST_BINS
        ]
        for window in windows:
            if window.method == "udp":
                (self._blocked.add if window.status == "no_answer" else self._blocked.discard)(key)
        wanted = [window for window in windows if self.limits.method != "ssh" or window.method == "ssh"]
        return min(
            wanted, key=lambda window: float("inf") if window.bound_ns is None else window.bound_ns, default=None
        )

    def _claims(self, settled: Settled | None, rx: int) -> dict[str, Claim]:
        claims = {}
        for node, snapshots in self._snapshots.items():
            if rx - snapshots[-1].rx <= SILENT_NS:
                mono = settled.nodes[node].mono if settled and node in settled.nodes else None
                # the last one before that instant: a later step has not changed the clock yet
                before = [snapshot for snapshot in snapshots if mono is None or snapshot.raw <= mono]
                claims[node] = claim((before or snapshots)[-1 if before else 0], self._sources.get(node), mono)
        return claims

    def _stepped_ns(self, key: EdgeKey, records: Sequence[ClockBins]) -> int:
        """Sum of the steps of both nodes' clocks within the window of these records, ns."""
        src, dst = key
        first = min(record.base for record in records)
        last = max(record.base + len(record.bins) * record.bin_ms * 1_000_000 for record in records)
        ahead = records[-1].ahead
        return sum(
            abs(snapshot.step_ns)
            for node, shift in ((src, 0), (dst, ahead))
            for snapshot in self._snapshots.get(node, ())
            if first <= snapshot.raw - shift <= last + STEP_REPORT_NS
        )

    def _recent(self, rx: int) -> Mapping[str, Sequence[ClockSnapshot]]:
        """Snapshots of the last two windows."""
        since = rx - 2 * max(self.limits.window_ns, CLAIMED_EVERY_NS)
        return {node: [snapshot for snapshot in kept if snapshot.rx >= since] for node, kept in self._snapshots.items()}

    def _anchor(self, settled: Settled | None, claims: Mapping[str, Claim]) -> str | None:
        """Reference of this window; a new reference continues the common clock from its own line."""
        reference = settled.reference if settled else self._reference
        if reference is None or (settled is None and reference not in claims):
            reference = best_reference(claims) or reference
        if reference != self._reference and reference is not None:
            mono = settled.nodes[reference].mono if settled and reference in settled.nodes else None
            self._epoch = self._carried(reference, mono, claims)
            self._reference = reference
        return self._reference

    def _carried(self, reference: str, mono: int | None, claims: Mapping[str, Claim]) -> int | None:
        line = self._last.get(reference)
        if line is not None and line.at_common is not None and line.alpha is not None:
            instant = line.at_mono if mono is None else mono
            gone = instant - line.at_mono
            return line.at_common + gone + int(gone * (line.alpha - 1.0)) - instant
        own = claims.get(reference)
        return own.real - own.mono if own is not None else 0

    def _window(self, edge: EdgeWindow, settled: Settled | None, flagged: frozenset[EdgeKey]) -> ClockWindow:
        key = (edge.src, edge.dst)
        residual = settled.residual_ns.get(key) if settled else None
        slope, offset = edge.line or (None, None)
        return ClockWindow(
            node=edge.src, window_id=self._number, dst=edge.dst, centre=edge.x0, width_ns=edge.width_ns,
            alpha=None if slope is None else 1.0 + slope,
            beta_ns=None if offset is None else edge.y0 + round(offset),
            bound_ns=_up(edge.bound_ns), repeat_ns=_up(edge.repeat_ns), pairs=edge.sent, kept=edge.kept, lost=edge.lost,
            min_rtt_ns=edge.min_rtt_ns, residual_ns=None if residual is None else round(residual),
            flagged=key in flagged, method=edge.method, stamps=edge.stamps, status=self._status(edge),
            udp_blocked=key in self._blocked,
        )  # fmt: skip

    def _status(self, edge: EdgeWindow) -> Literal["ok", "few", "noncausal", "step", "no_answer"]:
        """Status of the window: `step` if it is non-causal because a clock was stepped."""
        if edge.status != "noncausal":
            return edge.status
        half = edge.width_ns // 2
        stepped = any(
            snapshot.step_ns and -half <= snapshot.raw - middle <= half + STEP_REPORT_NS
            for node, middle in ((edge.src, edge.x0), (edge.dst, edge.x0 + edge.y0))
            for snapshot in self._snapshots.get(node, ())
        )
        return "step" if stepped else "noncausal"


def _up(figure: float | None) -> int | None:
    return None if figure is None else int(figure) + 1
