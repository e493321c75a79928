"""Replays a recorded session through the watch: `python -m tests.watch.replay_session FOLDER [--speed 10]`.

The records arrive in the order and at the instants of the recording, on a clock that runs `--speed` times as fast; 0 is
as fast as the processor permits. The parts of the watch are those of `replay_healthy`. A job that appears to stand
still or slow is diagnosed by the stacks that were captured about then, when the recorded watch diagnosed it; without
any it is counted as not captured. Exit code 1 if a rule alerted on an error.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gconsole.analysis.stalls import JobKey, Suspicion
from gconsole.config.sections import WatchConfig
from gconsole.core.bus import Published
from gconsole.records import ConsoleRecord, Finding, Stack, decode
from gconsole.records.kinds import is_gone
from gconsole.session.format.reader import ignore_damage, lenient

from .replay_healthy import HOUR_S, LOOK_S, SEVERITIES, Clock, Watch, records_of

#: Seconds by which stacks may be older than the suspicion, after the last of which a capture is complete, and after
#: which none comes.
BEFORE_S, COMPLETE_S, LATEST_S = 5.0, 4.0, 90.0


class RecordedWatch(Watch):
    """A watch that diagnoses by the captures of a recording."""

    def __init__(self, name: str, clock: Clock, watch: WatchConfig) -> None:
        super().__init__(name, clock, watch)
        self._suspected_s: dict[JobKey, float] = {}
        self._stacks_s: dict[JobKey, float] = {}  # the newest stack of a job
        self.not_captured = Counter[JobKey]()
        self.job_s = Counter[JobKey]()

    def follow(self, batch: Sequence[Published]) -> None:
        """Publish records as live."""
        self.console.bus.publish(list(batch))
        for record in batch:
            if isinstance(record, Stack):
                now = self.console.store.ranks.get((record.node, record.pid, record.start_ticks))
                if now is not None:
                    self._stacks_s[now.rank.job, now.rank.attempt] = self._clock.seconds()

    def captured(self, suspected: Mapping[JobKey, Suspicion]) -> Sequence[JobKey]:
        """The jobs whose capture has ended."""
        now_s, complete = self._clock.seconds(), []
        for job in list(suspected):
            since_s, newest_s = self._suspected_s.setdefault(job, now_s), self._stacks_s.get(job, 0.0)
            if newest_s >= since_s - BEFORE_S and now_s - newest_s >= COMPLETE_S:
                complete.append(job)
            elif newest_s < since_s - BEFORE_S and now_s - since_s >= LATEST_S:
                self.not_captured[job] += 1
                self._suspected.pop(job)
            else:
                continue
            del self._suspected_s[job]
        return complete

    def count_jobs(self, seconds: float) -> None:
        """Add seconds to every job that runs."""
        for job in {
            (now.rank.job, now.rank.attempt) for now in self.console.store.ranks.values() if not is_gone(now.rank)
        }:
            self.job_s[job] += seconds


def batches(path: Path) -> Iterator[list[Published]]:
    """The records that came from nodes, in batches of what arrived within `LOOK_S`."""
    batch: list[Published] = []
    until = 0
    records = map(decode, records_of(path)) if path.is_file() else lenient(path, ignore_damage)
    for record in records:
        if isinstance(record, Finding | ConsoleRecord):
            continue
        if record.rx > until:
            if batch:
                yield batch
            batch, until = [], record.rx + round(LOOK_S * 1e9)
        batch.append(record)
    if batch:
        yield batch


async def replay(path: Path, config: WatchConfig, speed: float) -> RecordedWatch:
    """Replay a session, or a recording of the corpus; with `speed` 0 as fast as possible."""
    clock, watch, first_ns = Clock(0), None, 0
    began_s = time.perf_counter()
    for batch in batches(path):
        rx = max(record.rx for record in batch)
        if watch is None:
            first_ns = clock.now_ns = rx
            with clock.holds():
                watch = RecordedWatch(path.name, clock, config)
        ahead_s = (rx - first_ns) / 1e9 / speed - (time.perf_counter() - began_s) if speed else 0.0
        if ahead_s > 0:
            await asyncio.sleep(ahead_s)
        with clock.holds():
            passed_s = max(0, rx - clock.now_ns) / 1e9
            clock.now_ns = max(clock.now_ns, rx)
            watch.follow(batch)
            watch.count_jobs(passed_s)
            await watch.look()
    if watch is None:
        raise ValueError(f"{path} has no records")
    with clock.holds():
        await watch.look(is_last=True)
    watch.result.seconds = (clock.now_ns - first_ns) / 1e9
    return watch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("session", type=Path, help="folder of the session")
    parser.add_argument("--speed", type=float, default=10.0, help="10 by default; 0: as fast as possible")
    parser.add_argument("--stall-s", type=float, default=WatchConfig().stall_s, help="[watch] stall_s")
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    began_s, cpu_s = time.perf_counter(), time.process_time()
    watch = asyncio.run(replay(options.session, WatchConfig(stall_s=options.stall_s), options.speed))
    took_s, result = time.perf_counter() - began_s, watch.result
    for example in result.examples:
        print(example[:300])
    for (job, attempt), times in watch.not_captured.items():
        print(f"{job} attempt {attempt} appeared to stand still or slow {times} times without a capture")
    hours = sum(watch.job_s.values()) / HOUR_S
    print(
        f"{result.seconds / HOUR_S:.2f} h with {hours:.1f} hours of {len(watch.job_s)} runs of jobs,"
        f" at {result.seconds / took_s:.1f} × speed, {time.process_time() - cpu_s:.0f} CPU s"
    )
    for severity in SEVERITIES:
        print(f"rule on {severity:8s} {result.alerts[severity]:5d} alerts")
    return 1 if result.alerts["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
