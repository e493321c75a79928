"""All nodes of a Slurm job over one srun, with Debian's Slurm on 16 nodes of the rig."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from live_fleet import LiveFleet
from program import batch
from rig import Node, Rig
from slurm import Slurm, missing

from gconsole.core.bus import Hub
from gconsole.core.control import CaptureRequest, new_capture
from gconsole.core.store import Store
from gconsole.fleet.fleet import Fleet
from gconsole.fleet.scheduler_jobs import load_configuration
from gconsole.records import Log, NodeState

pytestmark = [pytest.mark.usefixtures("needs_namespaces"), pytest.mark.skipif(bool(missing()), reason=missing())]

NODES = 16
JOB = f"""#!/bin/sh
export LOCAL_RANK=0 WORLD_SIZE={NODES}
srun --overlap --nodes={NODES} --ntasks={NODES} sh -c 'RANK=$SLURM_PROCID exec python3 -c "
def wait_for_the_others():
    import time; time.sleep(3600)
wait_for_the_others()"'
"""


@pytest.fixture(scope="module")
def rig(needs_namespaces: None) -> Iterator[Rig]:
    with Rig(nodes=NODES) as rig:
        yield rig


@pytest.fixture(scope="module")
def slurm(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with Slurm(rig.nodes, tmp_path_factory.mktemp("slurm") / "site") as slurm:
        yield slurm


@pytest.fixture(scope="module")
def job(slurm: Slurm) -> str:
    return slurm.submit(JOB, nodes=NODES)


@asynccontextmanager
async def watched(slurm: Slurm, job: str, monkeypatch: pytest.MonkeyPatch, **flags: object) -> AsyncIterator[LiveFleet]:
    monkeypatch.setenv("PATH", slurm.environment["PATH"])
    config = load_configuration(f"slurm:{job}", {key.replace("_", ".", 1): str(value) for key, value in flags.items()})
    hub, store = Hub(), Store()
    hub.subscribe(store.apply)
    fleet = Fleet(config, hub)
    watching = LiveFleet(fleet, hub, store)
    await fleet.start()
    try:
        yield watching
    finally:
        await fleet.stop()


def steps(slurm: Slurm, job: str) -> list[str]:
    """The steps that gconsole has added to the job."""
    own = {f"{job}.0", f"{job}.batch"}
    return [step for step in slurm.ask("squeue", "--steps", "--noheader", "--format=%i").split() if step not in own]


def processes(node: Node, mark: bytes, env: bytes) -> list[int]:
    """Process ids, on this machine, of the processes on a node whose command line and environment have these bytes."""
    namespace = Path(f"/proc/{node.outer_pid(1)}/ns/pid").stat().st_ino
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            here = (folder / "ns/pid").stat().st_ino == namespace
            if here and mark in (folder / "cmdline").read_bytes() and env in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue  # it has ended
    return found


def relay(node: Node) -> int:
    """The process on a node that is the task of the step, which slurmstepd has started."""
    [pid] = [
        pid for pid in processes(node, b"gconsole-agent", b"SLURM_STEP_ID=")
        if b"slurmstepd" in Path(f"/proc/{parent(pid)}/cmdline").read_bytes()
    ]  # fmt: skip
    return pid


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def losses(fleet: LiveFleet) -> list[Log]:
    return [record for record in fleet.records if isinstance(record, Log) and record.fault == "gateway_lost"]


def failures(fleet: LiveFleet) -> list[tuple[str, NodeState]]:
    return [(record.node, record) for record in fleet.records if isinstance(record, NodeState) and record.error]


def sruns(slurm: Slurm, job: str) -> list[int]:
    """The processes of srun that gconsole has started."""
    return processes(slurm.nodes[0], f"--jobid={job}\0--overlap\0".encode(), b"")


async def test_one_step_samples_and_captures_all_nodes_and_leaves_nothing(
    slurm: Slurm, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(slurm, job, monkeypatch) as fleet:
        await fleet.sampled()
        [step] = steps(slurm, job)
        assert slurm.ask("squeue", f"--steps={step}", "--noheader", "--format=%N").strip() == f"node[01-{NODES}]"
        assert len(fleet.store.nodes) == NODES

        order = CaptureRequest(new_capture())
        result = await fleet.fleet.capture(order)

        assert result.failures == {}
        stacks = fleet.store.captures.get(order.id).stacks
        waiting = {stack.rank for stack in stacks if "wait_for_the_others" in str(stack.frames)}
        assert waiting == set(range(NODES))
        assert len(steps(slurm, job)) == 1
        assert losses(fleet) == []
    for node in slurm.nodes:
        assert "gconsole-agent" not in node.ps()
    assert steps(slurm, job) == []


async def test_killed_task_ends_only_its_node_which_comes_back_over_a_step_of_its_own(
    slurm: Slurm, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(slurm, job, monkeypatch) as fleet:
        await fleet.sampled()
        killed, *others = slurm.nodes
        os.kill(relay(killed), signal.SIGKILL)
        await fleet.until(lambda: fleet.state(killed.name) == "lost")
        [failure] = {str(state.error.text) for name, state in failures(fleet) if name == killed.name}
        assert failure == "the task of the step has ended: Killed"
        await fleet.until(lambda: fleet.state(killed.name) == "ok")
        for node in others:
            assert fleet.history(node.name) == ["expected", "connecting", "ok"], node.name
            assert fleet.gaps(node.name) == []
        assert len(steps(slurm, job)) == 2
        assert losses(fleet) == []


async def test_killed_srun_is_one_finding_and_no_record_is_lost_or_doubled(
    slurm: Slurm, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(slurm, job, monkeypatch, agent_linger_s=60, agent_sample_interval_ms=500) as fleet:
        await fleet.sampled()
        for pid in sruns(slurm, job):
            with contextlib.suppress(ProcessLookupError):  # srun's own child ends with it
                os.kill(pid, signal.SIGKILL)
        await fleet.until(lambda: losses(fleet))
        [loss] = losses(fleet)
        assert loss.subject == f"slurm:{job}"
        assert loss.text.startswith(f"step of slurm:{job}: srun ended with s")
        await fleet.until(lambda: all(fleet.state(node.name) == "ok" for node in slurm.nodes))
        last = len(fleet.records)
        await fleet.until(lambda: len(fleet.records) > last + 20 * NODES)
        assert [log.is_over for log in losses(fleet)] == [False, True]
        await fleet.until(lambda: len(steps(slurm, job)) == 1)
        for node in slurm.nodes:
            [seqs] = fleet.seqs(node.name).values()
            assert seqs == list(range(1, len(seqs) + 1)), node.name
            assert fleet.gaps(node.name) == []


@pytest.mark.full
async def test_cancelled_step_is_one_finding_with_the_reason_and_is_started_again(
    slurm: Slurm, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(slurm, job, monkeypatch) as fleet:
        await fleet.sampled()
        [step] = steps(slurm, job)
        slurm.ask("scancel", step)
        await fleet.until(lambda: any(log.is_over for log in losses(fleet)))
        await fleet.until(lambda: all(fleet.history(node.name)[-2:] == ["lost", "ok"] for node in slurm.nodes))
        cancelled, back = losses(fleet)
        assert f"*** STEP {step} ON node01 CANCELLED" in cancelled.text
        assert back.text == f"slurm:{job}: connected again"
        [again] = steps(slurm, job)
        assert again != step


@pytest.mark.full
async def test_stopped_task_costs_only_its_node_which_gets_another_step(
    slurm: Slurm, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(slurm, job, monkeypatch) as fleet:
        await fleet.sampled()
        *others, stopped = slurm.nodes
        pid = relay(stopped)
        os.kill(pid, signal.SIGSTOP)
        try:
            await fleet.until(lambda: fleet.state(stopped.name) == "lost")
            await fleet.until(lambda: fleet.state(stopped.name) == "ok")
        finally:
            os.kill(pid, signal.SIGCONT)
        for node in others:
            assert fleet.history(node.name) == ["expected", "connecting", "ok"], node.name
        assert losses(fleet) == []


@pytest.mark.full
async def test_node_whose_slurmd_does_not_respond_costs_only_itself(
    slurm: Slurm, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    *others, stopped = slurm.nodes
    daemons = processes(stopped, f"slurmd\0-D\0-N\0{stopped.name}".encode(), b"")
    for pid in daemons:
        os.kill(pid, signal.SIGSTOP)
    try:
        async with watched(slurm, job, monkeypatch) as fleet:
            await fleet.until(lambda: all(fleet.state(node.name) == "ok" for node in others))
            assert fleet.state(stopped.name) in ("connecting", "failed")
            for pid in daemons:
                os.kill(pid, signal.SIGCONT)
            await fleet.until(lambda: fleet.state(stopped.name) == "ok")
    finally:
        for pid in daemons:
            os.kill(pid, signal.SIGCONT)


def test_srun_as_command_of_a_gateway_reaches_the_nodes(rig: Rig, slurm: Slurm, job: str, tmp_path: Path) -> None:
    login, *nodes = rig.nodes[:4]
    (login.folder / "etc-slurm").mkdir()
    shutil.copy(login.folder / "slurm.conf", login.folder / "etc-slurm")
    login.output(["mount", "--bind", f"{login.inside}/etc-slurm", "/etc/slurm"])
    command = f"srun --jobid={job} --overlap --nodes=1 --ntasks=1 --nodelist={{node}}"
    hosts = rig.write_hosts_toml(
        tmp_path / "hosts.toml", only=[node.name for node in nodes],
        nodes={node.name: {"address": None, "port": None} for node in nodes},
        ssh={"gateway": login.address, "gateway_command": command},
    )  # fmt: skip

    run = batch(hosts)

    assert [run.node(node.name)["state"] for node in nodes] == ["ok"] * len(nodes), run.stderr
    assert {run.node(node.name)["hostname"] for node in nodes} == {node.name for node in nodes}
    assert {run.node(node.name)["via"] for node in nodes} == {login.address}
    assert [node.logins() for node in nodes] == [0] * len(nodes)


@pytest.mark.full
async def test_end_of_the_job_is_one_finding_and_final_for_all_nodes(
    slurm: Slurm, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # the last one: no test after it has the job
    async with watched(slurm, job, monkeypatch) as fleet:
        await fleet.sampled()
        slurm.ask("scancel", job)
        names = {node.name for node in slurm.nodes}

        def ended() -> set[str]:
            return {name for name, state in failures(fleet) if state.error and state.error.name == "job_ended"}

        await fleet.until(lambda: ended() == names)
        assert {log.subject for log in losses(fleet)} == {f"slurm:{job}"}
        cancelled, final = losses(fleet)
        assert "CANCELLED" in cancelled.text
        assert final.text.startswith(f"step of slurm:{job}: scheduler: ")
