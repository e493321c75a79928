"""Faults of the console itself: acknowledged records are kept, others are sent again."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from program import GCONSOLE

from gconsole.records import AgentCost, Finding, Record

from . import other_console
from .consoles import Recorder, any_instant, until
from .fault_cluster import FaultCluster
from .measurements import Row, write


@contextlib.contextmanager
def recording(
    cluster: FaultCluster, folder: Path, name: str, sessions: Path | None = None, argv: Sequence[object] = (GCONSOLE,)
) -> Iterator[Recorder]:
    """A console that records the first node with a lingering agent."""
    node = cluster.rig.nodes[0]
    hosts = cluster.rig.write_hosts_toml(folder / f"{name}.toml", only=[node.name], agent=cluster.agent)
    recorder = Recorder(hosts, folder, name, argv, sessions=sessions)
    try:
        recorder.wait_for_ticks([node.name])
        any_instant()
        yield recorder
    finally:
        recorder.close()


def finish(
    fault: str,
    recorder: Recorder,
    note: str = "",
    *,
    screen: str = "",
    shown_s: float | None = None,
    healthy_s: float | None = None,
) -> None:
    """Stop the recording, store its measurements, and assert that nothing is missing."""
    count = recorder.stop().count()
    write(Row(fault=fault, lost=count.lost, doubled=count.doubled, gap=count.gap, screen=screen, shown_s=shown_s,
              healthy_s=healthy_s, note=note))  # fmt: skip
    assert (count.lost, count.doubled, count.gap) == (0, 0, 0)
    assert count.agents == 1, "the lingering agent is used again"


def test_killed_console_resumes_its_recording_without_loss(cluster: FaultCluster, tmp_path: Path) -> None:
    node = cluster.rig.nodes[0].name
    with recording(cluster, tmp_path, "killed") as recorder:
        recorder.process.kill()
        recorder.again()
        recorder.wait_for_ticks([node])
        finish("console killed (SIGKILL) and restarted at once", recorder)


@pytest.mark.parametrize("stopped_s", [4, pytest.param(120, marks=[pytest.mark.full, pytest.mark.timeout(400)])])
def test_stopped_console_catches_up_without_loss(cluster: FaultCluster, tmp_path: Path, stopped_s: int) -> None:
    node = cluster.rig.nodes[0].name
    with recording(cluster, tmp_path, "asleep") as recorder:
        recorder.process.send_signal(signal.SIGSTOP)
        time.sleep(stopped_s)  # the fault: a suspended laptop
        woken_ns = time.time_ns()
        recorder.process.send_signal(signal.SIGCONT)
        until(lambda: recorder.read() and recorder.latency.of([node], woken_ns, time.time_ns()), "a tick comes")
        recorder.wait_for([node])
        recorder.wait_for_ticks([node])
        healthy_ns = next(rx for rx, _ in recorder.latency.ticks[node] if rx >= woken_ns)
        finish(f"console stopped {stopped_s} s (SIGSTOP), continued", recorder, healthy_s=(healthy_ns - woken_ns) / 1e9,
             note="healthy with the first tick received")  # fmt: skip


def test_console_out_of_file_descriptors_reconnects_once_it_has_some(cluster: FaultCluster, tmp_path: Path) -> None:
    node = cluster.rig.nodes[0]
    with recording(cluster, tmp_path, "descriptors") as recorder:
        pid, injected_ns = recorder.process.pid, time.time_ns()
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, hard))  # no new descriptors, whatever is closed
        node.stop_sshd(sessions=True)
        node.start_sshd()
        until(lambda: recorder.read().first_message("^no_descriptors: ", injected_ns), "the no_descriptors message")
        message = recorder.tally.first_message("^no_descriptors: ", injected_ns)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        recorder.wait_for([node.name])
        recorder.wait_for_ticks([node.name])
        assert message
        finish("console out of file descriptors while a link is lost", recorder, screen=message.text,
             shown_s=message.after_s(injected_ns))  # fmt: skip


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A 2 MiB file system."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "gcf", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_full_disk_while_recording_loses_no_records(cluster: FaultCluster, tmp_path: Path, small_disk: Path) -> None:
    node = cluster.rig.nodes[0].name
    with recording(cluster, tmp_path, "full", sessions=small_disk) as recorder:
        ballast, injected_ns = small_disk / "ballast", time.time_ns()
        _fill(ballast)
        before = recorder.read().count().records
        time.sleep(4)  # the fault
        assert recorder.read().count().records <= before + 50, "the disk is full"
        ballast.unlink()
        recorder.wait_for_ticks([node], 6)
        line = recorder.tally.first_message("cannot write: the disk is full", injected_ns)
        assert line
        finish(
            "console's disk full while recording, 4 s", recorder, screen=line.text, shown_s=line.after_s(injected_ns)
        )


def _fill(path: Path) -> None:
    with path.open("wb") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), bytes(512))


def modified_console(how: str, folder: Path) -> list[str]:
    """The program with a modified agent in its bundle."""
    return [sys.executable, other_console.__file__, how, str(folder)]


def test_node_whose_clock_is_stepped_stays_connected_with_a_finding(cluster: FaultCluster, tmp_path: Path) -> None:
    node = cluster.rig.nodes[0]
    with recording(cluster, tmp_path, "stepped", argv=modified_console("stepped", tmp_path)) as recorder:
        stamps: list[int] = []
        findings: list[Finding] = []

        def keep(record: Record) -> None:
            if isinstance(record, AgentCost):
                stamps.append(record.t)
            elif isinstance(record, Finding):
                findings.append(record)

        recorder.tally.add_callback(keep)
        recorder.wait_for_ticks([node.name], 4)
        step = node.folder / "step"
        injected_ns = any_instant()
        step.touch()
        try:
            until(lambda: recorder.read() and stamps[-1] > injected_ns + 3590 * 10**9, "stamps are an hour ahead")
            until(lambda: recorder.read() and findings, "the clock step has a finding")
        finally:
            step.unlink()
        until(lambda: recorder.read() and stamps[-1] < time.time_ns() + 10**9, "stamps are right again")
        assert not recorder.tally.dropped(injected_ns), "the node is ok all the time"
        first = findings[0]
        assert (first.id, first.culprits) == ("clock_step", (node.name,))
        finish("node's clock stepped by +1 h, and back", recorder, screen=f"{first.id}: {first.text}",
             shown_s=(first.rx - injected_ns) / 1e9)  # fmt: skip


def test_lingering_agent_of_another_version_is_replaced_with_a_counted_gap(
    cluster: FaultCluster, tmp_path: Path
) -> None:
    """The lingering agent holds records that nobody read: they are reported as a gap in ticks, without numbers."""
    node = cluster.rig.nodes[0]
    with recording(cluster, tmp_path, "older", argv=modified_console("older", tmp_path)) as recorder:
        recorder.process.kill()
        recorder.process.wait()
        newer = Recorder(tmp_path / "older.toml", tmp_path, "older")
        try:
            newer.wait_for_ticks([node.name])
            tally = newer.stop()
        finally:
            newer.close()
    count = tally.count()
    ticks = sum(gap.count or 0 for gap in tally.gaps)
    write(
        Row(
            fault="an agent of another version lingers on the node", lost=count.lost, doubled=count.doubled, gap=ticks,
            screen=tally.gaps[0].reason, note="it is stopped; its records are reported as a gap, in ticks",
        )
    )  # fmt: skip
    assert (count.lost, count.doubled, count.agents, len(tally.gaps)) == (0, 0, 2, 1)
