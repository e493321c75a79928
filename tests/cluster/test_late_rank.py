"""Who is late, of real nodes whose clocks are wrong by known amounts: real probes, real torch, the real fold."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import start_torchrun
from jobs.launch import FOLDER
from live import watched
from rig import Rig
from shifted import Wrong, wrong_clocks

from gconsole.clockwork import Clockwork
from gconsole.config.model import ClockConfig
from gconsole.hub import CaptureOrder, new_capture
from gconsole.report import make_report
from gconsole.skewing import clock_of

LATE, LATE_MS = 2, 20.0
#: Milliseconds apart, and drifting: without the probes' lines nobody could say who was late.
ERRORS = {
    "node1": Wrong(), "node2": Wrong(300_000_000, 20_000), "node3": Wrong(-150_000_000, -30_000),
    "node4": Wrong(70_000_000, 10_000),
}  # fmt: skip


@pytest.mark.usefixtures("needs_namespaces")
async def test_the_late_rank_is_named_although_every_clock_is_wrong(
    rig: Rig, tmp_path: Path, needs_torch: None
) -> None:
    env = {"LATE": str(LATE), "LATE_S": str(LATE_MS / 1000)}
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml")
    with (
        start_torchrun(rig, rig.nodes, nproc_per_node=1, script=FOLDER / "gloo_late.py", env=env) as job,
        wrong_clocks(tmp_path / "bundle", ERRORS) as truth,
    ):
        job.wait_ready()
        async with watched(hosts) as fleet:
            clockwork = Clockwork(fleet.hub, ClockConfig(), "rig")
            clockwork.start()
            await fleet.sampled()
            fleet.fleet.want_clocks("test", True)
            store = fleet.store
            await fleet.until(lambda: len(store.ranks) == 4 and len(store.clocks.nodes) == 4, 60)
            await fleet.until(lambda: all(len(kept) >= 2 for kept in store.clocks.nodes.values()), 60)
            await fleet.fleet.capture(CaptureOrder(new_capture()))
            await clockwork.stop()

    clock = clock_of(store)
    raw = truth.epoch
    common = {node: clock.to_cluster(node, raw + int(truth.ahead(node, raw))) for node in ERRORS}
    known = [at for at in common.values() if at is not None]
    assert len(known) == 4
    for one in known:  # the same instant, read from four wrong clocks
        for other in known:
            assert abs(one.ns - other.ns) <= one.bound_ns + other.bound_ns + 2_000

    skew = make_report(store).skew
    assert skew.violations == []
    [culprit] = skew.culprits
    assert culprit.rank == LATE
    assert culprit.behind_ns is not None
    assert culprit.behind_bound_ns is not None
    assert culprit.behind_bound_ns < 1_000_000
    assert 5e6 < culprit.behind_ns < 200e6  # the machine is busy: others may be late, too, and it later than asked
