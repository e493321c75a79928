"""Digests of what nobody wants, from real agents: ordered, ended by a want, and ordered again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from live_fleet import LiveFleet, started_fleet
from rig import Rig

from gconsole.core.control import Selection
from gconsole.core.wants import DIGESTED, EVERY_SAMPLE, Want
from gconsole.records import AgentCost, Gpu, Host, Record
from gconsole.runtime.console import _wants_of

PERIOD_S = 3
GPU_ONLY = frozenset({"gpu"})


@pytest.fixture
def hosts(rig: Rig, tmp_path: Path) -> Path:
    return rig.write_hosts_toml(
        tmp_path / "hosts.toml", agent={"simulate_gpus": 2, "digest_s": float(PERIOD_S), "cpu_budget_pct": 100.0}
    )


def newest(fleet: LiveFleet, kind: type[Record], node: str) -> Record | None:
    return next((record for record in reversed(fleet.records) if type(record) is kind and record.node == node), None)


def comes_as(fleet: LiveFleet, kind: type[Record], nodes: list[str], *, digests: bool) -> bool:
    """Whether the newest record of each node is a digest of several samples, or is none."""
    found = [newest(fleet, kind, node) for node in nodes]
    return all(record is not None and (record.samples > 1 if digests else not record.is_digest) for record in found)


async def test_only_what_is_wanted_comes_in_full(rig: Rig, hosts: Path) -> None:
    names = [node.name for node in rig.nodes]
    async with started_fleet(hosts) as live:
        await live.until(lambda: comes_as(live, Gpu, names, digests=True) and comes_as(live, Host, names, digests=True))
        live.fleet.want("view", Want(frozenset(names[:1]), GPU_ONLY, EVERY_SAMPLE))
        await live.until(lambda: comes_as(live, Gpu, names[:1], digests=False))
        del live.records[:]
        await live.until(lambda: comes_as(live, Gpu, names[1:], digests=True))

        hosts_of_first = [record for record in live.records if type(record) is Host and record.node == names[0]]
        assert all(record.is_digest for record in hosts_of_first)  # a change is sent at once, as one of one sample
        samples = [record for record in live.records if type(record) is Gpu and record.node == names[0]]
        assert samples and not any(record.is_digest for record in samples)
        live.fleet.want("view")
        await live.until(lambda: comes_as(live, Gpu, names, digests=True))
        for record in [record for record in live.records if type(record) is Gpu and record.samples > 1]:
            assert record.period_s == PERIOD_S and record.first_mono < record.mono
            assert record.samples <= PERIOD_S + 1
            assert all(record.low[name] <= record.mean[name] <= record.high[name] for name in record.mean)
        assert [gap for name in names for gap in live.gaps(name)] == []


async def test_recording_gets_what_it_selects_until_it_stops(rig: Rig, hosts: Path) -> None:
    names = [node.name for node in rig.nodes]
    async with started_fleet(hosts) as live:
        await live.until(lambda: comes_as(live, Gpu, names, digests=True))
        live.fleet.want("recording a", *_wants_of(Selection(nodes=(names[1],))))
        await live.until(lambda: comes_as(live, Gpu, names[1:2], digests=False))
        assert all(newest(live, Gpu, name).is_digest for name in names if name != names[1])
        live.fleet.want("recording a", *_wants_of(None))
        await live.until(lambda: comes_as(live, Gpu, names, digests=True))


async def test_agent_is_ordered_again_after_a_reconnect(rig: Rig, hosts: Path) -> None:
    name = rig.nodes[0].name
    async with started_fleet(hosts) as live:
        await live.until(lambda: comes_as(live, Gpu, [name], digests=True))
        agent = newest(live, Gpu, name).agent
        await live.fleet.reconnect(name)
        await live.until(lambda: getattr(newest(live, Gpu, name), "agent", agent) != agent)
        await live.until(lambda: comes_as(live, Gpu, [name], digests=True))


def ticks_at_once(fleet: LiveFleet, node: str) -> int:
    """The most ticks of a node that arrived in one read."""
    arrivals = Counter(record.rx for record in fleet.records if type(record) is AgentCost and record.node == node)
    return max(arrivals.values(), default=0)


async def test_idle_node_of_a_hidden_cluster_sends_several_ticks_at_once_and_is_never_silent(
    rig: Rig, hosts: Path
) -> None:
    names = [node.name for node in rig.nodes]
    async with started_fleet(hosts) as live:
        live.fleet.in_background(True)
        await live.until(lambda: all(ticks_at_once(live, name) >= 4 for name in names))
        live.fleet.in_background(False)
        await live.until(lambda: not any(live.fleet.links[name].hold_s for name in names))
        del live.records[:]
        await live.until(lambda: all(len({r.rx for r in live.records if r.node == name}) > 6 for name in names))

        assert all(ticks_at_once(live, name) < 3 for name in names)
        assert [gap for name in names for gap in live.gaps(name)] == []
        assert all(live.state(name) == "ok" for name in names)


async def test_lost_node_of_a_hidden_cluster_is_noticed(rig: Rig, hosts: Path, needs_namespaces: None) -> None:
    node = rig.nodes[0]
    async with started_fleet(hosts) as live:
        live.fleet.in_background(True)
        await live.until(lambda: ticks_at_once(live, node.name) >= 4)
        assert live.history(node.name) == ["expected", "connecting", "ok"]
        node.down()
        try:
            shown_s = await live.until(lambda: live.state(node.name) == "lost")
        finally:
            node.up()
        print(f"\nloss of a node in the background noticed after {shown_s:.2f} s")
        await live.until(lambda: live.state(node.name) == "ok")
        await live.until(lambda: live.fleet.links[node.name].hold_s > 0)
        assert all(live.history(other.name) == ["expected", "connecting", "ok"] for other in rig.nodes[1:])


async def test_without_the_option_every_sample_is_sent(hosts: Path) -> None:
    async with started_fleet(hosts, agent_digest_s=0) as live:
        await live.sampled()
        await live.until(lambda: sum(type(record) is Gpu for record in live.records) > 40)

        assert not any(record.is_digest for record in live.records if isinstance(record, Gpu | Host))


def test_stream_of_metrics_has_every_sample(hosts: Path) -> None:
    from program import batch

    run = batch(hosts, "--for", "8s", "--metrics", "gpu", "--quiet")

    assert run.status == 0, run.stderr
    assert '"samples":1' in run.stdout and '"period_s":3' not in run.stdout
    assert DIGESTED >= GPU_ONLY
