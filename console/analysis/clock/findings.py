"""Findings about node clocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ...records import ClockNode, ClockSource, ClockWindow, Severity
from ...text.format import micro, some
from ..finding import FindingDraft

#: Names listed in a text; the rest is counted.
NAMED: Final = 4
#: Node warnings that are findings: {warning: (finding id, severity, text)}.
_WARNINGS: Final[dict[str, tuple[str, Severity, str]]] = {
    "step": ("clock_step", "warning", "CLOCK_REALTIME was stepped"),
    "slew": ("clock_slew", "warning", "CLOCK_REALTIME is slewed by more than 100 ppm"),
    "noncausal": ("clock_noncausal", "warning", "probe timestamps violate causality; no error bound"),
    "rate": ("clock_rate", "warning", "clock drift > 100 ppm against the common clock"),
    "asym": ("clock_asymmetric", "info", "asymmetric path between two nodes: an edge contradicts the other paths"),
    "loss": ("clock_loss", "info", "more than 1 % of clock probes lost"),
    "timens": ("clock_timens", "info", "agent runs in a time namespace; training processes may use other clocks"),
    "island": ("clock_island", "warning", "not connected to the common clock by any probed edge"),
}  # fmt: skip


def clock_findings(
    lines: Iterable[ClockNode], windows: Iterable[ClockWindow], sources: Mapping[str, ClockSource], max_bound_ns: int,
    max_offset_ns: int,
) -> Iterator[FindingDraft]:  # fmt: skip
    """Findings from the newest line of each node, window of each edge and time service of each node.

    A wide bound is a finding only where probes run: NTP claims are milliseconds, and that is expected without probes.
    The bound of a window in which a clock was stepped is as wide as the step, which is a finding of its own.
    """
    line_of, windows = {line.node: line for line in lines}, list(windows)
    stepped = {line.node for line in line_of.values() if "step" in line.warnings}
    for name in sorted({*line_of, *sources}):
        line = line_of.get(name) if windows else None
        widened = line is not None and not stepped.isdisjoint((line.node, line.reference))
        yield from _unsynced(name, None if widened else line, sources.get(name), max_bound_ns)
    yield from _offsets(line_of.values(), max_offset_ns)
    for line in line_of.values():
        yield from _warned(line)
    for window in windows:
        if window.udp_blocked:
            text = f"UDP blocked {window.node} → {window.dst}: clocks are compared over SSH, with a wider bound"
            yield FindingDraft(
                "clock_udp_blocked", "info", "certain", (f"{window.node}→{window.dst}",), text,
                (f"clock_window.udp_blocked {window.node} → {window.dst}",),
            )  # fmt: skip


def _unsynced(
    name: str, line: ClockNode | None, source: ClockSource | None, max_bound_ns: int
) -> Iterator[FindingDraft]:
    """The time service is not synchronised, or the error bound exceeds `max_bound_ns`."""
    reasons, evidence = [], []
    if source is not None and source.daemon is not None and source.synced is False:
        reasons.append(f"{source.daemon}: {source.text or 'no source'}")
        evidence.append(f"clock_source.synced {name} {source.daemon} false")
    if line is not None and line.bound_ns is not None and line.bound_ns > max_bound_ns:
        reasons.append(
            f"error bound ±{micro(line.bound_ns, digits=2)} µs exceeds the limit of {micro(max_bound_ns, digits=2)} µs"
        )
        evidence.append(f"clock_node.bound_ns {name} {line.bound_ns}")
    if reasons:
        yield FindingDraft(
            "clock_unsynced",
            "warning",
            "certain",
            (name,),
            f"{name} {'; '.join(reasons)}{offset_text(line)}",
            tuple(evidence),
        )


def _offsets(lines: Iterable[ClockNode], max_offset_ns: int) -> Iterator[FindingDraft]:
    """Nodes whose CLOCK_REALTIME is further from that of most nodes than `max_offset_ns`, beyond the bounds.

    Named are the nodes apart from the largest group of agreeing ones. Without a majority both sides are named together:
    which of two clocks is wrong is not known.
    """
    offsets = [
        (line.offset_ns, line.bound_ns, line.node)
        for line in lines
        if line.offset_ns is not None and line.bound_ns is not None and line.status == "ok"
    ]
    if len(offsets) < 2:
        return

    def agreeing(middle_ns: int, bound_ns: int) -> list[str]:
        return [node for ns, own_ns, node in offsets if abs(ns - middle_ns) - own_ns - bound_ns <= max_offset_ns]

    middle_ns, middle_bound_ns, _ = max(offsets, key=lambda offset: (len(agreeing(*offset[:2])), -offset[1]))
    right = set(agreeing(middle_ns, middle_bound_ns))
    apart = [(ns - middle_ns, bound_ns + middle_bound_ns, node) for ns, bound_ns, node in offsets if node not in right]
    if not apart:
        return
    if 2 * len(right) <= len(offsets):
        ns, bound_ns, _ = max(apart, key=lambda offset: abs(offset[0]))
        names = tuple(sorted(node for _, _, node in offsets))
        amount = _amount(abs(ns), bound_ns)
        text = f"the clocks of {some(names, NAMED)} differ by up to {amount}; which of them is right is unknown"
        yield _offset_finding(names, text, apart)
        return
    for ns, bound_ns, node in apart:
        ahead = "ahead of" if ns > 0 else "behind"
        text = f"CLOCK_REALTIME of {node} is {_amount(abs(ns), bound_ns)} {ahead} that of most nodes"
        yield _offset_finding((node,), text, [(ns, bound_ns, node)])


def _offset_finding(names: tuple[str, ...], text: str, apart: Sequence[tuple[int, int, str]]) -> FindingDraft:
    evidence = tuple(
        f"clock_node.offset_ns {node} {ns:+d}, bound_ns {bound_ns}" for ns, bound_ns, node in apart[:NAMED]
    )
    return FindingDraft("clock_offset", "warning", "certain", names, text, evidence)


def _amount(ns: int, bound_ns: int) -> str:
    return f"{ns / 1e6:,.3f} ± {bound_ns / 1e6:.3f} ms"


def offset_text(line: ClockNode | None) -> str:
    """`; offset +812 ± 9 µs`; empty if unknown."""
    if line is None or line.offset_ns is None or line.bound_ns is None or line.node == line.reference:
        return ""
    return f"; offset {micro(line.offset_ns, signed=True, digits=2)} ± {micro(line.bound_ns, digits=2)} µs"


def _warned(line: ClockNode) -> Iterator[FindingDraft]:
    for word in line.warnings:
        if word in _WARNINGS:
            id_, severity, means = _WARNINGS[word]
            yield FindingDraft(id_, severity, "certain", (line.node,), f"{line.node}: {means}",
                        (f"clock_node.warnings {line.node} {word}",))  # fmt: skip
    if line.status == "inconsistent":
        text = f"{line.node}: clock measurements contradict those of the other nodes"
        yield FindingDraft("clock_inconsistent", "warning", "certain", (line.node,), text,
                    (f"clock_node.status {line.node} inconsistent",))  # fmt: skip
