"""Clock measurement over SSH for an edge on which UDP probes are blocked."""

from __future__ import annotations

import msgspec

from gconsole.records import ClockBin, ClockBins

from .synthetic import JITTER, make_nodes, probe_records, regular_edges
from .synthetic_fleet import ClockFoldResult


def unanswered(record: ClockBins) -> ClockBins:
    """The same second as an agent reports it when none of its requests is answered."""
    silent = tuple(ClockBin(None, None, (), row.sent, 0, 0, None) for row in record.bins)
    return msgspec.structs.replace(record, bins=silent)


def over_ssh(record: ClockBins) -> ClockBins:
    """The same second as the console measures it."""
    return msgspec.structs.replace(record, method="ssh", stamps="ssh", agent="console", rx=record.rx + 1)


def test_edge_blocked_for_udp_is_measured_over_ssh() -> None:
    nodes = make_nodes(2, 1)
    records = []
    for record in probe_records(nodes, regular_edges(2, 1), 1, path=lambda _a, _b: JITTER):
        records += [unanswered(record), over_ssh(record)] if isinstance(record, ClockBins) else [record]

    result = ClockFoldResult(records)

    assert [(window.method, window.status, window.udp_blocked) for window in result.windows] == [("ssh", "ok", True)]
    assert all(line.bound_ns is not None for line in result.lines)
    assert not result.misses(nodes)


def test_bins_of_a_previous_agent_incarnation_are_dropped_after_a_restart() -> None:
    nodes = make_nodes(2, 1)
    records = list(probe_records(nodes, regular_edges(2, 1), 1, path=lambda _a, _b: JITTER))
    bins = [record for record in records if isinstance(record, ClockBins)]
    bins[-1].agent = "another incarnation"

    result = ClockFoldResult(records)

    assert all(window.pairs <= sum(row.sent for row in bins[-1].bins) for window in result.windows)
