"""Runs every labelled job live once and prints the scores by class: `python -m tests.hangs.rounds [--loaded] [NAME …]`.

Loaded, four jobs run at a time, on nodes of their own, beside four busy loops: a load of 8 and more on two cores.
Exit code 1 if an innocent rank is blamed, a healthy job is called hung, less than 95 % are right, or a job did not
start.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from rig import Rig

from .labels import JOBS, Label, LabelledJob
from .live_jobs import graded_live, lacks_modules
from .score import Outcome, score, table

GOAL = 0.95
AT_A_TIME, BUSY_LOOPS = 4, 4
#: Modules whose jobs run after all others, one at a time: Ray gives up if it waits too long for a core at its start,
#: and DeepSpeed takes minutes to start on a busy one.
LAST = frozenset({"deepspeed", "ray.train"})
BUSY = "while True: sum(range(100_000))"
Graded = list[tuple[str, Label, Outcome]]  # (group, label, outcome)


def run_share(number: int, ids: Sequence[str], results: multiprocessing.Queue[Graded]) -> None:
    """Run some of the jobs, one after the other, on four nodes of their own."""
    graded: Graded = []
    try:
        run_jobs(number, ids, graded)
    finally:  # else the parent would wait for ever
        results.put(graded)


def run_jobs(number: int, ids: Sequence[str], graded: Graded) -> None:
    """Run the jobs and append their outcomes to `graded`."""
    with Rig(nodes=4, name=f"h{number}") as rig, tempfile.TemporaryDirectory() as folder:
        for job in (job for job in JOBS if job.id in ids):
            began = time.monotonic()
            try:
                answers = graded_live(rig, job, Path(folder))
            except RuntimeError as error:  # it did not start
                print(f"not run           {job.id:28s} {error}", flush=True)
                continue
            for label, outcome, answer in answers:
                graded.append((job.group, label, outcome))
                took = f"{time.monotonic() - began:5.1f} s"
                print(f"{outcome:8s} {took}  {job.id:28s} {'' if outcome == 'right' else answer}", flush=True)


def runnable(names: Sequence[str] = ()) -> list[LabelledJob]:
    """The jobs, of these ids if any are given, whose modules the jobs' Python has; prints which modules it lacks."""
    jobs = [job for job in JOBS if not names or job.id in names]
    lacking = {needs: lacks_modules(job) for job in jobs if (needs := job.needs)}
    for needs, modules in lacking.items():
        if modules:
            print(f"skipped: jobs that need {', '.join(needs)}")
    return [job for job in jobs if not lacking.get(job.needs)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run every labelled job live once and print the scores.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these jobs, by id")
    parser.add_argument("--loaded", action="store_true", help="four jobs at a time, beside four busy loops")
    parser.add_argument("--at-a-time", type=int, metavar="N", help="jobs at a time; without --loaded one by default")
    options = parser.parse_args()
    loaded: bool = options.loaded
    began, jobs = time.monotonic(), runnable(options.names)
    shares: int = options.at_a_time or (AT_A_TIME if loaded else 1)
    results: multiprocessing.Queue[Graded] = multiprocessing.Queue()
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(BUSY_LOOPS if loaded else 0)]
    last = [job.id for job in jobs if LAST.intersection(job.needs)]
    others = [job.id for job in jobs if job.id not in last]
    outcomes: Graded = []
    try:
        for lists in ([others[number::shares] for number in range(shares)], [last]):
            workers = [
                multiprocessing.Process(target=run_share, args=(number, ids, results))
                for number, ids in enumerate(lists)
            ]
            for worker in workers:
                worker.start()
            outcomes += [entry for _ in workers for entry in results.get()]
            for worker in workers:
                worker.join()
    finally:
        for process in busy:
            process.kill()
            process.wait()
    groups: dict[str, list[tuple[Label, Outcome]]] = defaultdict(list)
    for group, label, outcome in outcomes:
        groups[group].append((label, outcome))
    total = score("all", [entry for members in groups.values() for entry in members])
    print(*table([*(score(name, groups[name]) for name in sorted(groups)), total]), sep="\n")
    print(f"{len(outcomes)} verdicts in {time.monotonic() - began:.0f} s, load {os.getloadavg()[1]:.1f}")
    missing = sum(len(job.labels) for job in jobs) - len(outcomes)
    if missing:
        print(f"{missing} verdicts are missing: their jobs did not start")
    return 0 if not missing and total.wrong == 0 and total.share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
