"""10^8 random inputs over all targets: `python -m tests.fuzz.long_run [TARGET …] [--inputs N] [--hours 2.5]`.

Time is divided equally among the targets, in slices, until a target has a tenth of all inputs: fast parsers do not make
up the number alone, and slow ones (Parquet, recovery of segments) run for as long as the others. Ends when the inputs
are done and every target had its share of the time, or its tenth of the inputs; prints the inputs of each target.
Inputs are random mutations of valid inputs: guided by coverage, `make fuzz` with atheris tries fewer.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from multiprocessing.pool import AsyncResult

from .__main__ import FuzzResult, at_random
from .targets import TARGETS

#: Seconds of one slice.
SLICE_S = 10.0
#: Largest part of all inputs that one target has.
LARGEST_SHARE = 10


@dataclass
class Progress:
    """What the targets have had so far."""

    names: tuple[str, ...]  # of the targets
    goal: int
    hours: float
    workers: int
    inputs: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    failures: list[FuzzResult] = field(default_factory=list)

    @property
    def share_s(self) -> float:
        """Seconds of CPU time of each target."""
        return self.hours * 3600 * self.workers / len(self.names)

    def next_target(self, running: set[str]) -> str | None:
        """The target with the least time that is not done; None if all are done or run already."""
        names = [name for name in self.names if name not in running and not self._is_done(name)]
        return min(names, key=lambda name: self.seconds[name], default=None)

    def _is_done(self, name: str) -> bool:
        if self.inputs[name] >= self.goal // LARGEST_SHARE or any(failed.name == name for failed in self.failures):
            return True
        return self.seconds[name] >= self.share_s and sum(self.inputs.values()) >= self.goal

    def add(self, result: FuzzResult) -> None:
        self.inputs[result.name] += result.inputs
        self.seconds[result.name] += result.seconds
        if result.failure:
            self.failures.append(result)


def run_slice(name: str, most: int) -> FuzzResult:
    """In a process of its own, so that memory that a target keeps does not add up; its time is CPU time."""
    began = time.process_time()
    return replace(at_random(TARGETS[name], SLICE_S, most), seconds=time.process_time() - began)


def run(progress: Progress) -> None:
    """Run slices until all is done or the time is over."""
    began, last = time.monotonic(), time.monotonic()
    running: dict[str, AsyncResult[FuzzResult]] = {}
    with multiprocessing.get_context("spawn").Pool(progress.workers, os.nice, (15,), maxtasksperchild=20) as pool:
        while True:
            for name in [name for name, result in running.items() if result.ready()]:
                progress.add(running.pop(name).get())
            is_over = time.monotonic() - began > progress.hours * 3600
            while not is_over and len(running) < progress.workers and (name := progress.next_target(set(running))):
                most = progress.goal // LARGEST_SHARE - progress.inputs[name]
                running[name] = pool.apply_async(run_slice, (name, most))
            if not running:
                return
            if time.monotonic() - last > 60:
                last = time.monotonic()
                print(f"{sum(progress.inputs.values()):>12,} inputs, {last - began:6.0f} s", flush=True)
            time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(
        "long_run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="TARGET", help=f"only these of {', '.join(TARGETS)}")
    parser.add_argument("--inputs", type=int, default=10**8)
    parser.add_argument("--hours", type=float, default=2.5)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    unknown = set(options.names) - set(TARGETS)
    if unknown:
        parser.error(f"unknown target {', '.join(sorted(unknown))}")
    progress = Progress(tuple(options.names or TARGETS), options.inputs, options.hours, options.workers)
    run(progress)
    for name in progress.names:
        rate = progress.inputs[name] / max(0.1, progress.seconds[name])
        print(
            f"{name:10s} {progress.inputs[name]:>12,} inputs in {progress.seconds[name]:6.0f} s of CPU  {rate:>8,.0f}/s"
        )
    total = sum(progress.inputs.values())
    print(f"{'all':10s} {total:>12,} inputs in {sum(progress.seconds.values()):6.0f} s of CPU")
    for failed in progress.failures:
        print(f"\n{failed.name} FAILED\n{failed.failure}")
    return 1 if progress.failures or total < options.inputs else 0


if __name__ == "__main__":
    sys.exit(main())
