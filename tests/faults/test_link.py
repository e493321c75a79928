"""Loss of the link to one node: with linger no records are lost or duplicated."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path

import pytest

from .consoles import Recorder, any_instant, until
from .fault_cluster import FaultCluster
from .lossy_link import lossy_link
from .measurements import Row, write

LOST = "no data for"


@pytest.mark.parametrize("cut_s", [1, 5])
def test_short_link_cut_loses_no_records(cluster: FaultCluster, cut_s: int) -> None:
    node = cluster.rig.nodes[0]
    with cluster.fault(f"link cut {cut_s} s", node, LOST if cut_s > 3 else "") as fault:
        fault.mark_injected()
        node.down()
        try:
            time.sleep(cut_s)  # the fault
        finally:
            node.up()
        fault.mark_repaired()


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cut_s", [30, 300])
def test_long_link_cut_loses_no_records(cluster: FaultCluster, cut_s: int) -> None:
    node = random.Random(cut_s).choice(cluster.rig.nodes)
    with cluster.fault(f"link cut {cut_s} s", node, LOST) as fault:
        fault.mark_injected()
        node.down()
        try:
            time.sleep(cut_s)
        finally:
            node.up()
        fault.mark_repaired()


@pytest.mark.parametrize(("fault_name", "loss", "delay_s"), [
    pytest.param("5 % of all packets lost", 0.05, 0.0, marks=pytest.mark.full),
    ("30 % of all packets lost", 0.3, 0.0), ("500 ms delay each way", 0.0, 0.5),
])  # fmt: skip
def test_packet_loss_or_delay_loses_no_records(
    cluster: FaultCluster, fault_name: str, loss: float, delay_s: float
) -> None:
    node = cluster.rig.nodes[1]
    with cluster.fault(fault_name, node) as fault:
        fault.mark_injected()
        with lossy_link(node, loss=loss, delay_s=delay_s, seed=7):
            time.sleep(5)
        fault.mark_repaired()


@pytest.mark.parametrize("away_s", [5, pytest.param(8, marks=pytest.mark.full)])
def test_total_packet_loss_for_seconds_loses_no_records(cluster: FaultCluster, away_s: int) -> None:
    """Unlike a link that is down, neither kernel is notified; both retransmit with exponential back-off."""
    node = cluster.rig.nodes[1]
    with cluster.fault(f"every packet lost for {away_s} s", node, LOST) as fault:
        with lossy_link(node, loss=1.0):
            fault.mark_injected()
            time.sleep(away_s)
        fault.mark_repaired()


@pytest.mark.full
@pytest.mark.parametrize("away_s", [4, 6, 8])
def test_node_reconnects_after_total_packet_loss_without_linger(
    cluster: FaultCluster, tmp_path: Path, away_s: int
) -> None:
    """The agent survives if TCP recovers within 1 s; otherwise it is replaced, and the records are lost."""
    node = cluster.rig.nodes[1]
    hosts = cluster.rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name])
    recorder = Recorder(hosts, tmp_path)
    try:
        recorder.wait_for_ticks([node.name])
        any_instant()
        with lossy_link(node, loss=1.0):
            injected_ns = time.time_ns()
            time.sleep(away_s)
        repaired_ns = time.time_ns()
        recorder.wait_for([node.name])
        recorder.wait_for_ticks([node.name])
        count = recorder.stop().count()
        states = [state for state in recorder.tally.states if state.rx >= injected_ns]
    finally:
        recorder.close()
    lost_ns = next(state.rx for state in states if state.state == "lost")
    healthy_ns = next(state.rx for state in states if state.state == "ok" and state.rx > lost_ns)
    message = recorder.tally.first_message("^lost: ", injected_ns)
    assert message
    write(
        Row(
            fault=f"every packet lost for {away_s} s, without linger",
            lost=count.lost, doubled=count.doubled, gap=count.gap,
            shown_s=message.after_s(injected_ns), screen=message.text,
            unhealthy_s=(lost_ns - injected_ns) / 1e9, healthy_s=(healthy_ns - repaired_ns) / 1e9,
            note="the same agent" if count.agents == 1 else "a new agent",
        )
    )  # fmt: skip
    assert (count.lost, count.doubled, count.gap) == (0, 0, 0)


def test_half_open_connection_is_detected_and_reconnected(cluster: FaultCluster) -> None:
    """Half-open: packets are dropped without RST, while new connections would work."""
    node = cluster.rig.nodes[2]
    pattern = f"{LOST}|half-open connection"
    with (
        cluster.fault("half-open TCP (no RST)", node, pattern, is_brief=True) as fault,
        lossy_link(node, seed=3) as link,
    ):
        cluster.recorder.wait_for_ticks([node.name])
        any_instant()
        fault.mark_injected()
        link.forget_connections()
        fault.wait_until_lost()
        fault.repaired_ns = fault.first_state_ns("lost", fault.injected_ns) or 0
        fault.notes.append("healthy counts from the detection of the loss: the link does not recover here")
        fault.wait_until_healthy()  # before the link works again


@pytest.mark.full  # its short form is in tests/cluster/test_connection_loss.py
def test_buffer_overflow_during_an_outage_is_a_counted_gap(cluster: FaultCluster, tmp_path: Path) -> None:
    """An outage longer than the agent's buffer: every sequence number is a record or in a gap."""
    node = cluster.rig.nodes[0]
    agent = {"linger_s": 600, "buffer_bytes": 65536, "cpu_budget_pct": 100, "sample_interval_ms": 100}
    hosts = cluster.rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name], agent=agent | {"simulate_gpus": 64})
    recorder = Recorder(hosts, tmp_path)
    try:
        recorder.wait_for_ticks([node.name])
        node.stop_sshd(sessions=True)
        time.sleep(6)  # until the buffer has overflowed
        node.start_sshd()
        until(lambda: recorder.read().gaps, "a gap record")
        recorder.wait_for_ticks([node.name])
        count = recorder.stop().count()
    finally:
        recorder.close()
    write(Row(fault="link away 6 s, a buffer of 64 KiB", lost=count.lost, doubled=count.doubled, gap=count.gap,
              screen=f"gap: {recorder.tally.gaps[0].reason}"))  # fmt: skip
    assert (count.lost, count.doubled, count.agents) == (0, 0, 1)
    assert count.gap


@pytest.mark.full  # see above
def test_outage_without_linger_starts_a_new_agent_without_a_gap_record(cluster: FaultCluster, tmp_path: Path) -> None:
    """The agent ends with its connection; records of the outage do not exist, and a new incarnation begins at 1."""
    node = cluster.rig.nodes[0]
    hosts = cluster.rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name])
    recorder = Recorder(hosts, tmp_path)
    try:
        recorder.wait_for_ticks([node.name])
        injected_ns = any_instant()
        node.stop_sshd(sessions=True)
        time.sleep(2)
        node.start_sshd()
        repaired_ns = time.time_ns()
        recorder.wait_for_ticks([node.name])
        count = recorder.stop().count()
        states = [state for state in recorder.tally.states if state.rx >= injected_ns]
        ticks = [rx for rx, _ in recorder.latency.ticks[node.name]]
    finally:
        recorder.close()
    hole_s = max(after - before for before, after in itertools.pairwise(ticks)) / 1e9
    lost_ns, healthy_ns = (next(record.rx for record in states if record.state == state) for state in ("lost", "ok"))
    message = recorder.tally.first_message("^lost: ", injected_ns)
    assert message
    write(
        Row(
            fault="link away 2 s, without linger",
            lost=count.lost, doubled=count.doubled, gap=count.gap,
            shown_s=message.after_s(injected_ns), screen=message.text,
            unhealthy_s=(lost_ns - injected_ns) / 1e9, healthy_s=(healthy_ns - repaired_ns) / 1e9,
            note=f"{hole_s:.1f} s without a tick, and a new agent",
        )
    )  # fmt: skip
    assert (count.lost, count.doubled, count.gap, count.agents) == (0, 0, 0, 2)
