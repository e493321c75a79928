"""`gconsole clocks` names the nodes that probe less often than configured, and why."""

from __future__ import annotations

from gconsole.present.clocks import ClockRow, ClockSummary, longer_cadence_lines
from gconsole.records import ClockCost, ClockNode


def row(node: str, cadence_us: int, warnings: tuple[str, ...] = ()) -> ClockRow:
    cost = ClockCost(
        cpu_pct=15.0, tx_packets_s=1.0, rx_packets_s=1.0, tx_bytes_s=1.0, records_bytes_s=1.0, cadence_us=cadence_us
    )
    line = ClockNode(node=node, window_id=1, reference="a", at_mono=1, warnings=warnings)
    return ClockRow(node, line, None, cost, (), (), 0)


def test_longer_cadence_is_explained_for_each_node_that_has_it() -> None:
    seen = ClockSummary("a", (row("a", 200), row("b", 3_000), row("c", 0), row("d", 200, ("loaded",))))

    lines = longer_cadence_lines(seen, 200, 15)

    assert lines == [
        "b: a triple every 3000 µs instead of 200 µs: the CPU limit of 15 % of a core (clock.cpu_cap_pct)",
        "d: more than 5 % of its triples were skipped: the node was too busy to send in time",
    ]
