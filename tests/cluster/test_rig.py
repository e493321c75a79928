"""The rig in every mode: the features that product tests rely on."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import asyncssh
import pytest
import tomli
from jobs import start_ring
from rig import Rig, RigUnavailable, wait_until

#: Tests of the tests: every test of a cluster uses the rig.
pytestmark = pytest.mark.full
HERE = str(Path(__file__).parent)
DEADLINE_S = 60


def leftovers_of(pid: int) -> list[str]:
    """Everything on this machine with the prefix of rigs of process `pid`."""
    prefix = f"gct{pid}"
    leftovers = [str(path) for path in Path(tempfile.gettempdir()).glob(f"{prefix}*")]
    leftovers += [str(path) for path in Path("/run/netns").glob(f"{prefix}*")]
    leftovers += [str(path) for path in Path("/sys/class/net").glob(f"{prefix}*")]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if prefix.encode() in text:
            leftovers.append(f"process {folder.name}: {text[:200]}")
    return leftovers


@pytest.mark.usefixtures("needs_openssh")
def test_ssh_reaches_every_node_and_the_closed_rig_leaves_no_traces(each_mode: str) -> None:
    with Rig(nodes=2, mode=each_mode) as rig:
        for node in rig.nodes:
            done = rig.ssh(node, "echo $((6 * 7)); echo aside >&2; exit 3")
            assert (done.returncode, done.stdout, done.stderr) == (3, "42\n", "aside\n")
            assert node.logins() == 1
        rig.nodes[0].run(["sleep", "1000"])
        assert leftovers_of(os.getpid())
    assert leftovers_of(os.getpid()) == []


def test_failing_block_does_not_wait_for_a_process_that_runs_without_end(each_mode: str) -> None:
    with Rig(nodes=1, mode=each_mode) as rig, pytest.raises(ZeroDivisionError):  # noqa: SIM117
        with rig.nodes[0].run(["sleep", "1000"]):
            raise ZeroDivisionError


async def test_a_command_over_ssh_reads_its_stdin_to_the_end(each_mode: str) -> None:
    with Rig(nodes=1, mode=each_mode) as rig:
        node = rig.nodes[0]
        async with asyncssh.connect(
            node.address,
            node.port,
            username=rig.user,
            client_keys=[str(rig.key)],
            known_hosts=str(rig.known_hosts),
            config=[],
        ) as connection:
            done = await connection.run("wc -c", input="x" * 300_000)
            assert done.stdout.strip() == "300000"


async def test_command_stdin_closes_when_the_ssh_client_aborts(each_mode: str) -> None:
    with Rig(nodes=1, mode=each_mode) as rig:
        node = rig.nodes[0]
        connection = await asyncssh.connect(
            node.address,
            node.port,
            username=rig.user,
            client_keys=[str(rig.key)],
            known_hosts=str(rig.known_hosts),
            config=[],
        )
        process = await connection.create_process(f"echo started; cat; touch {node.inside}/ended")
        assert await process.stdout.readline() == "started\n"
        connection.abort()
        await asyncio.to_thread(wait_until, (node.folder / "ended").exists)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_rig_of_a_killed_owner_leaves_no_traces(each_mode: str, number: signal.Signals) -> None:
    script = f"""
import signal, sys
sys.path.insert(0, {HERE!r})
from rig import Rig
with Rig(nodes=2, mode={each_mode!r}) as rig:
    rig.nodes[0].run(["sleep", "1000"])
    print("open", flush=True)
    signal.pause()
"""
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert owner.stdout.readline() == "open\n"
    owner.send_signal(number)
    assert owner.wait(DEADLINE_S) == -number
    owner.stdout.close()
    if number == signal.SIGKILL:
        with Rig(nodes=0, mode=each_mode):  # the next rig cleans up
            pass
    assert leftovers_of(owner.pid) == []


def test_hosts_toml_lists_every_node_and_accepts_overrides(each_mode: str) -> None:
    with Rig(nodes=2, mode=each_mode) as rig:
        text = rig.hosts_toml(
            ssh={"host_key_policy": "accept-new"},
            nodes={"node2": {"python": "python3.6"}},
            extra="[console]\nhistory_bytes = 1000000",
        )
        read = tomli.loads(text)
    assert read["ssh"]["host_key_policy"] == "accept-new"
    assert [entry["hosts"] for entry in read["nodes"]] == ["node1", "node2"]
    assert read["nodes"][1]["python"] == "python3.6"
    assert read["console"] == {"history_bytes": 1000000}
    assert ("process_filter" in read["nodes"][0]) == (each_mode != "namespaces")


def test_processes_of_a_node_are_those_started_there(each_mode: str) -> None:
    with Rig(nodes=2, mode=each_mode) as rig:
        first, second = rig.nodes
        before = first.processes()
        job = first.run(["sleep", "1000"])
        # right after its exec a process may have an empty environment
        wait_until(lambda: set(first.processes()) - set(before))
        (pid,) = set(first.processes()) - set(before)
        assert first.outer_pid(pid) == job.pid
        assert "sleep 1000" in first.ps() and "sleep 1000" not in second.ps()
        first.kill(pid, signal.SIGTERM)
        assert job.wait(DEADLINE_S) == -signal.SIGTERM


def test_the_ring_job_runs_over_two_nodes(each_mode: str) -> None:
    with Rig(nodes=2, mode=each_mode) as rig, start_ring(rig, nproc_per_node=2) as job:
        ranks = job.wait_ready(30)
        assert [(rank.rank, rank.node) for rank in ranks] == [(0, "node1"), (1, "node1"), (2, "node2"), (3, "node2")]
        assert all(rank.pid in rig.node(rank.node).processes() for rank in ranks)
        assert job.stop() == [0, 0, 0, 0]


def test_job_with_a_stopped_rank_is_killed_when_its_context_exits(each_mode: str) -> None:
    with Rig(nodes=1, mode=each_mode) as rig:
        node = rig.nodes[0]
        with start_ring(rig, nproc_per_node=2) as job:
            stopped = job.wait_ready(30)[1]
            node.kill(stopped.pid, signal.SIGSTOP)
        assert stopped.pid not in node.processes()


def test_two_rigs_at_once_do_not_collide(each_mode: str) -> None:
    with Rig(nodes=1, mode=each_mode) as first_rig, Rig(nodes=1, mode=each_mode) as second_rig:
        first, second = first_rig.nodes[0], second_rig.nodes[0]
        assert (first.address, first.port) != (second.address, second.port)
        second.run(["sleep", "1000"])
        assert "sleep" not in first.ps()


def test_unavailable_rig_mode_reports_the_missing_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.detect.TOOL_PATH", "/nonexistent")
    from rig import detect

    detect.missing_for.cache_clear()
    try:
        with pytest.raises(RigUnavailable, match="no OpenSSH"):
            Rig(mode="loopback")
        assert Rig().mode == "asyncssh"
    finally:
        detect.missing_for.cache_clear()
