"""Watched variables of real jobs: named ones are read from the frames of running ranks, and nothing else is sent."""

import json
from pathlib import Path

from jobs import start_ring
from live_fleet import LiveFleet, started_fleet
from program import batch
from rig import Rig

from gconsole.records import RankStat

WATCH = {"locals": ["step", "rank", "nobody_has_this"], "every_s": 1}


def stats_of(watch: LiveFleet) -> dict[int, RankStat]:
    return {now.rank.rank: now.stat for now in watch.store.ranks.values() if now.stat and now.stat.watched}


async def test_no_variables_are_read_without_a_watch_setting(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[rig.nodes[0].name])
    with start_ring(rig, rig.nodes[:1], nproc_per_node=1) as job:
        job.wait_ready()
        async with started_fleet(hosts) as watch:
            await watch.sampled()
            await watch.until(lambda: watch.store.ranks and all(now.stat for now in watch.store.ranks.values()))
            assert not stats_of(watch)
            assert watch.store.nodes[rig.nodes[0].name].cost.watch_cpu_pct is None


def test_batch_report_has_watched_variables_of_every_rank(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[rig.nodes[0].name], watch=WATCH)
    with start_ring(rig, rig.nodes[:1], nproc_per_node=2) as job:
        job.wait_ready()
        run = batch(hosts, "--for", "12s", "--records", tmp_path / "records")
    lines = {line["rank"]: line for line in run.report["ranks"]}
    assert {rank: line["watched"]["rank"] for rank, line in lines.items()} == {0: 0, 1: 1}
    assert all(line["step"] == line["watched"]["step"] > 0 for line in lines.values())
    kept = [json.loads(line) for line in (tmp_path / "records").read_text().splitlines()]
    names = {name for record in kept if record["kind"] == "rank_stat" for name in record.get("watched") or ()}
    assert names == {"step", "rank"}
