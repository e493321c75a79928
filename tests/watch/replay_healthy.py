"""Counts the alerts of `gconsole watch` on recorded healthy jobs: `python -m tests.watch.replay_healthy`.

Every recording of a labelled job that makes progress or ends well (`tests/hangs`, `tests/crashes`) arrives as live: its
records, in their order for each node, in batches of random size, each node with a delay of its own, on a clock that
runs as fast as the processor permits. Everything else is the product as `gconsole watch` wires it: the console's
findings, the detection of jobs that stand still, the rules of the watch. Two things differ: a job that appears to stand
still is diagnosed by the stacks in its recording, not by new ones, and it counts as standing still after `STALL_S`
instead of 30 s. Each replay has rules without a history, so that limits suppress no alert.

Recordings are short, 13 s on average, and repeated with other batches until the wanted hours are reached: the hours are
those of many short jobs, not of one long job. Exit code 1 if a rule alerted on an error.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import lzma
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from gconsole.analysis.stalls import JobKey, Suspicion
from gconsole.config import Config
from gconsole.config.sections import WatchConfig, WatchRule
from gconsole.core.bus import Published
from gconsole.monitor.alerting.alerts import AlertTracker
from gconsole.monitor.alerting.rules import Rule
from gconsole.monitor.topology import TopologyFindings, TopologyFold
from gconsole.records import ConsoleRecord, Finding, Stack, decode
from gconsole.runtime.console import Console
from tests.crashes.labels import JOBS as CRASHES
from tests.crashes.labels import RECORDINGS as CRASH_RECORDINGS
from tests.hangs.labels import JOBS as HANGS
from tests.hangs.recording import RECORDINGS as HANG_RECORDINGS

#: Seconds without progress after which a job is diagnosed.
STALL_S = 5.0
#: Seconds between two looks of the watch, and the longest delay of a node's records.
LOOK_S, LATEST_S = 0.5, 2.0
#: Records that arrive at once, at most.
MOST_AT_ONCE = 40
HOUR_S, WEEK_S = 3600.0, 7 * 86_400.0
SEVERITIES = ("error", "warning")
#: A run in which fewer hours were replayed shows little.
HOURS = 2.0


def healthy() -> dict[str, Path]:
    """The recordings of jobs that are neither hung nor crashed nor undecidable, by name."""
    hangs = {f"hangs/{job.id}": HANG_RECORDINGS / f"{job.id}.ndjson.xz" for job in HANGS
             if job.label.states & {"moving", "slow"} and "hung" not in job.label.states}  # fmt: skip
    crashes = {f"crashes/{job.id}": CRASH_RECORDINGS / f"{job.id}.ndjson.xz" for job in CRASHES if not job.label.kinds}
    return {name: path for name, path in {**hangs, **crashes}.items() if path.exists()}


def records_of(path: Path) -> list[bytes]:
    """The lines of a recording that came from nodes: the console writes its own records again."""
    return [
        line
        for line in lzma.decompress(path.read_bytes()).splitlines()
        if not isinstance(decode(line), Finding | ConsoleRecord)
    ]


class Clock:
    """A clock that stands still until it is set; also in place of the machine's clock."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns

    def seconds(self) -> float:
        return self.now_ns / 1e9

    @contextmanager
    def holds(self) -> Iterator[None]:
        """Findings and the console's own records get their instants from this clock."""
        with mock.patch("time.time_ns", lambda: self.now_ns), mock.patch("time.monotonic_ns", lambda: self.now_ns):
            yield


@dataclass
class Replayed:
    """What one replay, or many, raised."""

    seconds: float = 0.0
    replays: int = 0
    alerts: Counter[str] = field(default_factory=Counter)  # by severity of the rule
    examples: list[str] = field(default_factory=list)

    def add(self, other: Replayed) -> None:
        self.seconds += other.seconds
        self.replays += other.replays
        self.alerts += other.alerts
        self.examples += other.examples

    def per_week(self, severity: str) -> float:
        return self.alerts[severity] * WEEK_S / self.seconds


def example_rule(severity: str) -> Rule:
    """A rule that alerts at once on this severity and worse ones."""
    return Rule(WatchRule(name=severity, on=(severity,), run=("true",)), 0.0, 1800.0, 60.0, Path("/"))


def arrivals(lines: Sequence[bytes], chance: random.Random) -> list[tuple[int, list[Published]]]:
    """(instant of arrival in ns, records) of each batch: the order of the records of a node is kept."""
    records = [decode(line) for line in lines]
    delays_ns = {node: round(chance.uniform(0, LATEST_S) * 1e9) for node in sorted({r.node or "" for r in records})}
    for record in records:
        record.rx += delays_ns[record.node or ""]
    records.sort(key=lambda record: record.rx)
    batches = []
    while records:
        size = chance.randint(1, chance.choice((1, 4, MOST_AT_ONCE)))
        batch, records = records[:size], records[size:]
        batches.append((batch[-1].rx, batch))
    return batches


async def replay(name: str, lines: Sequence[bytes], chance: random.Random) -> Replayed:
    """Replay one recording with batches drawn by `chance`."""
    batches = arrivals(lines, chance)
    clock = Clock(batches[0][0])
    last_stacks = max(
        (index for index, (_, batch) in enumerate(batches) if any(isinstance(r, Stack) for r in batch)), default=None
    )
    with clock.holds():
        watch = Watch(name, clock, WatchConfig(stall_s=STALL_S))
        for index, (arrives_ns, batch) in enumerate(batches):
            while arrives_ns - clock.now_ns > LOOK_S * 1e9:
                clock.now_ns += round(LOOK_S * 1e9)
                await watch.look()
            clock.now_ns = arrives_ns
            watch.console.bus.publish(batch)
            watch.has_captured |= index == last_stacks
        await watch.look()
        await watch.look(is_last=True)
    watch.result.seconds = (batches[-1][0] - batches[0][0]) / 1e9
    return watch.result


class Watch:
    """The parts of `gconsole watch` that decide about alerts."""

    def __init__(self, name: str, clock: Clock, watch: WatchConfig, severities: Sequence[str] = SEVERITIES) -> None:
        self._name, self._clock = name, clock
        config = Config(cluster="replay", nodes=(), watch=watch)
        self.console = Console(config, probe_clocks=False, clock=clock.seconds, black_box=False)
        store, findings = self.console.store, self.console.findings
        self._topology = TopologyFindings(store, TopologyFold(store), findings, clock.seconds)
        self._rules = AlertTracker([example_rule(severity) for severity in severities])
        self._suspected: dict[JobKey, Suspicion] = {}
        self.has_captured = False  # the stacks of the recording are complete, as after a diagnosis
        self.result = Replayed(replays=1)

    def captured(self, suspected: Mapping[JobKey, Suspicion]) -> Sequence[JobKey]:
        """The jobs whose capture is complete."""
        return tuple(suspected) if self.has_captured else ()

    async def look(self, *, is_last: bool = False) -> None:
        """One look, in the order of `gconsole watch`: stalls, findings, then the rules."""
        store, findings, stalls = self.console.store, self.console.findings, self.console.stalls
        self._suspected |= {suspicion.job: suspicion for suspicion in stalls.due()}
        captured = self.captured(self._suspected)
        if captured:
            findings.report("verdict", stalls.diagnosed(tuple(self._suspected.pop(job) for job in captured)))
        if findings.is_due or is_last:
            await findings.evaluate(is_last=is_last)
            await self._topology.evaluate(at_last=is_last)
        background = asyncio.all_tasks() - {asyncio.current_task()}
        if background:
            await asyncio.wait(background)  # on this clock, no time passes while an analysis runs
        if findings.failing:
            raise RuntimeError(f"{self._name}: {', '.join(findings.failing)} failed")
        current = [finding for finding in store.findings.values() if finding.cleared_at is None]
        for alert in self._rules.evaluate(current, lambda finding: (), self._clock.seconds()):
            self.result.alerts[alert.rule.name] += 1
            finding = alert.findings[0]
            self.result.examples.append(f"{alert.rule.name:8s} {self._name}: {finding.id}: {finding.text}")


def replay_all(recordings: dict[str, Path], seed: int, hours: float = 0.0, rounds: int = 0) -> Replayed:
    """Replay all recordings, in rounds with other batches each, until `hours` or the number of `rounds` is reached."""
    lines = {name: records_of(path) for name, path in recordings.items()}
    total, number = Replayed(), 0
    while number < rounds or total.seconds < hours * HOUR_S:
        for name in lines:
            total.add(asyncio.run(replay(name, lines[name], random.Random(f"{seed} {number} {name}"))))
        number += 1
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=HOURS, help=f"hours of healthy jobs; {HOURS:g} by default")
    parser.add_argument("--seed", type=int, default=1, help="of the batches")
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    began_s, recordings = time.monotonic(), healthy()
    total = replay_all(recordings, options.seed, options.hours)
    took_s = time.monotonic() - began_s
    for example, count in Counter(total.examples).most_common():
        print(f"{count:5d} × {example[:200]}")
    print(
        f"{total.seconds / HOUR_S:.1f} h of {len(recordings)} recorded healthy jobs in {total.replays} replays,"
        f" at {total.seconds / took_s:.0f} × speed, stall_s {STALL_S:g}"
    )
    for severity in SEVERITIES:
        print(f"rule on {severity:8s} {total.alerts[severity]:5d} alerts, {total.per_week(severity):.1f} per week")
    return 1 if total.alerts["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
