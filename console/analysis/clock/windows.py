"""The fold: clock records in, a window's result for each edge and each node out; the same live, in batch, in tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ...records import AgentCost, ClockBins, ClockNode, ClockSnapshot, ClockSource, ClockWindow
from .assign import ClockMesh, node_lines
from .edge import LEAST_BINS, EdgeWindow, edge_window
from .node_bounds import EdgeKey, Flags, Settled, settle
from .time_services import Claim, best_reference, claim

Method = Literal["auto", "probe", "ssh", "ntp", "ptp", "system"]

#: Without probes for so long the fleet's lines are drawn from what the nodes claim, this often, ns.
UNPROBED_NS: Final = 180_000_000_000
CLAIMED_EVERY_NS: Final = 10_000_000_000
#: A node that has said nothing of its clocks for so long has no line, ns.
SILENT_NS: Final = 60_000_000_000
_SNAPSHOTS: Final = 64
#: Records of one edge in one window; an honest node sends one a second. Each is compared with all others of its edge.
_MOST_OF_EDGE: Final = 1_024


@dataclass(frozen=True, slots=True)
class ClockLimits:
    """What the configuration says of clocks."""

    window_ns: int = 4_000_000_000
    max_bound_ns: int = 100_000
    method: Method = "auto"


class ClockFold:
    """Give it all records; it answers with what each closed window says. Other kinds of records are ignored.

    A window of the fleet begins with the first bins after the last one and lasts `window_ns` on the console's clock, by
    arrival: the nodes' clocks are what is to be found out. `finish` closes one that is under way.
    """

    def __init__(self, limits: ClockLimits) -> None:
        self.limits = limits  # may be replaced: the window under way is the first that goes by it
        self._bins: dict[EdgeKey, list[ClockBins]] = {}
        self._opened: int | None = None  # rx of the first bins of the window under way
        self._closed = 0  # rx at which the last window was closed
        self._probed = 0  # rx of the last bins
        self._snapshots: dict[str, deque[ClockSnapshot]] = {}
        self._sources: dict[str, ClockSource] = {}
        self._blocked: set[EdgeKey] = set()  # edges on which UDP never got an answer
        self._flags = Flags()
        self._number = 0
        self._reference: str | None = None
        self._epoch: int | None = None  # common clock minus MONOTONIC_RAW of the reference
        self._last: dict[str, ClockNode] = {}

    def add(self, records: Iterable[object]) -> list[ClockWindow | ClockNode]:
        """Fold records in the order of their arrival; what the windows that this closed say."""
        said: list[ClockWindow | ClockNode] = []
        for record in records:
            if isinstance(record, ClockBins):
                said += self._elapsed(record.rx)
                self._take(record)
            elif isinstance(record, ClockSnapshot):
                said += self._elapsed(record.rx)
                self._snapshot(record)
            elif isinstance(record, AgentCost):  # each node's every second, also when the probes are over
                said += self._elapsed(record.rx)
            elif isinstance(record, ClockSource):
                self._sources[record.node] = record
        return said

    def finish(self) -> list[ClockWindow | ClockNode]:
        """Close the window under way; nothing if there is none."""
        return self._close(self._closed) if self._bins else []

    def forget(self, node: str) -> None:
        """A node is no longer of the fleet."""
        self._snapshots.pop(node, None)
        self._sources.pop(node, None)
        self._last.pop(node, None)
        self._blocked = {edge for edge in self._blocked if node not in edge}

    # -- collecting ----------------------------------------------------------------------------------------------------

    def _take(self, record: ClockBins) -> None:
        if self._opened is None:
            self._opened = record.rx
        self._probed = record.rx
        kept = self._bins.setdefault((record.node, record.dst), [])
        # of another incarnation by the same method: perhaps before a reboot (bins over SSH are the console's own word)
        stale = [one for one in kept if one.method == record.method and one.agent != record.agent]
        for one in stale:
            kept.remove(one)
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
        windows = [self._edge(key, records) for key, records in bins.items()]
        told = [window for window in windows if window is not None]
        settled = settle(told, self._reference)
        claims = self._claims(settled, rx)
        if not told and (bins or not claims):  # the tail of a burst of probes: the lines before it are better
            return []
        self._number += 1
        flagged = self._flags.add(settled, [(one.src, one.dst) for one in told]) if settled else frozenset()
        reference = self._anchor(settled, claims)
        said: list[ClockWindow | ClockNode] = [self._window(one, settled, flagged) for one in told]
        if reference is not None and self._epoch is not None:
            fleet = ClockMesh(
                self._number, reference, self._epoch, settled, tuple(told), flagged, claims, self._recent(rx)
            )
            lines = node_lines(fleet, self.limits.method, self.limits.max_bound_ns)
            self._last.update((line.node, line) for line in lines)
            said += lines
        return said

    def _edge(self, key: EdgeKey, records: Sequence[ClockBins]) -> EdgeWindow | None:
        """The window of an edge, by the method that did best; None for the tail of a burst of probes."""
        windows = [
            edge_window(
                sorted((record for record in records if record.method == method), key=lambda record: record.base)
            )
            for method in ("udp", "ssh")
            if sum(len(record.bins) for record in records if record.method == method) >= LEAST_BINS
        ]
        for window in windows:
            if window.method == "udp":
                (self._blocked.add if window.status == "no_answer" else self._blocked.discard)(key)
        wanted = [one for one in windows if self.limits.method != "ssh" or one.method == "ssh"]
        return min(wanted, key=lambda one: float("inf") if one.bound_ns is None else one.bound_ns, default=None)

    def _claims(self, settled: Settled | None, rx: int) -> dict[str, Claim]:
        claims = {}
        for node, snapshots in self._snapshots.items():
            if rx - snapshots[-1].rx <= SILENT_NS:
                at = settled.nodes[node].mono if settled and node in settled.nodes else None
                claims[node] = claim(snapshots[-1], self._sources.get(node), at)
        return claims

    def _recent(self, rx: int) -> Mapping[str, Sequence[ClockSnapshot]]:
        """The snapshots since the last window or so."""
        since = rx - 2 * max(self.limits.window_ns, CLAIMED_EVERY_NS)
        return {node: [one for one in kept if one.rx >= since] for node, kept in self._snapshots.items()}

    def _anchor(self, settled: Settled | None, claims: Mapping[str, Claim]) -> str | None:
        """The reference of this window. A new one carries the common clock on from where its own line had it."""
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
            at = line.at_mono if mono is None else mono
            gone = at - line.at_mono
            return line.at_common + gone + int(gone * (line.alpha - 1.0)) - at
        own = claims.get(reference)
        return own.real - own.mono if own is not None else 0

    def _window(self, one: EdgeWindow, settled: Settled | None, flagged: frozenset[EdgeKey]) -> ClockWindow:
        key = (one.src, one.dst)
        residual = settled.residual_ns.get(key) if settled else None
        slope, offset = one.line or (None, None)
        return ClockWindow(
            node=one.src, window_id=self._number, dst=one.dst, centre=one.x0, width_ns=one.width_ns,
            alpha=None if slope is None else 1.0 + slope,
            beta_ns=None if offset is None else one.y0 + round(offset),
            bound_ns=_up(one.bound_ns), repeat_ns=_up(one.repeat_ns), pairs=one.sent, kept=one.kept, lost=one.lost,
            min_rtt_ns=one.min_rtt_ns, residual_ns=None if residual is None else round(residual),
            flagged=key in flagged, method=one.method, stamps=one.stamps, status=self._status(one),
            udp_blocked=key in self._blocked,
        )  # fmt: skip

    def _status(self, one: EdgeWindow) -> Literal["ok", "few", "noncausal", "step", "no_answer"]:
        """`step` where no line is possible and a clock was set meanwhile."""
        if one.status != "noncausal":
            return one.status
        half = one.width_ns // 2
        stepped = any(
            snapshot.step_ns and abs(snapshot.raw - middle) <= half
            for node, middle in ((one.src, one.x0), (one.dst, one.x0 + one.y0))
            for snapshot in self._snapshots.get(node, ())
        )
        return "step" if stepped else "noncausal"


def _up(figure: float | None) -> int | None:
    return None if figure is None else int(figure) + 1
