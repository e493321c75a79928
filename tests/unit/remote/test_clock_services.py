"""Parsing of time service output (chrony, ntpd, PTP, timesyncd), and clock state of the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gconsole_remote.agent import commands
from gconsole_remote.clocks import services

CHRONY = (
    "A29FC87B,162.159.200.123,4,1795251871.123456789,-0.000012345,0.000001,0.000020,-17.250,0.001,0.050,"
    "0.004000000,0.000300000,64.2,Normal"
)
CHRONY_ALONE = "00000000,,0,0.000000000,0.000000000,0.0,0.0,-17.250,0.0,0.0,1.0,1.0,0.0,Not synchronised"
NTPD = """leap=00, stratum=3, rootdelay=4.000, rootdisp=12.500, refid=10.0.0.1,
offset=-0.250, frequency=-8.125"""
NTPD_ALONE = "leap=11, stratum=16, rootdelay=0.000, rootdisp=1000.0, refid=INIT, offset=0.000, frequency=0.000"
PTP = """sending: GET TIME_STATUS_NP
\t506b4b.fffe.0a1b2c-0 seq 0 RESPONSE MANAGEMENT TIME_STATUS_NP
\t\tmaster_offset              -37
\t\tingress_time               1795251871123456789
\t\tgmPresent                  true
\t\tgmIdentity                 0c42a1.fffe.d1e2f3
"""
TIMESYNCD = "LinkNTPServers=\nServerName=ntp.example.net\nServerAddress=10.0.0.1\nPollIntervalUSec=34min\n"


def test_chrony_offset_and_error_bound_follow_the_chrony_manual():
    found = services.parse_chrony(CHRONY)

    assert (found["synced"], found["source"], found["stratum"]) == (True, "162.159.200.123", 4)
    assert found["offset_ns"] == 12_345  # positive if the clock is slow, as chronyc reports it
    assert found["bound_ns"] == 12_345 + 300_000 + 2_000_000


def test_chrony_without_a_source_reports_no_offset():
    found = services.parse_chrony(CHRONY_ALONE)

    assert (found["synced"], found["offset_ns"], found["bound_ns"]) == (False, None, None)
    assert found["text"] == "chronyd has no source"


def test_ntpd_offset_is_converted_from_milliseconds():
    found = services.parse_ntpd(NTPD)

    assert (found["synced"], found["stratum"], found["source"]) == (True, 3, "10.0.0.1")
    assert (found["offset_ns"], found["bound_ns"]) == (250_000, 250_000 + 12_500_000 + 2_000_000)
    assert services.parse_ntpd(NTPD_ALONE)["synced"] is False


def test_ptp_offset_is_reported_only_with_a_grandmaster():
    found = services.parse_ptp(PTP)

    assert (found["synced"], found["offset_ns"], found["source"]) == (True, -37, "0c42a1.fffe.d1e2f3")
    alone = services.parse_ptp(PTP.replace("gmPresent                  true", "gmPresent                  false"))
    assert (alone["synced"], alone["offset_ns"]) == (None, None)


def test_timesyncd_reports_its_server_and_the_sync_state_of_the_kernel():
    found = services.parse_timesyncd(TIMESYNCD)

    assert found["source"] == "ntp.example.net"
    assert found["synced"] is services.read_kernel_clock().synced


def a_node(tmp_path: Path, *comms: str) -> str:
    """A fake /proc with these processes."""
    for pid, comm in enumerate(comms, 100):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(comm + "\n")
    return str(tmp_path)


def a_tool(tmp_path: Path, monkeypatch, name: str, output: str, status: int = 0) -> None:
    """Install a program of this name that prints `output`."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {status}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")


def test_running_time_service_is_queried(tmp_path, monkeypatch):
    a_tool(tmp_path, monkeypatch, "chronyc", CHRONY)

    found = services.read_clock_source(a_node(tmp_path, "systemd", "chronyd"))

    assert (found["daemon"], found["synced"], found["offset_ns"]) == ("chrony", True, 12_345)


def test_failing_time_service_falls_back_to_the_kernel_state_with_a_reason(tmp_path, monkeypatch):
    a_tool(tmp_path, monkeypatch, "chronyc", "506 Cannot talk to daemon", status=1)

    found = services.read_clock_source(a_node(tmp_path, "chronyd"))

    assert found["daemon"] == "chrony" and found["synced"] is services.read_kernel_clock().synced
    assert found["text"] == "chrony is running, but chronyc failed: 506 Cannot talk to daemon"


def test_unparsable_service_output_is_kept_as_the_reason(tmp_path, monkeypatch):
    a_tool(tmp_path, monkeypatch, "chronyc", "what?")

    assert (
        services.read_clock_source(a_node(tmp_path, "chronyd"))["text"]
        == "chrony is running, but chronyc failed: what?"
    )


def test_node_without_a_time_service_reports_no_offset(tmp_path):
    found = services.read_clock_source(a_node(tmp_path, "bash"))

    assert found["daemon"] in (None, "kernel")
    assert found["offset_ns"] is None


@pytest.mark.parametrize("name", ["chrony_tracking", "ntpd_variables", "timesyncd_state", "ptp_status"])
def test_time_service_queries_contain_no_modifying_command(name):
    words = commands.COMMANDS[name]

    assert not {"makestep", "set", "SET", "set-time", "set-ntp", "burst", "online"} & set(" ".join(words).split())
