"""Clock probes on different networks: a separate data network, IPv6, asymmetric, lossy and reordering paths."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from delayed_links import CheckedWindow, RelayArguments, checked_windows, delayed_both_ways, delayed_one_way
from fixtures import FEW_PROBES
from live_fleet import LiveFleet, started_fleet
from program import gconsole
from rig import Node, Rig
from rig.network import ip
from skewed_clocks import ClockError, ClockErrors, wrong_clocks

from gconsole.monitor.clock_estimator import ClockEstimator
from gconsole.records import ClockBins, ClockCost, ClockNode, ClockWindow

pytestmark = pytest.mark.usefixtures("needs_namespaces")

DRIFTING = {"node2": ClockError(5_000_000, 20_000)}
HALF_LOST = ("uniform", 50, 150, "lost", 0.5)
DISORDERLY = ("uniform", 50, 150, "twice", 0.2, "overtake", 0.1, 2_000)
LONGER = ("uniform", 300, 301)


@pytest.fixture(scope="module")
def pair() -> Iterator[Rig]:
    with Rig(nodes=2, name="pair") as rig:
        yield rig


def udp(fleet: LiveFleet) -> list[ClockBins]:
    return [record for record in fleet.records if isinstance(record, ClockBins) and record.method == "udp"]


def total(fleet: LiveFleet, field: str) -> int:
    return sum(getattr(record, field) for record in fleet.records if isinstance(record, ClockCost))


# -- choice of network -------------------------------------------------------------------------------------------------


def add_link(near: Node, far: Node) -> None:
    """Add a second link between two nodes, with IPv6 only."""
    ends = [node.outer_pid(node.processes()[0]) for node in (near, far)]
    ip("link", "add", "data0", "netns", str(ends[0]), "type", "veth", "peer", "name", "data0", "netns", str(ends[1]))
    for number, node in enumerate((near, far), 1):
        node.output(["ip", "-6", "addr", "add", f"fd64::{number}/64", "dev", "data0", "nodad"])
        node.output(["ip", "link", "set", "data0", "up"])


def packets(node: Node) -> int:
    """Number of packets received on that link."""
    return int(json.loads(node.output(["ip", "-j", "-s", "link", "show", "data0"]))[0]["stats64"]["rx"]["packets"])


@pytest.mark.parametrize(
    "interface", ["data0", *(pytest.param(name, marks=pytest.mark.full) for name in ("=data0", "^eth0"))]
)
async def test_probes_use_the_configured_interface_over_ipv6(pair: Rig, tmp_path: Path, interface: str) -> None:
    near, far = pair.nodes
    add_link(near, far)
    try:
        hosts = pair.write_hosts_toml(tmp_path / "hosts.toml", clock={"interface": interface, **FEW_PROBES})
        before = packets(near), packets(far)
        with wrong_clocks(tmp_path, DRIFTING) as clock_errors:
            async with started_fleet(hosts) as fleet:
                await fleet.sampled()
                fleet.fleet.request_clock_probes("test", True)
                await fleet.until(lambda: checked_windows(udp(fleet), clock_errors, 2))
                probes = udp(fleet)  # before the packets are counted: later ones only increase the count
                arrived = packets(near) - before[0], packets(far) - before[1]
    finally:
        near.output(["ip", "link", "del", "data0"])

    assert {(record.family, record.stamps) for record in probes} == {("ipv6", "kernel_rx")}
    got = sum(row.got for record in probes for row in record.bins)
    assert min(arrived) >= got > 50
    assert all(window.is_covered for window in checked_windows(probes, clock_errors, 2))


# -- asymmetric and lossy paths ----------------------------------------------------------------------------------------


async def measure(
    rig: Rig, folder: Path, there: RelayArguments, back: RelayArguments
) -> tuple[LiveFleet, list[CheckedWindow]]:
    hosts = rig.write_hosts_toml(folder / "hosts.toml", clock={"cpu_cap_pct": 60})
    with wrong_clocks(folder, DRIFTING) as clock_errors, delayed_both_ways(*rig.nodes, there, back):
        async with started_fleet(hosts) as fleet:
            await fleet.sampled()
            fleet.fleet.request_clock_probes("test", True)
            await fleet.until(lambda: checked_windows(udp(fleet), clock_errors))
    return fleet, checked_windows(udp(fleet), clock_errors)


@pytest.mark.parametrize(
    ("there", "back"),
    [(DISORDERLY, DISORDERLY), pytest.param(HALF_LOST, ("uniform", 50, 150), marks=pytest.mark.full)],
)
async def test_bound_holds_with_lost_duplicated_or_reordered_packets(
    pair: Rig, tmp_path: Path, there: RelayArguments, back: RelayArguments
) -> None:
    fleet, checked = await measure(pair, tmp_path, there, back)

    for measured in checked:
        assert measured.window.status == "ok" and measured.is_covered
        assert measured.window.bound_ns < measured.window.min_rtt_ns, "lost and duplicate probes do not widen the bound"
    if there is DISORDERLY:
        assert total(fleet, "replayed") > 50  # each is answered and used once
        assert all(measured.window.kept <= measured.window.sent for measured in checked)
    else:
        assert 0.3 < checked[0].window.lost / checked[0].window.sent < 0.7
    assert total(fleet, "bad_tag") == total(fleet, "over_rate") == 0


# -- one asymmetric edge of many ---------------------------------------------------------------------------------------


def errors(lines: Sequence[ClockNode], clock_errors: ClockErrors) -> list[tuple[float, int]]:
    """(error, bound) of every line of a node, ns, relative to the common clock of its window."""
    errors_and_bounds = []
    for number in {line.window_id for line in lines}:
        window = [line for line in lines if line.window_id == number and line.at_common is not None]
        own = next((line for line in window if line.node == line.reference), None)
        if own is None or own.at_common is None:
            continue
        epoch = own.at_common - own.at_mono
        for line in window:
            if line is not own and line.at_common is not None and line.bound_ns is not None:
                ahead = line.at_common - line.at_mono - epoch  # integer first: a float resolves 256 ns here
                errors_and_bounds.append(
                    (abs(ahead - clock_errors.offset_between_ns(line.node, own.node, line.at_mono)), line.bound_ns)
                )
    return errors_and_bounds


#: (errors before, errors after, flagged edges of each window after, the asymmetric edge)
Crooked = tuple[list[tuple[float, int]], list[tuple[float, int]], list[set[frozenset[str]]], frozenset[str]]


class Mesh:
    """A fleet with the windows since the last `forget`."""

    def __init__(self, fleet: LiveFleet, edges: int) -> None:
        self._fleet, self._edges, self._from = fleet, edges, 0

    def forget(self) -> None:
        self._from = len(self._fleet.records)

    @property
    def windows(self) -> list[list[ClockWindow]]:
        """The complete windows of the fleet, each with all of its edges."""
        by_number: dict[int, list[ClockWindow]] = {}
        for record in self._fleet.records[self._from :]:
            if isinstance(record, ClockWindow):
                by_number.setdefault(record.window_id, []).append(record)
        return [edges for edges in by_number.values() if len(edges) == self._edges]

    def lines(self) -> list[ClockNode]:
        return [record for record in self._fleet.records[self._from :] if isinstance(record, ClockNode)]


async def measure_asymmetric_edge(rig: Rig, folder: Path, clean: int, **clock: object) -> Crooked:
    """Adds 300 us to one direction of an edge after some clean windows."""
    hosts = rig.write_hosts_toml(folder / "hosts.toml", clock=clock)
    wrong = {node.name: ClockError((-1) ** number * number * 1_300_000, number * 7_000 - 20_000)
             for number, node in enumerate(rig.nodes)}  # fmt: skip
    near, far = rig.nodes[1], rig.nodes[2]
    count = len(rig.nodes)
    with wrong_clocks(folder, wrong) as clock_errors:
        async with started_fleet(hosts) as fleet:
            clockwork = ClockEstimator(fleet.hub, fleet.fleet.config.clock, "rig")
            clockwork.start()
            await fleet.sampled()
            fleet.fleet.request_clock_probes("test", True)
            mesh = Mesh(fleet, count * (count - 1) // 2)
            await fleet.until(lambda: len(mesh.windows) >= clean, 60.0)
            before = errors(mesh.lines(), clock_errors)
            with delayed_one_way(near, far, LONGER):
                mesh.forget()
                await fleet.until(lambda: len(mesh.windows) >= max(4, clean), 60.0)
                after = errors(mesh.lines(), clock_errors)
                flagged = [
                    {frozenset((edge.node, edge.dst)) for edge in window if edge.flagged} for window in mesh.windows
                ]
            await clockwork.stop()
    return before, after, flagged, frozenset((near.name, far.name))


async def test_asymmetric_edge_is_flagged_within_a_few_windows(rig: Rig, tmp_path: Path) -> None:
    before, after, flagged, ends = await measure_asymmetric_edge(rig, tmp_path, 1, **FEW_PROBES)

    assert all(error <= bound for error, bound in before + after)
    assert ends in set().union(*flagged[:4])  # the first window contains both states
    assert all(window <= {ends} for window in flagged)


@pytest.mark.full
async def test_asymmetric_edge_barely_shifts_offsets_of_six_nodes(tmp_path: Path) -> None:
    """Node errors at most twice those before plus 0.5 us; no other edge flagged."""
    with Rig(nodes=6, name="mesh") as rig:
        before, after, flagged, ends = await measure_asymmetric_edge(rig, tmp_path, 5)

    assert all(error <= bound for error, bound in before + after)
    clean, dirty = (sorted(error for error, _ in pairs)[len(pairs) // 2] for pairs in (before, after))
    print(f"node error: {clean:.0f} ns, with the edge 300 us longer {dirty:.0f} ns")
    assert dirty <= 2 * clean + 500
    assert ends in set().union(*flagged[:4])
    assert all(window <= {ends} for window in flagged)


# -- other clocks on the same node -------------------------------------------------------------------------------------


def test_node_in_another_time_namespace_is_compared_with_a_warning(pair: Rig, tmp_path: Path) -> None:
    """Its MONOTONIC_RAW is 5,000 s ahead, its CLOCK_REALTIME is the common one."""
    if not Path("/proc/self/ns/time").exists():
        pytest.skip("a kernel without time namespaces")
    node = pair.nodes[1]
    python = node.folder / "later-python"
    python.write_text('#!/bin/sh\nexec unshare --time --fork --monotonic 5000 --boottime 5000 python3 "$@"\n')
    python.chmod(0o755)
    nodes = {node.name: {"python": f"{node.inside}/later-python"}}
    hosts = pair.write_hosts_toml(tmp_path / "hosts.toml", nodes=nodes, clock=FEW_PROBES)

    run = gconsole("clocks", hosts, "--for", "2s", "--json", "--quiet")

    assert run.status == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    warned = {line["node"]: line["warnings"] for line in lines if line["type"] == "node"}
    assert "timens" in warned["node2"] and "timens" not in warned["node1"]
    windows = [line for line in lines if line["type"] == "window" and line["status"] == "ok"]
    assert windows
    for line in windows:
        ahead = 5_000 * 1_000_000_000 * (1 if line["dst"] == "node2" else -1)
        assert abs(line["beta_ns"] - ahead) <= line["bound_ns"]
    offsets = {line["node"]: line["offset_ns"] for line in lines if line["type"] == "node"}
    assert abs(offsets["node2"] - offsets["node1"]) < 1_000_000  # of CLOCK_REALTIME, which both nodes share
