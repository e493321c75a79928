"""Clocks of real nodes: real agents probe each other over UDP, and every socket is closed when they are done."""

from __future__ import annotations

from pathlib import Path

import pytest
from live import Watched, watched
from rig import Rig

from gconsole.records import ClockBins, ClockCost, ClockSnapshot, Log


@pytest.fixture
def hosts(rig: Rig, tmp_path: Path) -> Path:
    return rig.write_hosts_toml(tmp_path / "hosts.toml")


def bins(fleet: Watched, method: str = "udp") -> list[ClockBins]:
    return [one for one in fleet.records if isinstance(one, ClockBins) and one.method == method]


def edges(fleet: Watched, method: str = "udp") -> set[tuple[str, str]]:
    return {(one.node, one.dst) for one in bins(fleet, method) if any(row.got for row in one.bins)}


def seconds_of_bins(fleet: Watched, edge: tuple[str, str]) -> int:
    return sum(len(one.bins) for one in bins(fleet) if (one.node, one.dst) == edge) // 10


async def test_every_pair_of_four_nodes_is_probed_once_and_the_true_offset_lies_within(hosts: Path, tmp_path) -> None:
    async with watched(hosts) as fleet:
        await fleet.sampled()
        fleet.fleet.want_clocks("test", True)
        await fleet.until(lambda: len(edges(fleet)) == 6 and all(seconds_of_bins(fleet, e) >= 2 for e in edges(fleet)))

    assert len({frozenset(edge) for edge in edges(fleet)}) == 6
    for one in bins(fleet):
        assert one.stamps == "kernel_rx"
        for row in one.bins:  # all nodes share one clock: far is ahead by nothing
            assert row.forward is None or one.ahead + row.forward.ahead >= 0
            assert row.backward is None or one.ahead + row.backward.ahead <= 0
    costs = [one for one in fleet.records if isinstance(one, ClockCost)]
    assert {one.node for one in costs} == {f"node{number}" for number in range(1, 5)}
    assert sum(one.bad_tag + one.replayed + one.over_rate for one in costs) == 0
    assert {one.node for one in fleet.records if isinstance(one, ClockSnapshot)} == {one.node for one in costs}
    assert not [one.text for one in fleet.records if isinstance(one, Log) and one.severity != "info"]
