"""Runs labelled jobs one after the other under one `gconsole watch`: `python -m tests.watch.night --jobs 40`.

Between two faults (hangs, crashes, slow jobs, in turn, drawn by `--seed`) runs a healthy job. A rule alerts on every
error and on slow jobs. Each fault should be alerted once, with ranks of its label or without a name; nothing else
should be alerted. Exit code 1 if a fault is missed, a name is wrong, or an alert is false or doubled.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from rig import Rig
from rig.processes import descendants, end

from gconsole.analysis.stalls import LONG_ACTIVITY
from tests.crashes import labels as crashes
from tests.crashes import live_jobs as live_crashes
from tests.hangs import labels as hangs
from tests.hangs import live_jobs as live_hangs

from .live_watch import Watch, alerts, rule, watching

Kind = Literal["hang", "crash", "slow", "healthy"]
LabelledJob = hangs.LabelledJob | crashes.LabelledJob
#: Kinds of the faults, in turn.
IN_TURN: Sequence[Kind] = ("hang", "crash", "hang", "crash", "slow")
NODES = 2
#: Seconds that a healthy job trains; in which a fault must be alerted, for a hang beyond the time that counts while a
#: job starts or writes a checkpoint; the same for a slow job; and after a job's end.
HEALTHY_S, ALERTED_S, SLOW_S, AFTER_S = 40.0, 90.0, 240.0, 8.0
#: Outcomes that no night may have.
FAILURES = ("wrong", "missed", "doubled", "false", "not run")
#: Acts that take a node away: the watch is blind meanwhile.
BLINDING = "lose_node_2"


@dataclass
class Step:
    """One job of the night and the alerts in its time."""

    kind: Kind
    job: LabelledJob
    alerts: list[dict[str, Any]] = field(default_factory=list)
    alerted_s: float | None = None  # after all ranks were ready
    problem: str = ""

    @property
    def opened(self) -> list[dict[str, Any]]:
        return [alert for alert in self.alerts if alert["event"] == "open"]

    @property
    def outcome(self) -> str:
        """`right`, `unnamed`, `wrong`, `missed`, `doubled`; `quiet` or `false` for a healthy job; or `not run`."""
        if self.problem:
            return "not run"
        if self.kind == "healthy":
            return "false" if self.opened else "quiet"
        if any(_is_wrong(self.job, alert["finding"]) for alert in self.alerts):
            return "wrong"
        if len(self.opened) != 1:
            return "doubled" if self.opened else "missed"
        named = any(alert["finding"]["culprits"] for alert in self.alerts)
        label = self.job.label
        return "right" if named or not label.culprits or getattr(label, "is_common", False) else "unnamed"

    def line(self) -> str:
        took = "" if self.alerted_s is None else f"{self.alerted_s:.0f} s"
        texts = [f"{a['event']} {a['finding']['id']} {','.join(a['finding']['culprits'])}" for a in self.alerts]
        if self.outcome in FAILURES:
            texts += [alert["finding"]["text"] for alert in self.alerts]
        return f"{self.outcome:8s} {self.kind:8s} {self.job.id:28s} {took:>6s}  {self.problem or '; '.join(texts)}"


def _is_wrong(job: LabelledJob, finding: dict[str, Any]) -> bool:
    """Whether a finding names someone who is not to blame, or concerns no job."""
    label = job.label
    allowed = {f"rank {rank}" for rank in label.culprits | label.may_name} | {getattr(label, "node", "")}
    return finding["job"] is None or bool(set(finding["culprits"]) - allowed)


def candidates() -> dict[Kind, list[LabelledJob]]:
    """The jobs that may be drawn, by kind: decidable, on two nodes at most, with torch alone."""
    alone = [job for job in hangs.JOBS if not job.needs and job.nodes <= NODES and not job.beside]
    dying = [job for job in crashes.JOBS if not job.needs and job.act != BLINDING and job.label.decidable]
    dying = [job for job in dying if not live_crashes.lacks_needs(job)]
    trains = [job for job in alone if job.label == hangs.MOVING and job.launcher == "torchrun"]
    return {
        "hang": [job for job in alone if job.label.states == {"hung"} and job.label.decidable],
        "crash": [job for job in dying if job.label.kinds and job.label.is_error],
        "slow": [job for job in alone if job.label.kinds == {"straggler"}],
        "healthy": [
            *(job for job in trains if job.name != "launcher_stopped"),
            *(job for job in dying if not job.label.kinds and not job.act and not job.lasts_s),
        ],
    }


def drawn(jobs: int, seed: int) -> list[Step]:
    """The steps of a night with so many faults, a healthy job after each."""
    chance, pools = random.Random(seed), candidates()
    queues: dict[Kind, list[LabelledJob]] = {kind: [] for kind in pools}

    def next_of(kind: Kind) -> Step:
        if not queues[kind]:
            queues[kind] = chance.sample(pools[kind], len(pools[kind]))
        return Step(kind, queues[kind].pop())

    return [step for number in range(jobs) for step in (next_of(IN_TURN[number % len(IN_TURN)]), next_of("healthy"))]


class Night:
    """The watch and its nodes."""

    def __init__(self, rig: Rig, log: Path, watch: Watch, stall_s: float) -> None:
        self._rig, self._log, self._watch, self._stall_s = rig, log, watch, stall_s
        self._seen = 0  # alerts that belong to earlier steps
        self.cleared = 0

    def run(self, step: Step) -> None:
        """Run one job to its end, and give it the alerts that were sent meanwhile."""
        try:
            if isinstance(step.job, crashes.LabelledJob):
                with live_crashes.running(self._rig, step.job) as job:
                    live_crashes.until_over(job)
                    self._await_alert(step)
                    if step.kind == "healthy":
                        self._collect(step, AFTER_S)
            else:
                with live_hangs.running(self._rig, step.job) as (job, *_):
                    if step.kind == "healthy":
                        self._collect(step, HEALTHY_S)
                    else:
                        self._await_alert(step)
                    self._terminate([process.popen for process in job.processes])
            self._collect(step, AFTER_S)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            step.problem = str(error)[:200]
            self._collect(step, AFTER_S)

    @staticmethod
    def _terminate(launchers: Sequence[subprocess.Popen[Any]]) -> None:
        """End a job as its owner would; what is left is killed, also what its launcher leaves behind."""
        launched = [pid for popen in launchers for pid in descendants(popen.pid)]
        for popen in launchers:
            popen.send_signal(signal.SIGTERM)
        for popen in launchers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.wait(15)
        end(launched, grace_s=0)

    def _await_alert(self, step: Step) -> None:
        if step.kind == "healthy":
            return
        began = time.monotonic()
        within_s = SLOW_S if step.kind == "slow" else ALERTED_S
        within_s += LONG_ACTIVITY * self._stall_s if step.kind == "hang" else 0.0
        while time.monotonic() - began < within_s:
            self._collect(step, 0.2)
            if step.opened:
                step.alerted_s = time.monotonic() - began
                return

    def _collect(self, step: Step, seconds: float) -> None:
        """Take the alerts of the next seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self._watch.process.poll() is None, "the watch ended"
            new = alerts(self._log)[self._seen :]
            self._seen += len(new)
            self.cleared += sum(alert["event"] == "clear" for alert in new)
            step.alerts += [alert for alert in new if alert["event"] != "clear"]
            time.sleep(0.1)


@contextlib.contextmanager
def night(name: str, stall_s: float) -> Iterator[Night]:
    """Two nodes with stand-ins of their kernel logs, and a watch that sees them."""
    with contextlib.ExitStack() as stack:
        rig = stack.enter_context(Rig(nodes=NODES, name=name))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for node in rig.nodes:
            stack.enter_context(live_crashes.kernel_log(node))
        log = folder / "alerts"
        page = rule(log, on='["error", "slow", "straggler"]', at_most_per_hour="1000")
        hosts = rig.write_hosts_toml(folder / "hosts.toml", extra=f"[watch]\nstall_s = {stall_s:g}\n{page}")
        environ = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        watch = stack.enter_context(watching(hosts, env=environ))
        watch.wait(lambda: any(f"{NODES} of {NODES}" in event["text"] for event in watch.events("seen")))
        yield Night(rig, log, watch, stall_s)


def score(steps: Sequence[Step], hours: float) -> tuple[str, bool]:
    """The line of scores, and whether the night passed."""
    counts = Counter(step.outcome for step in steps)
    faults = [step for step in steps if step.kind != "healthy" and not step.problem]
    text = (
        f"{len(faults)} faults in {hours:.1f} h: {counts['right']} right, {counts['unnamed']} without a name,"
        f" {counts['wrong']} wrong, {counts['missed']} missed, {counts['doubled']} doubled;"
        f" {counts['quiet']} healthy jobs without an alert, {counts['false']} with;"
        f" {counts['not run']} not run"
    )
    return text, not any(counts[outcome] for outcome in FAILURES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=40, help="number of faults")
    parser.add_argument("--seed", type=int, default=1, help="which jobs are drawn")
    parser.add_argument("--name", default="night", help="of the nodes: several nights run at once")
    parser.add_argument("--stall-s", type=float, default=10.0, help="[watch] stall_s")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the watch and the nodes
    steps, began = drawn(options.jobs, options.seed), time.monotonic()
    with night(options.name, options.stall_s) as running:
        for step in steps:
            running.run(step)
            print(step.line(), flush=True)
    text, is_passed = score(steps, (time.monotonic() - began) / 3600)
    print(text)
    return 0 if is_passed else 1


if __name__ == "__main__":
    sys.exit(main())
