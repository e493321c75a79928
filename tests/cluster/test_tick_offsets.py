"""Real agents sample at full seconds of their node's clock, or the offset of their group after them."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
from live_fleet import LiveFleet, started_fleet
from rig import Rig

from gconsole.fleet import tick_offsets
from gconsole.records import Host

TICKS = 9
#: Seconds. A tick begins late where the processors are busy; offsets of two groups are further apart.
LATE_S = 0.2


def late_s(live: LiveFleet, node: str, offset_s: float) -> float:
    """Median seconds from a node's slot to its tick, all but the first; from -0.5 to 0.5."""
    stamps = [record.t for record in live.records if type(record) is Host and record.node == node][1:]
    return median((stamp / 1e9 - offset_s + 0.5) % 1.0 - 0.5 for stamp in stamps)


@pytest.mark.parametrize("together", [1, 4])
async def test_nodes_of_a_group_sample_at_one_instant(
    rig: Rig, tmp_path: Path, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tick_offsets, "TOGETHER", together)
    names = [node.name for node in rig.nodes]
    async with started_fleet(rig.write_hosts_toml(tmp_path / "hosts.toml", agent={"cpu_budget_pct": 100.0})) as live:
        await live.until(lambda: all(
            sum(type(record) is Host and record.node == name for record in live.records) >= TICKS for name in names
        ))  # fmt: skip
        for position, name in enumerate(names):
            assert abs(late_s(live, name, tick_offsets.tick_offset_s(position))) < LATE_S, name
