"""`gconsole watch` with real jobs that crash or hang: one alert each, its documents, its limits, and the evidence."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from program import gconsole
from rig import Rig

from tests.crashes import live_jobs as live_crashes
from tests.crashes.labels import JOBS as CRASHES
from tests.hangs.labels import JOBS as HANGS
from tests.hangs.live_jobs import running
from tests.unit.alerting.http_server import serving

from .live_watch import Watch, alerts, rule, watching

STALL_S = 6.0


def environment(folder: Path) -> dict[str, str]:
    """The console's environment, with a sessions folder of the test."""
    return {**os.environ, "GCONSOLE_SESSIONS_FOLDER": str(folder / "sessions")}


def kept_sessions(watch: Watch) -> list[str]:
    """Names of the sessions that `keep` made."""
    texts = [event["text"] for event in watch.events("action") if event["action"] == "keep"]
    return [text.rpartition(" ")[2] for text in texts]


def rows(session: str, sql: str, env: Mapping[str, str]) -> list[dict[str, Any]]:
    """The result of a query on a kept session."""
    run = gconsole("query", session, sql, "--format", "json", env=env)
    assert run.status == 0, run.stderr
    return list(json.loads(run.stdout))


def run_crash(rig: Rig, name: str) -> None:
    """Run a labelled crash to its end."""
    with live_crashes.running(rig, next(job for job in CRASHES if job.id == name)) as job:
        live_crashes.until_over(job)


@pytest.mark.full
def test_crash_gives_one_alert_with_its_verdict_and_keeps_what_came_before_it(
    rig: Rig, needs_torch: None, tmp_path: Path
) -> None:
    log, env = tmp_path / "alerts", environment(tmp_path)
    with serving() as webhook:
        post = f'post = "{webhook.url}/page"\non_clear = true\n'
        limited = f'[[watch.rule]]\nname = "limited"\nat_most_per_hour = 1\n{post}'
        hosts = rig.write_hosts_toml(
            tmp_path / "hosts.toml", only=[node.name for node in rig.nodes[:2]],
            extra=f"[watch]\nstall_s = {STALL_S:g}\n{rule(log, keep='true')}{limited}",
        )  # fmt: skip
        with watching(hosts, env=env) as watch:
            watch.wait(lambda: any("2 of 2" in event["text"] for event in watch.events("seen")))
            run_crash(rig, "raises-shared_log")
            watch.wait(lambda: kept_sessions(watch) and alerts(log))
            run_crash(rig, "ends_well-shared_log")
            run_crash(rig, "segfault")
            watch.wait(lambda: len(kept_sessions(watch)) > 1 and len(alerts(log)) > 1)
            names = kept_sessions(watch)
        posted = [json.loads(body) for _, _, body in webhook.requests]

    opened = [alert for alert in alerts(log) if alert["event"] == "open"]
    assert [(alert["finding"]["id"], alert["finding"]["culprits"]) for alert in opened] == [
        ("exception", ["rank 2"]), ("signalled", ["rank 3"]),
    ]  # fmt: skip
    assert [alert["event"] for alert in alerts(log) if alert["event"] == "update"] == []
    verdict = opened[0]["verdict"]
    assert (verdict["state"], verdict["kind"], verdict["culprits"][0]["rank"]) == ("crashed", "exception", 2)
    assert "ValueError" in verdict["summary"] and opened[0]["kept"] == f"session {names[0]}"
    assert [(alert["event"], alert["finding"]["id"]) for alert in posted if alert["event"] == "open"] == [
        ("open", "exception")
    ], "at most one an hour"
    assert all(alert["schema"] == "gconsole.alert/1" and alert["rule"] == "limited" for alert in posted)

    (ended,) = rows(names[0], "SELECT min(ended_at) AS at FROM rank WHERE exit_code <> 0", env)
    (found,) = rows(names[0], "SELECT culprits, severity FROM finding WHERE id = 'exception'", env)
    (before,) = rows(names[0], f"SELECT count(*) AS records FROM rank_stat WHERE t < {ended['at']}", env)
    assert (found["severity"], "rank 2" in str(found["culprits"])) == ("error", True)
    assert before["records"] > 0, "records from before the crash"
    diagnosed = gconsole("diagnose", tmp_path / "sessions" / names[0], env=env)
    assert "rank 2" in diagnosed.stdout and "ValueError" in diagnosed.stdout, diagnosed.stderr


@pytest.mark.full
def test_stall_gives_one_alert_with_evidence_on_disk_and_its_end_is_reported_once(
    rig: Rig, needs_torch: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, env = tmp_path / "alerts", environment(tmp_path)
    hosts = rig.write_hosts_toml(
        tmp_path / "hosts.toml", only=[node.name for node in rig.nodes[:2]],
        extra=f"[watch]\nstall_s = {STALL_S:g}\n[health]\nclear_s = 5\n{rule(log, keep='true')}",
    )  # fmt: skip
    with watching(hosts, env=env) as watch:
        watch.wait(lambda: any("2 of 2" in event["text"] for event in watch.events("seen")))
        with running(rig, next(job for job in HANGS if job.id == "moving")) as (job,):
            rank = next(rank for rank in job.ranks if rank.rank == 1)
            time.sleep(STALL_S)  # a healthy job
            assert not alerts(log)
            rig.node(rank.node).kill(rank.pid, signal.SIGSTOP)
            stalled = time.monotonic()
            watch.wait(lambda: kept_sessions(watch) and alerts(log))
            took_s = time.monotonic() - stalled
            (name,) = kept_sessions(watch)
            rig.node(rank.node).kill(rank.pid, signal.SIGCONT)
            watch.wait(lambda: [alert for alert in alerts(log) if alert["event"] == "clear"])
            time.sleep(2 * STALL_S)
    with capsys.disabled():
        print(f"\nevidence on disk {took_s:.1f} s after a rank was stopped, stall_s {STALL_S:g}")
    assert [(alert["event"], alert["finding"]["culprits"]) for alert in alerts(log)] == [
        ("open", ["rank 1"]), ("clear", ["rank 1"]),
    ]  # fmt: skip
    (found,) = rows(name, "SELECT culprits FROM finding WHERE severity = 'error'", env)
    (stacks,) = rows(name, "SELECT count(DISTINCT pid) AS pids FROM stack", env)
    assert "rank 1" in str(found["culprits"]) and stacks["pids"] >= 3
