"""A job that died: the Overview shows why without a key, the Hang view shows the verdict, also in a replay."""

from __future__ import annotations

import sys
from pathlib import Path

from fake_cluster import FakeCluster
from msgspec.structs import replace
from running import running
from waiting import shows

sys.path.insert(0, str(Path(__file__).parent.parent / "unit"))
from test_crash_findings import DIED, S, a_rank

from gconsole.config.sections import HealthConfig
from gconsole.core.bus import Hub
from gconsole.monitor.crash import CrashFindings
from gconsole.monitor.finding_tracker import FindingTracker
from gconsole.records import Host, Record
from gconsole.tui.app import ConsoleApp


def died() -> tuple[FakeCluster, ConsoleApp]:
    """A cluster with a job of two ranks that died a while ago, and the screen with findings."""
    cluster, hub = FakeCluster("n1"), Hub()
    hub.subscribe(cluster.store.apply)
    cluster.up()
    findings = FindingTracker(hub, HealthConfig(), sources=(CrashFindings(cluster.store),))
    later(cluster, *(a_rank(number) for number in range(2)))
    later(cluster, *map(replace, DIED))
    return cluster, cluster.app(findings=findings)


def later(cluster: FakeCluster, *records: Record) -> None:
    """These records arrive, and others half a minute after them."""
    cluster.publish(*records)
    cluster.now_ns += 30 * S
    cluster.publish(Host(node="n1"))


async def test_overview_shows_why_a_job_died_without_a_key():
    _, app = died()
    async with running(app) as pilot:
        await shows(pilot, "✖ exception")
        await shows(pilot, 'KeyError: "x"')
        await shows(pilot, "train.py:12 load")


async def test_hang_view_shows_the_verdict_on_a_job_that_died():
    _, app = died()
    async with running(app, "3") as pilot:
        await shows(pilot, "✖ crashed  exception  j")
        await shows(pilot, "rank 1 · n1 · pid 101")
        await shows(pilot, "teardown")


async def test_diagnosis_of_a_job_that_died_points_to_its_verdict():
    _, app = died()
    async with running(app, "d", toasts=True) as pilot:
        await shows(pilot, "no rank lives")
        await shows(pilot, "✖ crashed  exception  j")
