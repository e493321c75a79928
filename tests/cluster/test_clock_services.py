"""The claims of a real chronyd about its node's clock, read by an agent without privileges, and their use."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_fleet import started_fleet
from program import batch, gconsole
from rig import Node, Rig

from gconsole.records import ClockSource

pytestmark = pytest.mark.usefixtures("needs_namespaces")

#: `-x` prevents chronyd from adjusting the machine's clock, which all nodes share; it only measures.
_CONF = """{sources}
cmdport 323
bindcmdaddress 127.0.0.1
bindcmdaddress /
pidfile {folder}/chronyd.pid
"""


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Three nodes without privileges: a time server, a client, and a client that lost its source."""
    if shutil.which("chronyd", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("no chronyd on this machine")
    with Rig(nodes=["keeper", "follower", "lonely"], name="chrony", user="ops") as rig:
        keeper, follower, lonely = rig.nodes
        start(keeper, "local stratum 5", "allow")
        start(follower, f"server {keeper.address} iburst minpoll 0 maxpoll 0")
        start(lonely, "server 192.0.2.1 offline")
        until_synced(follower)
        yield rig


def start(node: Node, *sources: str) -> None:
    config = node.folder / "chrony.conf"
    config.write_text(_CONF.format(sources="\n".join(sources), folder=node.inside))
    node.run(["/usr/sbin/chronyd", "-x", "-d", "-u", "root", "-f", f"{node.inside}/chrony.conf"], user="root",
             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip


def until_synced(node: Node) -> None:
    began = time.monotonic()
    while True:
        try:
            values = node.output(["chronyc", "-c", "-n", "tracking"]).split(",")
        except subprocess.CalledProcessError:  # chronyd is not ready yet
            values = []
        if len(values) > 2 and int(values[2]) > 0:
            return
        assert time.monotonic() - began < 60.0, f"{node.name} is not synchronised: {values}"
        time.sleep(0.2)


async def test_unprivileged_agent_reads_chronyd_state(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    async with started_fleet(hosts, clock_duty="off") as fleet:
        await fleet.until(lambda: len([record for record in fleet.records if isinstance(record, ClockSource)]) >= 3)
    claims = {record.node: record for record in fleet.records if isinstance(record, ClockSource)}

    keeper, follower, lonely = (claims[node.name] for node in rig.nodes)
    assert {claim.daemon for claim in claims.values()} == {"chrony"}
    assert (follower.synced, follower.stratum, follower.source) == (True, 6, rig.nodes[0].address)
    assert follower.offset_ns is not None and follower.bound_ns is not None
    assert abs(follower.offset_ns) <= follower.bound_ns < 100_000_000  # both nodes share one clock
    assert keeper.synced is True and keeper.stratum == 5
    assert (lonely.synced, lonely.offset_ns, lonely.bound_ns) == (False, None, None)
    assert lonely.text == "chronyd has no source"


def test_chrony_without_a_source_is_a_clock_unsynced_finding(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", clock={"probe_window_s": 2})

    run = batch(hosts, "--clocks", "--fail-on", "clock_unsynced")

    services = {line["node"]: line for line in run.report["clocks"]["services"]}
    assert services["follower"]["daemon"] == "chrony" and services["follower"]["source"] == rig.nodes[0].address
    assert run.status == 1
    findings = [line for line in run.report["findings"] if line["id"] == "clock_unsynced"]
    assert [line["culprits"] for line in findings] == [["lonely"]]
    assert "chrony: chronyd has no source" in findings[0]["text"]


@pytest.mark.full
def test_ntp_clock_method_reports_service_bounds_without_probing(rig: Rig, tmp_path: Path) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", clock={"method": "ntp"})

    run = gconsole("clocks", hosts, "--for", "4s")

    rows = {line.split()[0]: line for line in run.stdout.splitlines() if line.strip()}
    assert " ntp " in rows["follower"] and "chrony" in rows["follower"]
    assert " ntp " not in rows["lonely"]
    assert not any(" → " in line for line in run.stdout.splitlines())
