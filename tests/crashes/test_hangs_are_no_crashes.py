"""No finding of a crash for the recorded jobs that hang, are slow or are healthy."""

from __future__ import annotations

from pathlib import Path

from gconsole.monitor.crash import crash_findings
from tests.hangs import recording
from tests.hangs.labels import JOBS

#: Jobs of which ranks have died as well.
DIED = {"killed", "restart_under_way", "restarts"}


def test_recorded_hangs_and_healthy_jobs_are_no_crashes(tmp_path: Path):
    recorded = [job for job in JOBS if (recording.RECORDINGS / f"{job.id}.ndjson.xz").exists()]
    raised = {
        job.id: [finding.text for finding in findings]
        for job in recorded
        if (findings := crash_findings(recording.stored(recording.unpacked(job, tmp_path))))
    }
    assert len(recorded) > 100
    assert set(raised) <= DIED, raised
