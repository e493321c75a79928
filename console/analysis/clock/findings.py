"""What is wrong with a clock, or with what is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ...records import ClockNode, ClockSource, ClockWindow, Severity
from ..finding import FindingDraft

#: Of a node's warnings those that are a finding: its id, its severity, and what it means.
_WARNINGS: Final[dict[str, tuple[str, Severity, str]]] = {
    "step": ("clock_step", "warning", "its CLOCK_REALTIME was set while it was watched"),
    "slew": ("clock_slew", "warning", "its CLOCK_REALTIME runs more than 100 ppm off, as while a service slews it"),
    "noncausal": ("clock_noncausal", "warning", "stamps of its probes cannot be: no bound can be given"),
    "rate": ("clock_rate", "warning", "its oscillator is more than 100 ppm from the common clock's"),
    "asym": ("clock_asymmetric", "info", "other ways contradict one of its edges: longer one way than back"),
    "loss": ("clock_loss", "info", "more than 1 % of its probes are lost"),
    "timens": ("clock_timens", "info", "its agent is in a time namespace: a trainer may read other clocks"),
    "island": ("clock_island", "warning", "no edge ties it to the common clock"),
}  # fmt: skip


def clock_findings(
    lines: Iterable[ClockNode], windows: Iterable[ClockWindow], sources: Mapping[str, ClockSource], max_bound_ns: int
) -> Iterator[FindingDraft]:
    """Of the newest line of each node, the newest window of each edge, and each node's own service.

    A bound is too wide only where somebody measures: what services claim of themselves is mostly milliseconds, and a
    fleet that nobody probes has asked for nothing better.
    """
    known, windows = {line.node: line for line in lines}, list(windows)
    for name in sorted({*known, *sources}):
        yield from _unsynced(name, known.get(name) if windows else None, sources.get(name), max_bound_ns)
    for line in known.values():
        yield from _warned(line)
    for window in windows:
        if window.udp_blocked:
            text = f"UDP blocked {window.node} → {window.dst}: their clocks are compared over SSH, with a wider bound"
            yield FindingDraft(
                "clock_udp_blocked", "info", "certain", (f"{window.node}→{window.dst}",), text,
                (f"clock_window.udp_blocked {window.node} → {window.dst}",),
            )  # fmt: skip


def _unsynced(
    name: str, line: ClockNode | None, source: ClockSource | None, max_bound_ns: int
) -> Iterator[FindingDraft]:
    """The node's own service has no source, or nobody knows its clock as well as was asked for."""
    reasons, evidence = [], []
    if source is not None and source.daemon is not None and source.synced is False:
        reasons.append(f"{source.daemon}: {source.text or 'no source'}")
        evidence.append(f"clock_source.synced {name} {source.daemon} false")
    if line is not None and line.bound_ns is not None and line.bound_ns > max_bound_ns:
        reasons.append(f"known to ±{line.bound_ns / 1e3:.0f} µs only, {max_bound_ns / 1e3:.0f} are asked for")
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


def offset_text(line: ClockNode | None) -> str:
    """`; offset +812 ± 9 µs`, where that is known."""
    if line is None or line.offset_ns is None or line.bound_ns is None or line.node == line.reference:
        return ""
    return f"; offset {line.offset_ns / 1e3:+.0f} ± {line.bound_ns / 1e3:.0f} µs"


def _warned(line: ClockNode) -> Iterator[FindingDraft]:
    for word in line.warnings:
        if word in _WARNINGS:
            id_, severity, means = _WARNINGS[word]
            yield FindingDraft(id_, severity, "certain", (line.node,), f"{line.node}: {means}",
                        (f"clock_node.warnings {line.node} {word}",))  # fmt: skip
    if line.status == "inconsistent":
        text = f"{line.node}: its edges contradict those of the other nodes"
        yield FindingDraft("clock_inconsistent", "warning", "certain", (line.node,), text,
                    (f"clock_node.status {line.node} inconsistent",))  # fmt: skip
