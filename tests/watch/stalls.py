"""Stops a rank of a real job again and again under one `gconsole watch`: `python -m tests.watch.stalls --count 10`.

Each time another job, whose rank 1 is stopped after twice `stall_s` of health. Prints the seconds from the stop to the
alert and to the evidence on disk. Exit code 1 if one came later than `stall_s` and 15 s, or was not that of rank 1.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from rig import Rig

from tests.hangs.labels import JOBS
from tests.hangs.live_jobs import running

from .live_watch import Watch, alerts, rule, watching

#: Seconds beyond `stall_s` in which the evidence must be on disk; and after which a stall counts as missed.
LATEST_S, MISSED_S = 15.0, 120.0


def stall(rig: Rig, watch: Watch, log: Path, stall_s: float) -> tuple[float | None, bool]:
    """Seconds from the stop of a rank to the evidence on disk, None if there was none; whether the alert is right."""

    def kept() -> int:
        return sum(event["action"] == "keep" for event in watch.events("action"))

    before, kept_before = len(alerts(log)), kept()
    with running(rig, next(job for job in JOBS if job.id == "moving")) as (job,):
        rank = next(rank for rank in job.ranks if rank.rank == 1)
        time.sleep(2 * stall_s)
        rig.node(rank.node).kill(rank.pid, signal.SIGSTOP)
        began = time.monotonic()
        while kept() == kept_before and time.monotonic() - began < MISSED_S:
            time.sleep(0.1)
        took_s = time.monotonic() - began
        rig.node(rank.node).kill(rank.pid, signal.SIGCONT)
        opened = [alert["finding"]["culprits"] for alert in alerts(log)[before:] if alert["event"] == "open"]
        return took_s if kept() > kept_before else None, opened == [["rank 1"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10, help="number of stalls")
    parser.add_argument("--stall-s", type=float, default=10.0, help="[watch] stall_s")
    options = parser.parse_args()
    took: list[float] = []
    are_right = True
    with contextlib.ExitStack() as stack:
        rig = stack.enter_context(Rig(nodes=2, name="stalls"))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        log = scratch / "alerts"
        page = rule(log, keep="true", at_most_per_hour="1000")
        hosts = rig.write_hosts_toml(scratch / "hosts.toml", extra=f"[watch]\nstall_s = {options.stall_s:g}\n{page}")
        environ = {**os.environ, "XDG_STATE_HOME": str(scratch), "GCONSOLE_SESSIONS_FOLDER": str(scratch / "sessions")}
        watch = stack.enter_context(watching(hosts, env=environ))
        watch.wait(lambda: any("2 of 2" in event["text"] for event in watch.events("seen")))
        for number in range(options.count):
            seconds, is_right = stall(rig, watch, log, options.stall_s)
            took.append(MISSED_S if seconds is None else seconds)
            are_right = are_right and is_right
            text = "missed" if seconds is None else f"{seconds:.1f} s"
            outcome = "right" if is_right else "wrong"
            print(f"{number + 1:3d}  {text}  {outcome}  load {os.getloadavg()[0]:.0f}", flush=True)
    print(f"evidence {median(took):.1f} s after a stop, {max(took):.1f} s at most; stall_s {options.stall_s:g}")
    return 0 if are_right and max(took) <= options.stall_s + LATEST_S else 1


if __name__ == "__main__":
    sys.exit(main())
