"""A script over HTTP: start a real job, detect its hang, find the blocking rank, stop the job."""

from __future__ import annotations

from pathlib import Path

import pytest
from api_client import Api, running_api, until
from fixtures import FEW_PROBES
from jobs import TORCH_ENVIRONMENT, find_torch_python
from rig import Rig
from run_command import processes_of

pytestmark = pytest.mark.usefixtures("needs_torch")

#: Every rank steps an all_reduce. Once the file `break` exists, rank 2 sleeps, and the others wait for it.
TRAIN = """
import os, time
import torch, torch.distributed as dist

def save_checkpoint():
    while True:
        time.sleep(3600)

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(1_000_000):
    total = torch.ones(8)
    dist.all_reduce(total)
    print(f"step {step} sum {total[0]:.0f}", flush=True)
    if rank == 2 and os.path.exists("break"):
        save_checkpoint()
    time.sleep(0.05)
"""
RANKS = 4


# torchrun imports torch as well; tests/jobs covers it in `make test`.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("launcher", ["env", pytest.param("torchrun", marks=pytest.mark.full)])
def test_job_is_planned_started_diagnosed_and_stopped_over_http(rig: Rig, tmp_path: Path, launcher: str) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", clock=FEW_PROBES)
    for node in rig.nodes:
        (node.folder / "train.py").write_text(TRAIN)
        (node.folder / "break").unlink(missing_ok=True)  # of the other launcher's test
    with running_api(hosts, tmp_path, "--allow-run", "--rate", "1000") as api:
        api.until_connected(4)
        job_request = {
            "command": [str(find_torch_python()), "train.py"], "nodes": 4, "procs_per_node": RANKS // 4,
            "workdir": rig.nodes[0].inside, "env": dict(TORCH_ENVIRONMENT), "launcher": launcher,
        }  # fmt: skip
        plan = api.post("/jobs/plan", job_request)
        assert [node["node"] for node in plan["nodes"]] == ["node1", "node2", "node3", "node4"]
        assert plan["world_size"] == RANKS and "train.py" in plan["nodes"][0]["commands"][0]
        by_default = api.post("/jobs/plan", {name: value for name, value in job_request.items() if name != "launcher"})
        assert "torch.distributed.run" in by_default["nodes"][0]["commands"][0]
        assert processes_of(rig, "train.py") == [], "a plan starts nothing"
        refused = api.request("POST", "/jobs/plan", {**job_request, "nodes": 5})
        assert refused.status == 409 and refused.json["change"], "a valid alternative"

        started = api.post("/jobs", job_request, status=201)
        job = started["job"]
        assert started["seen"]["state"] in ("dispatching", "running"), "the last node may not have started yet"
        until(lambda: f"[0-{RANKS - 1}] step 3 sum {RANKS}" in api.get(f"/jobs/{job}/logs?contains=step 3 ".replace(
            " ", "%20"))["lines"], 240)  # fmt: skip
        until(lambda: (ranks := api.get(f"/jobs/{job}")["ranks"]) and ranks["ranks_found"] == list(range(RANKS)))
        assert [rank["rank"] for rank in api.get(f"/ranks?job={job}")["ranks"]] == list(range(RANKS))
        assert f'gconsole_job_ranks_found{{job="{job}"}} {RANKS}' in api.request("GET", "/metrics").body.decode()

        (rig.nodes[2].folder / "break").touch()
        until(lambda: _output_stopped(api, job))
        [verdict] = api.post("/diagnose")["verdicts"]
        assert (verdict["state"], verdict["kind"]) == ("hung", "rank_missing"), verdict
        [culprit] = verdict["culprits"]
        assert (culprit["rank"], culprit["node"]) == (2, "node3")
        assert culprit["site"]["function"] == "save_checkpoint", "and why"
        [finding] = [line for line in api.get("/findings?open=true")["findings"] if line["id"] == "rank_missing"]
        assert finding["culprits"] == ["rank 2"]
        assert 'gconsole_findings{id="rank_missing",severity="error"} 1' in api.request("GET", "/metrics").body.decode()

        stopped = api.post(f"/jobs/{job}/stop", {"grace_s": 3})
        assert stopped["ended"] is True and [node["left"] for node in stopped["nodes"]] == [[]] * 4
        assert processes_of(rig, "train.py") == []
        until(lambda: api.get(f"/jobs/{job}")["state"] == "stopped")
        assert api.request("POST", f"/jobs/{job}-x/stop", {}).status == 404
    assert processes_of(rig, "supervisor.py") == []


def test_stop_order_for_an_offline_node_stays_pending_until_it_returns(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", clock=FEW_PROBES)
    with running_api(hosts, tmp_path, "--allow-run") as api:
        api.until_connected(4)
        job_request = {"command": ["sleep", "987"], "nodes": 2, "procs_per_node": 1, "launcher": "env",
                       "workdir": rig.nodes[0].inside}  # fmt: skip
        started = api.post("/jobs", job_request, status=201)
        offline = next(node for node in rig.nodes if node.name == started["seen"]["nodes"][1]["node"])
        offline.down()
        try:
            until(lambda: next(line for line in api.get("/nodes")["nodes"] if line["about"]["node"] == offline.name)
                  ["about"]["state"] != "ok")  # fmt: skip
            stopped = api.post(f"/jobs/{started['job']}/stop", {"grace_s": 1})
            assert (stopped["ended"], stopped["pending"]) == (False, [offline.name])
        finally:
            offline.up()
        until(lambda: api.get("/status")["nodes"]["ok"] == 4)
        stopped = api.post(f"/jobs/{started['job']}/stop", {"grace_s": 1})
        assert (stopped["ended"], stopped["pending"]) == (True, [])
    assert processes_of(rig, "sleep 987") == []


def _output_stopped(api: Api, job: str) -> bool:
    """Whether its output has stopped: two requests return the same last line of every rank."""
    pages = [api.get(f"/jobs/{job}/logs?tail=1&fold=false")["lines"] for _ in range(2)]
    return pages[0] == pages[1] and len(pages[0]) >= RANKS and len({line.split("] ")[1] for line in pages[0]}) == 1
