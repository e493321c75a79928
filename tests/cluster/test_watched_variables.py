"""Watched variables of real jobs: named ones are read from the frames of each rank as it runs, nothing else leaves."""

import json
from pathlib import Path

from jobs import start_ring, start_torchrun
from live_fleet import Watched, watched
from program import batch
from rig import Rig

from gconsole.records import RankStat

WATCH = {"locals": ["step", "rank", "nobody_has_this"], "every_s": 1}


def stats_of(watch: Watched) -> dict[int, RankStat]:
    return {now.rank.rank: now.stat for now in watch.store.ranks.values() if now.stat and now.stat.watched}


async def steps_go_on(watch: Watched, ranks: int) -> dict[int, RankStat]:
    """The stats of all ranks, once each has been read twice."""
    await watch.until(lambda: len(stats_of(watch)) == ranks, 60.0)
    first = stats_of(watch)
    await watch.until(lambda: all(one.watched_at != first[rank].watched_at for rank, one in stats_of(watch).items()))
    now = stats_of(watch)
    assert all(now[rank].step > first[rank].step for rank in first), "steps advance while the job is watched"
    return now


async def test_the_step_of_every_rank_of_a_torchrun_job_is_read_while_it_runs(
    rig: Rig, tmp_path: Path, needs_torch: None
) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[rig.nodes[0].name, rig.nodes[1].name], watch=WATCH)
    with start_torchrun(rig, rig.nodes[:2], nproc_per_node=2) as job:
        job.wait_ready()
        async with watched(hosts) as watch:
            await watch.sampled()
            now = await steps_go_on(watch, 4)
    assert {rank: stat.watched["rank"] for rank, stat in now.items()} == {0: 0, 1: 1, 2: 2, 3: 3}
    assert all(set(stat.watched) == {"step", "rank"} for stat in now.values()), "only what was asked for leaves a node"
    costs = [node.cost.watch_cpu_pct for node in watch.store.nodes.values()]
    assert all(cost is not None and cost > 0 for cost in costs), "what it costs is told"


async def test_without_watch_nothing_is_read(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[rig.nodes[0].name])
    with start_ring(rig, rig.nodes[:1], nproc_per_node=1) as job:
        job.wait_ready()
        async with watched(hosts) as watch:
            await watch.sampled()
            await watch.until(lambda: watch.store.ranks and all(now.stat for now in watch.store.ranks.values()))
            assert not stats_of(watch)
            assert watch.store.nodes[rig.nodes[0].name].cost.watch_cpu_pct is None


def test_the_report_of_a_headless_run_has_them_too(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[rig.nodes[0].name], watch=WATCH)
    with start_ring(rig, rig.nodes[:1], nproc_per_node=2) as job:
        job.wait_ready()
        run = batch(hosts, "--for", "12s", "--records", tmp_path / "records")
    found = {line["rank"]: line for line in run.report["ranks"]}
    assert {rank: line["watched"]["rank"] for rank, line in found.items()} == {0: 0, 1: 1}
    assert all(line["step"] == line["watched"]["step"] > 0 for line in found.values())
    kept = [json.loads(line) for line in (tmp_path / "records").read_text().splitlines()]
    names = {name for one in kept if one["kind"] == "rank_stat" for name in one.get("watched") or ()}
    assert names == {"step", "rank"}
