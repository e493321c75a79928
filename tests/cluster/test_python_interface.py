"""The Python interface on real nodes: tables, captures, verdicts, findings, SQL, recordings; nothing is left."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from jobs import start_ring
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from rig import Rig

import gconsole

MODEL = r"p2p wait_for_neighbour (^|/)blocked_ranks\.py$"
DEADLINE_S = 60.0


@pytest.fixture
def hosts(rig: Rig, tmp_path: Path) -> Path:
    return rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name for node in rig.nodes[:2]])


@pytest.fixture(scope="module")
def hung_job(rig: Rig) -> Iterator[Any]:
    with start_ring(rig, rig.nodes[:2], nproc_per_node=2, script="blocked_ranks.py", env={"BLOCKED_3": "lock"}) as job:
        yield job.wait_ready()


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def agents_of(rig: Rig) -> list[str]:
    return [line for node in rig.nodes[:2] for line in node.ps().splitlines() if "gconsole" in line]


def test_tables_captures_and_verdict_of_a_hung_job(rig: Rig, hosts: Path, hung_job: Any) -> None:
    with gconsole.connect(str(hosts), settings={"hang.models": MODEL, "agent.simulate_gpus": "2"}) as fleet:
        nodes, ranks, gpus = fleet.nodes, fleet.ranks, fleet.gpus
        assert nodes["state"].tolist() == ["ok", "ok"]
        assert nodes["t"].dtype == "datetime64[ns, UTC]"
        assert ranks[["rank", "pid"]].values.tolist() == [[rank.rank, rank.pid] for rank in hung_job]
        assert (len(gpus), gpus["simulated"].all(), gpus.attrs["units"]["power_w"]) == (4, True, "W")

        capture = fleet.capture(samples=2)
        assert capture.ranks == [0, 1, 2, 3]
        assert "take_twice" in capture.tree
        assert "take_twice" in capture.to_folded()
        frame = capture.df()
        assert set(frame.loc[frame["function"] == "take_twice", "rank"]) == {3}
        assert set(frame["sample"]) == {0, 1}
        assert fleet.capture(samples=1, ranks=[3]).ranks == [3]

        verdict = fleet.diagnose()
        assert (verdict.state, verdict.kind, [culprit.rank for culprit in verdict.culprits]) == (
            "hung", "rank_missing", [3],
        )  # fmt: skip
        assert "with lock, lock:" in verdict._repr_html_()
        assert verdict.df()[["rank", "source"]].values.tolist() == [[3, "with lock, lock:"]]
        with pytest.raises(gconsole.NothingSelected, match="no job has llama in its name"):
            fleet.diagnose(jobs=["llama"])

        counts = fleet.sql("SELECT node, count(*) AS samples, max(t) AS t FROM gpu GROUP BY node ORDER BY node").df()
        assert counts["node"].tolist() == nodes["node"].tolist()
        assert (pd.Timestamp.now("UTC") - counts["t"].min()) < pd.Timedelta(minutes=2)
    until(lambda: not agents_of(rig))


def test_findings_come_to_a_callback_and_an_iterator(hosts: Path, hung_job: Any) -> None:
    received: list[Any] = []
    settings = {"hang.models": MODEL, "watch.stall_s": "5"}
    with gconsole.connect(str(hosts), settings=settings) as fleet:
        stream = fleet.watch(on_finding=received.append)
        iterated = next(finding for finding in fleet.watch(timeout_s=DEADLINE_S) if finding.id == "rank_missing")
        assert iterated.culprits == ("rank 3",)
        until(lambda: any(finding.id == "rank_missing" for finding in received))
        stream.stop()
        stream.join(DEADLINE_S)
        assert "rank_missing" in fleet.findings["id"].tolist()

        def fail(finding: Any) -> None:
            raise RuntimeError(finding.id)

        failing = fleet.watch(on_finding=fail)
        with pytest.raises(RuntimeError):
            failing.join(DEADLINE_S)


def test_session_is_recorded_and_read_meanwhile(hosts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCONSOLE_SESSIONS_FOLDER", str(tmp_path / "sessions"))
    with gconsole.connect(str(hosts)) as fleet:
        with fleet.record("night") as path:
            assert path == str(tmp_path / "sessions" / "night")
            night = gconsole.open("night")
            assert night.is_recording
            until(lambda: len(night.df("host")) >= 4)
            assert set(night.at("100%").nodes["state"]) == {"ok"}
        assert not night.is_recording
        with pytest.raises(gconsole.SessionError, match="valid session name"), fleet.record("../night"):
            pass


async def test_works_inside_a_running_event_loop_and_as_asyncio(hosts: Path) -> None:
    with gconsole.connect(str(hosts)) as fleet:  # as in a cell of a notebook, whose kernel runs a loop
        assert len(fleet.nodes) == 2
    async with gconsole.connect_async(str(hosts)) as fleet:
        assert fleet.nodes["state"].tolist() == ["ok", "ok"]
        result = await fleet.sql("SELECT count(DISTINCT node) AS nodes FROM host")
        assert list(result.rows()) == [{"nodes": 2}]
    fleet = await gconsole.connect_async(str(hosts))
    await asyncio.gather(fleet.close(), fleet.close())


def test_closed_fleet_says_so_and_leaves_no_thread(hosts: Path) -> None:
    before = set(threading.enumerate())
    fleet = gconsole.connect(str(hosts))
    fleet.close()
    fleet.close()
    with pytest.raises(gconsole.GconsoleError, match=r"closed; connect again: gconsole\.connect"):
        fleet.nodes  # noqa: B018
    assert set(threading.enumerate()) <= before
    assert "closed" in repr(fleet)


def test_script_that_ends_without_closing_leaves_no_agent(rig: Rig, hosts: Path) -> None:
    script = (
        f"import gconsole\nfleet = gconsole.connect({str(hosts)!r})\nprint(len(fleet.nodes))\nraise SystemExit(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "2\n", "")
    until(lambda: not agents_of(rig))


def test_forked_child_cannot_use_the_fleet_of_its_parent(hosts: Path) -> None:
    with gconsole.connect(str(hosts)) as fleet:
        child = os.fork()
        if child == 0:
            try:
                fleet.nodes  # noqa: B018
            except gconsole.GconsoleError as error:
                os._exit(7 if "parent" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert len(fleet.nodes) == 2


def test_unreachable_target_is_an_error_with_the_reason_and_a_remedy(rig: Rig, hosts: Path, tmp_path: Path) -> None:
    with pytest.raises(gconsole.NoNodeReached, match=r"no node was reached\n.*try:"):
        gconsole.connect(str(hosts), settings={"ssh.port": "9"}, timeout_s=20)
    with pytest.raises(gconsole.ConfigError, match=r"did you mean ssh\.user"):
        gconsole.connect(str(hosts), settings={"ssh.usr": "ops"})
    with pytest.raises(gconsole.ConfigError, match=r"nosuch\.toml"):
        gconsole.connect(str(tmp_path / "nosuch.toml"))


async def test_model_context_protocol_on_live_nodes_names_the_blocking_rank(hosts: Path, hung_job: Any) -> None:
    argv = ["-m", "gconsole", "mcp", str(hosts), "--set", f"hang.models={MODEL}"]
    server = StdioServerParameters(command=sys.executable, args=argv, env=dict(os.environ))

    async def text_of(client: Client, tool: str, **arguments: Any) -> str:
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        return result.content[0].text

    async with Client(server) as client:
        assert "2/2 nodes connected" in await text_of(client, "status")
        first = await text_of(client, "verdict")  # a stall may have been diagnosed meanwhile
        assert "call verdict with diagnose = true" in first or "undecided" in first or "rank_missing" in first
        verdict = await text_of(client, "verdict", diagnose=True)
        assert "rank_missing" in verdict and "with lock, lock:" in verdict
        assert "take_twice" in await text_of(client, "stacks")
        assert "kernel" in await text_of(client, "checks", max_tokens=20_000)
        rows = await text_of(client, "sql", query="SELECT count(DISTINCT rank) AS n FROM rank")
        assert "4" in rows
