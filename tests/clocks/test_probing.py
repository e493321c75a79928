"""Probing threads of two agents over loopback: measured offsets are true, and the cost is bounded."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

import pytest

from gconsole_remote.clocks import commands, stamps, udp_socket
from gconsole_remote.clocks.packet import MAX_PER_S
from gconsole_remote.samplers.base import Unavailable

from .probe_agents import Agent, listen, open_ports, peer, probe, probe_agents, wait_for

KEY = secrets.token_hex(16)


def probe_pair(asking: Agent, answering: Agent, interface: str = "127.0.0.1", **pace: int) -> None:
    """One edge, from the first agent to the second."""
    asking_port, answering_port = listen(asking, interface), listen(answering, interface)
    probe(answering, [peer(asking_port, KEY, probes=False, name="asking")], **pace)
    probe(asking, [peer(answering_port, KEY, probes=True, name="answering")], **pace)


def exchanges(agent: Agent) -> int:
    return sum(row[4] for record in agent.posted("clock_bins") for row in record["bins"])


def test_probe_socket_is_open_only_while_probing():
    before = open_ports()
    with probe_agents(2) as (asking, answering):
        probe_pair(asking, answering)
        during = open_ports() - before
        assert len(during) == 2
        wait_for(lambda: exchanges(asking) > 100)

        assert asking.probes.stop() == {"probing": False}
        assert len(open_ports() & during) == 1
    assert not open_ports() & during


def test_no_tcp_port_is_ever_opened():
    def listening() -> set[str]:
        rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()]
        inodes = {row[9] for row in rows if row[3] == "0A"}
        own_sockets = {link.readlink().name for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
        return {inode for inode in inodes if f"socket:[{inode}]" in own_sockets}

    with probe_agents(2) as (asking, answering):
        probe_pair(asking, answering)
        wait_for(lambda: exchanges(asking))
        assert not listening()


def test_probing_stops_when_its_lease_expires():
    with probe_agents(2) as (asking, answering):
        port = listen(asking, for_s=0.3)
        wait_for(lambda: port["port"] not in open_ports())
        assert asking.probes.probe({"session": "late", "for_s": 5, "peers": [], "cadence_us": 5000, "spacing_us": 100,
                                  "bin_ms": 100, "cpu_cap_pct": 15}) == {"probing": False}  # fmt: skip
        assert not answering.probes.is_probing


def test_repeated_probe_request_of_a_session_keeps_the_bin_grid():
    with probe_agents(2) as (asking, answering):
        probe_pair(asking, answering)
        answering_port = listen(answering)
        args = {"session": "s", "for_s": 60.0, "peers": [peer(answering_port, KEY, probes=True)], "cadence_us": 5000,
                "spacing_us": 100, "bin_ms": 100, "cpu_cap_pct": 60}  # fmt: skip
        probe(asking, [])
        asking.probes.probe(args)
        wait_for(lambda: exchanges(asking) > 100)
        bases = [record["base"] for record in asking.posted("clock_bins")]
        asking.probes.probe(args)
        wait_for(lambda: len(asking.posted("clock_bins")) > len(bases) + 1)

        steps = [b["base"] - a["base"] for a, b in zip(asking.posted("clock_bins"), asking.posted("clock_bins")[1:],
                                                      strict=False)]  # fmt: skip
        assert all(step % 100_000_000 == 0 for step in steps)  # the grid of bins is continued


def test_true_offset_is_between_the_extremes_of_every_bin():
    """Both ends read the same clock: the true offset is 0."""
    with probe_agents(2) as (asking, answering):
        probe_pair(asking, answering)
        wait_for(lambda: len(asking.posted("clock_bins")) >= 3)

    for record in asking.posted("clock_bins"):
        assert (record["dst"], record["stamps"], record["family"]) == ("answering", "kernel_rx", "ipv4")
        assert abs(record["base_real"] - record["base"] - (stamps.realtime_ns() - stamps.mono_ns())) < 50_000_000
        for forward, backward, best, sent, got, noncausal, _ in record["bins"]:
            assert record["ahead"] + forward[1] >= 0 >= record["ahead"] + backward[1]
            assert got <= sent <= 63 and noncausal == 0 and 1 <= len(best) <= 4
            assert all(t1 >= 0 and turn > 0 and rtt > 0 for t1, _, turn, rtt in best)
            assert [t1 for t1, *_ in best] == sorted(t1 for t1, *_ in best)


def test_probe_cost_is_reported_separately_from_the_agent():
    with probe_agents(2) as (asking, answering):
        probe_pair(asking, answering)
        wait_for(lambda: len(asking.posted("clock_cost")) >= 3 and len(answering.posted("clock_cost")) >= 3)

        cost, answering_cost = asking.posted("clock_cost")[1], answering.posted("clock_cost")[1]
        assert cost["cpu_pct"] > 0 and cost["cadence_us"] == 5000 and answering_cost["cadence_us"] == 0
        assert 0 < cost["tx_packets_s"] <= 660, "three packets every 5 ms; a machine under load misses ticks"
        assert cost["tx_bytes_s"] == pytest.approx(64 * cost["tx_packets_s"], rel=0.01)
        cpu_s, size = asking.context.shared["probing"]
        assert cpu_s > 0 and size > 1000


def test_probe_cadence_slows_down_to_stay_under_the_cpu_cap():
    with probe_agents(2) as (asking, answering):
        probe_pair(asking, answering, cadence_us=500, cpu_cap_pct=1)
        wait_for(lambda: asking.posted("clock_cost") and asking.posted("clock_cost")[-1]["cadence_us"] > 2000)

        wait_for(lambda: asking.posted("clock_bins")[-1]["cadence_us"] > 2000)


def test_cadence_in_the_wrong_unit_stays_under_the_packet_rate_limit(monkeypatch):
    """5 us instead of 5 ms, without the validation in console and agent: the token bucket and the cap limit it."""
    monkeypatch.setattr(commands, "_CADENCE_US", (1, 1_000_000))
    with probe_agents(2) as (asking, answering):
        # A cap of 10 % is not reached on a busy machine.
        probe_pair(asking, answering, cadence_us=5, spacing_us=0, cpu_cap_pct=1)
        wait_for(lambda: asking.posted("clock_cost") and asking.posted("clock_cost")[-1]["cadence_us"] > 5)

        for cost in (*asking.posted("clock_cost"), *answering.posted("clock_cost")):
            assert cost["tx_packets_s"] <= 1.2 * MAX_PER_S  # plus the size of the bucket


def test_missed_ticks_are_counted_and_not_sent_later():
    with probe_agents(2) as (asking, answering):
        probe_pair(asking, answering, cadence_us=500, spacing_us=100, cpu_cap_pct=100)
        wait_for(lambda: sum(record["ticks"] for record in asking.posted("clock_bins")) > 2000)

        records = asking.posted("clock_bins")
        sent = sum(row[3] for record in records for row in record["bins"])
        ticks, missed = (sum(record[name] for record in records) for name in ("ticks", "missed"))
        assert sent <= 3 * (ticks - missed) + 3 * 2000  # the last reports' bins are not sent yet
        assert max(row[3] for record in records for row in record["bins"]) <= 3 * 201


def test_probing_works_over_ipv6():
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as ipv6_socket:
        try:
            ipv6_socket.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"no IPv6 on this machine: {error}")
    with probe_agents(2) as (asking, answering):
        probe_pair(asking, answering, "::1")
        wait_for(lambda: exchanges(asking) > 100)

        records = asking.posted("clock_bins")
        assert {(record["family"], record["stamps"]) for record in records} == {("ipv6", "kernel_rx")}


def test_unresponsive_peer_gives_bins_without_replies():
    with probe_agents(1) as (asking,):
        listen(asking)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            address, port = silent.getsockname()
            probe(asking, [peer({"address": address, "port": port}, KEY, probes=True)])
            (record, *_) = wait_for(lambda: asking.posted("clock_bins"))

        assert all(row[:3] == [None, None, []] and row[4] == 0 for row in record["bins"])
        assert sum(row[3] for row in record["bins"]) > 30


def test_the_interface_is_chosen_as_nccl_does():
    family, address = udp_socket.bind_address("=lo")
    assert (family, address) == (socket.AF_INET, "127.0.0.1")
    assert udp_socket.bind_address("l") == udp_socket.bind_address("lo") == udp_socket.bind_address("127.0.0.1")
    assert udp_socket.bind_address("::1") == (socket.AF_INET6, "::1")
    with pytest.raises(Unavailable, match="interface nosuch not found"):
        udp_socket.bind_address("nosuch")
    with pytest.raises(Unavailable, match="cannot open a UDP socket at"), probe_agents(1) as (agent,):
        listen(agent, "192.0.2.77")


@pytest.mark.parametrize(("connection", "chosen"), [
    ("10.1.0.9 50000 10.1.0.5 22", (socket.AF_INET, "10.1.0.5")),
    ("fd00::9 50000 fd00::5 22", (socket.AF_INET6, "fd00::5")),
    ("::ffff:10.1.0.9 50000 ::ffff:10.1.0.5 22", (socket.AF_INET, "10.1.0.5")),
])  # fmt: skip
def test_probes_use_the_address_of_the_ssh_connection_without_an_interface(connection, chosen):
    assert udp_socket.bind_address("", {"SSH_CONNECTION": connection}) == chosen


def test_bins_of_successive_records_do_not_overlap():
    with probe_agents(2) as (asking, answering):
        probe_pair(asking, answering)
        wait_for(lambda: len(asking.posted("clock_bins")) >= 3)

    ends = 0
    for record in asking.posted("clock_bins"):
        assert record["base"] >= ends
        ends = record["base"] + len(record["bins"]) * 100_000_000
