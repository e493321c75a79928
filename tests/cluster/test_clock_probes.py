"""Clock probes between real nodes: real agents probe each other over UDP, and close every socket afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_fleet import LiveFleet, started_fleet
from rig import Rig
from skewed_clocks import ClockError, wrong_clocks

from gconsole.core.control import CaptureRequest, new_capture
from gconsole.records import ClockBins, ClockCost, ClockSnapshot, Log
from gconsole.session.manage.retention import Limits
from gconsole.session.record.recorder import Recorder


@pytest.fixture
def hosts(rig: Rig, tmp_path: Path) -> Path:
    return rig.write_hosts_toml(tmp_path / "hosts.toml", clock={"probe_cadence_us": 20_000})


def bins(fleet: LiveFleet, method: str = "udp") -> list[ClockBins]:
    return [record for record in fleet.records if isinstance(record, ClockBins) and record.method == method]


def edges(fleet: LiveFleet, method: str = "udp") -> set[tuple[str, str]]:
    return {(record.node, record.dst) for record in bins(fleet, method) if any(row.got for row in record.bins)}


def seconds_of_bins(fleet: LiveFleet, edge: tuple[str, str]) -> int:
    return sum(len(record.bins) for record in bins(fleet) if (record.node, record.dst) == edge) // 10


async def test_every_pair_of_four_nodes_is_probed_once_with_valid_bounds(hosts: Path) -> None:
    async with started_fleet(hosts) as fleet:
        await fleet.sampled()
        fleet.fleet.request_clock_probes("test", True)
        await fleet.until(lambda: len(edges(fleet)) == 6 and all(seconds_of_bins(fleet, e) >= 2 for e in edges(fleet)))

    assert len({frozenset(edge) for edge in edges(fleet)}) == 6
    for record in bins(fleet):
        assert record.stamps == "kernel_rx"
        for row in record.bins:  # all nodes share one clock: the true offset is 0
            assert row.forward is None or record.ahead + row.forward.ahead >= 0
            assert row.backward is None or record.ahead + row.backward.ahead <= 0
    costs = [record for record in fleet.records if isinstance(record, ClockCost)]
    assert {cost.node for cost in costs} == {f"node{number}" for number in range(1, 5)}
    assert sum(cost.bad_tag + cost.replayed + cost.over_rate for cost in costs) == 0
    assert {record.node for record in fleet.records if isinstance(record, ClockSnapshot)} == {
        cost.node for cost in costs
    }
    assert not [record.text for record in fleet.records if isinstance(record, Log) and record.severity != "info"]


def ports(rig: Rig) -> int:
    """Number of UDP sockets on all nodes, from the kernels' lists."""
    return sum(len(node.output(["cat", "/proc/net/udp", "/proc/net/udp6"]).splitlines()) - 2 for node in rig.nodes)


@pytest.mark.usefixtures("needs_namespaces")
async def test_udp_sockets_are_open_only_while_nodes_probe(rig: Rig, hosts: Path) -> None:
    async with started_fleet(hosts, clock_duty="off") as fleet:
        await fleet.sampled()
        fleet.fleet.request_clock_probes("test", True)
        assert ports(rig) == 0  # disabled for all purposes

    async with started_fleet(hosts, clock_probe_window_s="4", clock_duty="auto") as fleet:
        await fleet.sampled()
        await fleet.until(lambda: len(edges(fleet)) == 6, 150.0)  # an edge that misses a window waits a minute
        await fleet.until(lambda: ports(rig) == 0)  # one background window, then none
        before = len(bins(fleet))
        fleet.fleet.request_clock_probes("a view", True)
        fleet.fleet.request_clock_probes("another", True)
        await fleet.until(lambda: len(bins(fleet)) > before + 12)
        assert ports(rig) == 4
        fleet.fleet.request_clock_probes("a view", False)
        assert ports(rig) == 4
        fleet.fleet.request_clock_probes("another", False)
        await fleet.until(lambda: ports(rig) == 0)
    assert ports(rig) == 0


@pytest.mark.usefixtures("needs_namespaces")
async def test_recording_clocks_keeps_probing_continuous(rig: Rig, hosts: Path, tmp_path: Path) -> None:
    async with started_fleet(hosts, clock_probe_window_s="1") as fleet:
        await fleet.sampled()
        await fleet.until(lambda: len(edges(fleet)) == 6)
        await fleet.until(lambda: ports(rig) == 0)  # the background window is over; the next is a minute away
        before = len(bins(fleet))
        recorder = Recorder(
            fleet.hub, tmp_path, Limits(), lambda: (), request_clock_probes=fleet.fleet.request_clock_probes
        )
        await recorder.start("with-clocks")
        await fleet.until(lambda: len(bins(fleet)) > before + 18)
        assert ports(rig) == 4
        await recorder.stop("with-clocks")
        await fleet.until(lambda: ports(rig) == 0)


@pytest.mark.usefixtures("needs_namespaces")
async def test_probes_bound_the_offset_of_wrong_and_drifting_clocks(rig: Rig, hosts: Path, tmp_path: Path) -> None:
    errors = {
        "node2": ClockError(5_000_000, 20_000),
        "node3": ClockError(-2_000_000_000, -30_000),
        "node4": ClockError(700, 0),
    }
    with wrong_clocks(tmp_path, errors) as clock_errors:
        async with started_fleet(hosts) as fleet:
            await fleet.sampled()
            fleet.fleet.request_clock_probes("test", True)
            await fleet.until(lambda: len(edges(fleet)) == 6 and len(bins(fleet)) > 20)

    rows = 0
    for record in bins(fleet):
        for row in record.bins:
            if row.forward is None or row.backward is None:
                continue
            rows += 1
            above = (
                record.ahead
                + row.forward.ahead
                - clock_errors.offset_between_ns(record.node, record.dst, record.base + row.forward.at)
            )
            below = (
                record.ahead
                + row.backward.ahead
                - clock_errors.offset_between_ns(record.node, record.dst, record.base + row.backward.at)
            )
            # 1 us of tolerance: two clock reads between a timestamp and its error
            assert below < 1000 and above > -1000 and above - below < 1_000_000, (record.node, record.dst, row)
    assert rows > 100


@pytest.mark.usefixtures("needs_namespaces")
async def test_edge_without_udp_is_measured_over_ssh_and_reported_as_blocked(rig: Rig, hosts: Path) -> None:
    near, far = rig.nodes[0], rig.nodes[1]
    near.output(["ip", "route", "add", "blackhole", f"{far.address}/32"])
    try:
        async with started_fleet(hosts) as fleet:
            await fleet.sampled()
            fleet.fleet.request_clock_probes("test", True)
            await fleet.until(lambda: len(edges(fleet)) == 5 and edges(fleet, "ssh") and len(bins(fleet, "ssh")) >= 3)
    finally:
        near.output(["ip", "route", "del", "blackhole", f"{far.address}/32"])

    ((src, dst),) = edges(fleet, "ssh")
    assert {src, dst} == {"node1", "node2"}
    assert [record.text for record in fleet.records if isinstance(record, Log) and record.severity == "warning"] == [
        f"UDP blocked {src} → {dst}: clocks are compared over SSH instead, with a wider error bound"
    ]
    for record in bins(fleet, "ssh"):
        assert (record.stamps, record.agent) == ("ssh", fleet.hub.console_id)
        for row in record.bins:
            assert row.forward is None or record.ahead + row.forward.ahead >= 0
            assert row.backward is None or record.ahead + row.backward.ahead <= 0


async def test_ssh_clock_method_sends_no_udp_probes(rig: Rig, hosts: Path) -> None:
    async with started_fleet(hosts, clock_method="ssh") as fleet:
        await fleet.sampled()
        fleet.fleet.request_clock_probes("test", True)
        await fleet.until(lambda: len(edges(fleet, "ssh")) == 6)
        assert not bins(fleet) and not [record for record in fleet.records if isinstance(record, ClockCost)]


@pytest.mark.full
async def test_remaining_nodes_keep_probing_after_a_node_is_removed(rig: Rig, hosts: Path) -> None:
    async with started_fleet(hosts) as fleet:
        await fleet.sampled()
        fleet.fleet.request_clock_probes("test", True)
        await fleet.until(lambda: len(edges(fleet)) == 6)
        await fleet.fleet.remove_node("node4")
        fleet.records.clear()
        await fleet.until(lambda: len(edges(fleet)) >= 3 and len(bins(fleet)) > 30)
        fleet.records.clear()
        await fleet.until(lambda: len(edges(fleet)) == 3)


@pytest.mark.full
@pytest.mark.usefixtures("needs_namespaces")
async def test_capture_triggers_one_probe_window(rig: Rig, hosts: Path) -> None:
    async with started_fleet(hosts) as fleet:
        await fleet.sampled()
        await fleet.until(lambda: len(edges(fleet)) == 6)
        await fleet.until(lambda: ports(rig) == 0)  # the first background window is over
        fleet.records.clear()
        await fleet.fleet.capture(CaptureRequest(new_capture()))
        await fleet.until(lambda: len(edges(fleet)) == 6)
        assert min(record.cadence_us for record in bins(fleet)) == 20_000, "as configured"
        await fleet.until(lambda: ports(rig) == 0)
