"""Watched variables of real jobs: named ones are read from the frames of running ranks, and nothing else is sent."""

import json
import re
from pathlib import Path

import pytest
from jobs import TORCH_ENVIRONMENT, start_ring, start_torchrun
from jobs.launch import FOLDER
from live_fleet import LiveFleet, started_fleet
from program import batch, gconsole
from rig import Rig

from gconsole.config import load
from gconsole.records import RankStat

SQL_PAGE = Path(__file__).parents[2] / "docs/guide/sql.md"
TEXTBOOK = ["step", "running_loss", "loss", "self.state.global_step", "Trainer.state.loss"]
WATCH = {"locals": ["step", "rank", "nobody_has_this"], "every_s": 1}


def stats_of(watch: LiveFleet) -> dict[int, RankStat]:
    return {now.rank.rank: now.stat for now in watch.store.ranks.values() if now.stat and now.stat.watched}


async def test_no_variables_are_read_without_a_watch_setting(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[rig.nodes[0].name], watch={"sample_stacks": False})
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


async def test_changed_watch_is_followed_by_running_agents_without_a_reconnect(rig: Rig, tmp_path: Path) -> None:
    node = rig.nodes[0].name
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node])
    newer = rig.write_hosts_toml(tmp_path / "newer.toml", only=[node], watch=WATCH)
    with start_ring(rig, rig.nodes[:1], nproc_per_node=2) as job:
        job.wait_ready()
        async with started_fleet(hosts) as watch:
            await watch.sampled()
            agent = watch.fleet.links[node].agent_id
            changes = await watch.fleet.apply(load(str(newer), environ={}))
            assert changes.followed == ("watch.every_s", "watch.locals")
            await watch.until(lambda: len(stats_of(watch)) == 2)
            first = stats_of(watch)
            await watch.until(lambda: all(stats_of(watch)[rank].step > first[rank].step for rank in first))
            await watch.fleet.apply(load(str(hosts), environ={}))
            await watch.until(lambda: not stats_of(watch))
            assert watch.fleet.links[node].agent_id == agent
            assert watch.history(node) == ["expected", "connecting", "ok"]


@pytest.mark.usefixtures("needs_torch")
def test_loss_query_of_the_guide_runs_on_the_textbook_loop(rig: Rig, tmp_path: Path) -> None:
    watch = {"locals": TEXTBOOK, "every_s": 1}
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[rig.nodes[0].name], watch=watch)
    env = {**TORCH_ENVIRONMENT, "LIGHT_TORCH": "launchers"}
    records = tmp_path / "records"
    with start_torchrun(rig, rig.nodes[:1], nproc_per_node=2, script=FOLDER / "textbook.py", env=env) as job:
        job.wait_ready()
        run = batch(hosts, "--for", "12s", "--records", records)
    for line in run.report["ranks"]:
        assert line["watched"]["loss"] == line["watched"]["Trainer.state.loss"] == "tensor"
        assert line["step"] == line["watched"]["step"]
        assert line["watched"]["self.state.global_step"] >= line["step"]
    [query] = re.findall(r'^gconsole query night "(.*running_loss.*)"$', SQL_PAGE.read_text(), re.MULTILINE)
    answer = gconsole("query", records, query, "--format", "json")
    assert answer.status == 0, answer.stderr
    losses = [row["loss"] for row in json.loads(answer.stdout) if row["rank"] == 0 and row["loss"] is not None]
    assert len(losses) > 3
    assert losses == sorted(losses)
    assert losses[0] > 0
    answer = gconsole("query", records, query.replace("running_loss", "loss"), "--format", "json")
    assert answer.status == 0, answer.stderr
    assert {row["loss"] for row in json.loads(answer.stdout)} == {None}
