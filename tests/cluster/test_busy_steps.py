"""A rank that is late once a step is found behind many collectives; healthy jobs have no straggler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs import find_torch_python, gloo_environment, start_plain
from jobs.launch import FOLDER
from program import batch
from rig import Rig

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("needs_namespaces", "needs_torch")]


def skew(rig: Rig, folder: Path, **variables: str) -> tuple[list[Any], int]:
    """Stragglers of a job of four ranks on two nodes, and how many collectives were analysed."""
    hosts = rig.write_hosts_toml(folder / "hosts.toml", only=[node.name for node in rig.nodes[:2]])
    env = {**gloo_environment(rig), "WORKER_SERVER": "1", "TORCH_FR_BUFFER_SIZE": "2000", **variables}
    script = FOLDER / "gloo_slow_rank.py"
    with start_plain(rig, script, rig.nodes[:2], 2, env, python=str(find_torch_python())) as job:
        job.wait_ready()
        run = batch(hosts, "--skew", "--for", "8s", deadline_s=150.0)
    found = [finding for finding in run.report["findings"] if finding["id"] in ("straggler", "desync")]
    return found, max((line["sync_points"] for line in run.report["skew"]["ranks"]), default=0)


@pytest.mark.parametrize("collectives", [1, 8, 25, 100])
def test_rank_late_once_a_step_is_the_only_straggler(rig: Rig, tmp_path: Path, collectives: int) -> None:
    findings, analysed = skew(rig, tmp_path, SLOW="loader", RANK_SLOW="2", COLLECTIVES=str(collectives))

    assert [(finding["id"], finding["culprits"]) for finding in findings] == [("straggler", ["rank 2"])]
    if collectives > 1:
        assert analysed > 64, "more than the newest of the group"


@pytest.mark.parametrize("collectives", [1, 25])
def test_healthy_job_has_no_straggler(rig: Rig, tmp_path: Path, collectives: int) -> None:
    findings, _ = skew(rig, tmp_path, COLLECTIVES=str(collectives))

    assert findings == []
