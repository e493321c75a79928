"""Watches healthy jobs for hours, live: `python -m tests.watch.live_healthy --hours 2 --into FOLDER`.

Jobs of every kind that training has (`jobs/healthy`) run at the same time on nodes of a rig, under one `gconsole watch`
that has a rule on errors, slow and stalled jobs, and records a session. If the watch ends, it is started again.
Jobs that end are started again, and `ENDED_BY_OWNER` now and then ends with SIGTERM. Prints each alert; exit code
1 if there was one. The session in FOLDER is for `python -m tests.watch.replay_session FOLDER/sessions/healthy`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from jobs import Job, find_torch_python, gloo_environment, start_plain, start_script, start_torchrun
from rig import Rig

from tests.crashes.live_jobs import kernel_log

from .live_watch import Watch, alerts, rule
from .slowdown import physical_interfaces

JOBS = Path(__file__).parent / "jobs/healthy"
RULE_ON = '["error", "slow", "straggler", "job_stalled"]'
#: Seconds between the starts of two jobs, and between two looks at them.
BETWEEN_S, LOOK_S = 4.0, 5.0
#: Seconds after which its owner ends a job, which is every third run of it.
ENDED_BY_OWNER, ENDED_AFTER_S = "resubmitted", 200.0


@dataclass
class Healthy:
    """One job and how it is started."""

    name: str
    nodes: tuple[str, ...]
    per_node: int = 2
    launcher: str = "torchrun"  # as in tests/hangs/labels.py
    env: tuple[tuple[str, str], ...] = ()
    job: Job | None = None
    starts: int = 0
    started: float = 0.0
    ran_s: float = 0.0  # until its last end

    def start(self, rig: Rig) -> None:
        nodes, script = [rig.node(name) for name in self.nodes], JOBS / f"{self.name}.py"
        variables = {**gloo_environment(rig), **dict(self.env)}
        python = str(find_torch_python())
        if self.launcher == "torchrun":
            self.job = start_torchrun(rig, nodes, self.per_node, script, variables)
        elif self.launcher == "plain":
            self.job = start_plain(rig, script, nodes, self.per_node, variables, python=python)
        else:
            self.job = start_script(rig, script, nodes, self.per_node, variables, python)
        self.starts += 1
        self.started = time.monotonic()

    def look(self, rig: Rig) -> None:
        """Start the job again if it has ended; end it as its owner would, if it is that one."""
        assert self.job is not None
        age_s = time.monotonic() - self.started
        if self.name == ENDED_BY_OWNER and self.starts % 3 == 0 and age_s > ENDED_AFTER_S:
            for process in self.job.processes:
                process.popen.terminate()
        if all(process.popen.poll() is not None for process in self.job.processes):
            statuses = [process.popen.returncode for process in self.job.processes]
            say(f"{self.name} ended after {age_s:.0f} s with {statuses}")
            self.ran_s += age_s
            self.start(rig)

    def end(self) -> None:
        if self.job is not None:
            self.ran_s += time.monotonic() - self.started
            self.job.kill()


def jobs() -> list[Healthy]:
    """All kinds on twelve nodes: those with traffic of their own on two nodes each."""
    full = (("LIGHT_TORCH", "launchers"),)  # workers of a DataLoader and the compiler need all of torch
    return [
        Healthy("ddp_steps", ("node01", "node02"), 1, env=full),
        Healthy("checkpoints", ("node03", "node04"), 1),
        Healthy("evaluates", ("node05", "node06"), 1),
        Healthy("pipeline_stages", ("node07",), 3),
        Healthy("watched_steps", ("node08",)),
        Healthy("plain_program", ("node08",), 1, "script"),
        Healthy("serves", ("node08",), 1, "script"),
        Healthy("slow_loader", ("node09",), env=full),
        Healthy("collects_rollouts", ("node09",), 3, "plain"),
        Healthy("compiles", ("node10",), env=full),
        Healthy("uneven_batches", ("node10",)),
        Healthy("resubmitted", ("node11",)),
        Healthy("long_steps", ("node11",)),
        Healthy("spawns_ranks", ("node12",), 2, "script", env=full),
        Healthy("elastic", ("node12",), env=(("PET_MAX_RESTARTS", "99"),)),
    ]


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S', time.gmtime())}  {text}", flush=True)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0, help="hours; 2 by default")
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER", help="of the session and the alerts")
    parser.add_argument("--name", default="healthy", help="of the rig")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder: Path = options.into.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    log, running = folder / "alerts", jobs()
    names = sorted({name for job in running for name in job.nodes})
    with contextlib.ExitStack() as stack:
        rig = stack.enter_context(Rig(nodes=names, name=options.name))
        for node in rig.nodes:
            stack.enter_context(kernel_log(node))
            stack.enter_context(physical_interfaces(node))
        extra = f'[watch]\nlocals = ["step"]\n{rule(log, on=RULE_ON, at_most_per_hour="1000")}'
        hosts = rig.write_hosts_toml(folder / "hosts.toml", extra=extra)
        environ = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "GCONSOLE_SESSIONS_FOLDER": str(folder / "sessions"),
        }
        watch = Watch(hosts, "--record", "healthy", env=environ)
        stack.callback(lambda: watch.process.terminate())
        began, alerted, opened, restarts = time.monotonic(), 0, 0, 0
        for job in running:
            stack.callback(job.end)
            job.start(rig)
            time.sleep(BETWEEN_S)
        say(f"{len(running)} jobs on {len(names)} nodes")
        while time.monotonic() - began < options.hours * 3600:
            time.sleep(LOOK_S)
            if watch.process.poll() is not None:
                restarts += 1
                say(f"the watch ended with exit code {watch.process.returncode}")
                watch = Watch(hosts, "--record", f"healthy-{restarts}", env=environ)
            for alert in alerts(log)[alerted:]:
                alerted += 1
                opened += alert["event"] == "open"
                finding = alert["finding"]
                say(f"{alert['event']} {finding['id']} of {finding['job']}: {finding['text']}")
            for job in running:
                job.look(rig)
        used_s, lasted_s = cpu_s(watch.process.pid), time.monotonic() - began
        watch.process.terminate()
        watch.process.wait()  # before the jobs are killed
    hours = sum(job.ran_s for job in running) / 3600
    say(
        f"{len(running)} jobs, {hours:.1f} hours of them in {lasted_s / 3600:.2f} h, {opened} alerts,"
        f" {restarts} restarts of the watch;"
        f" the watch used {used_s:.0f} CPU s"
    )
    return 1 if opened else 0


if __name__ == "__main__":
    sys.exit(main())
