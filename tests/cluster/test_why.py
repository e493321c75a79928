"""`gconsole why` on real jobs: the slow rank and its call are named; healthy jobs have no difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs import find_torch_python, gloo_environment, start_plain
from jobs.launch import FOLDER
from program import gconsole
from rig import Rig

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("needs_namespaces", "needs_torch")]


#: DistributedDataParallel imports what the light torch of the other jobs leaves out.
DDP = {"DDP": "1", "PYTHONPATH": ""}


def why(rig: Rig, folder: Path, variables: dict[str, str], *arguments: object) -> str:
    """The answer on a job of four ranks on two nodes."""
    hosts = rig.write_hosts_toml(folder / "hosts.toml", only=[node.name for node in rig.nodes[:2]])
    env = {**gloo_environment(rig), **variables}
    script = FOLDER / "gloo_slow_rank.py"
    with start_plain(rig, script, rig.nodes[:2], 2, env, python=str(find_torch_python())) as job:
        job.wait_ready()
        run = gconsole("why", hosts, *arguments, deadline_s=150.0)
    assert run.status == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize(("slow", "function"), [("loader", "decode_images"), ("compute", "log_metrics")])
def test_slow_rank_and_its_call_are_named(rig: Rig, tmp_path: Path, slow: str, function: str, rank: int) -> None:
    answer = why(rig, tmp_path, {"SLOW": slow, "RANK_SLOW": str(rank), "LATE_S": "0.05"})

    assert f"rank {rank} against its peers" in answer
    assert f"of the time in {function}" in answer  # or in a generator expression of it


def test_rank_that_waits_for_the_network_is_named_with_that_figure(rig: Rig, tmp_path: Path) -> None:
    answer = why(rig, tmp_path, {"SLOW": "network", "RANK_SLOW": "1", "LATE_S": "0.05"})

    assert "rank 1 against its peers" in answer
    assert "of the time in fetch_shard" in answer
    assert "▲ main thread waited for the network: 0." in answer


@pytest.mark.parametrize(("slow", "function"), [("loader", "decode_images"), ("compute", "log_metrics")])
def test_slow_rank_of_ddp_is_named(rig: Rig, tmp_path: Path, slow: str, function: str) -> None:
    answer = why(rig, tmp_path, {"SLOW": slow, "RANK_SLOW": "2", "LATE_S": "0.05", **DDP})

    assert "rank 2 against its peers" in answer
    assert f"of the time in {function}" in answer  # or in a generator expression of it


def test_healthy_ddp_job_has_no_straggler(rig: Rig, tmp_path: Path) -> None:
    assert "no rank waits for the others significantly less" in why(rig, tmp_path, DDP)


@pytest.mark.parametrize("slow", ["healthy", "uneven"])
def test_ranks_that_are_slow_in_turn_or_never_are_not_named(rig: Rig, tmp_path: Path, slow: str) -> None:
    answer = why(rig, tmp_path, {"SLOW": slow})

    assert "no rank waits for the others significantly less than its peers" in answer


def test_slow_job_is_compared_with_an_earlier_good_run(rig: Rig, tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    good.write_text(why(rig, tmp_path, {"SLOW": "healthy"}, "--format", "json"))
    assert len(json.loads(good.read_text())) == 4

    answer = why(rig, tmp_path, {"SLOW": "loader", "RANK_SLOW": "all", "LATE_S": "0.05"}, "--against", good)

    assert "of the time in decode_images (" in answer
