"""Diagnoses healthy jobs again and again, as `d` does: `python -m tests.hangs.healthy [--times 100] [NAME …]`.

Every kind of healthy job of the corpus runs for a while under one console, which asks for a verdict every few seconds.
Prints how often it was which, and exits with 1 if a job that trains was anything but progressing, or if any healthy
job was called hung or an innocent rank was named.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from live_fleet import started_fleet
from rig import Rig

from gconsole.core.control import CaptureRequest, new_capture
from gconsole.monitor.hang import Diagnosis, diagnose
from gconsole.present.spans import state_word

from .labels import LabelledJob
from .live_jobs import running
from .rounds import LAST, runnable

#: Seconds between two diagnoses, so that each meets the job at another place.
EVERY_S = 1.7
#: Seconds that a job trains before the first one.
SETTLES_S = 5.0
Counted = list[tuple[str, Counter[str], list[str]]]  # (job, answers by state, texts of those that are wrong)


def healthy() -> list[LabelledJob]:
    """The jobs that may be run here and that nothing is wrong with, those that train first."""
    jobs = [job for job in runnable() if job.label.states <= {"moving", "slow", "undecided"} and not job.restarts]
    jobs = [job for job in jobs if job.label.kinds == {"none"} and job.label.states != {"undecided"} and not job.beside]
    return sorted(jobs, key=lambda job: not trains(job))


def trains(job: LabelledJob) -> bool:
    """Whether every verdict on it should be that it progresses."""
    return job.label.states == {"moving"}


async def ask(target: Path, job: LabelledJob, times: int) -> tuple[Counter[str], list[str]]:
    """Diagnose a running job so many times: (answers by state, texts of the wrong ones)."""
    answers, wrong = Counter[str](), []
    async with started_fleet(target) as watch:
        await watch.sampled()
        await watch.fleet.capture(CaptureRequest(new_capture()))  # py-spy is uploaded
        await asyncio.sleep(SETTLES_S)
        for _ in range(times):
            verdicts = [judged.verdict for judged in await diagnose(watch.store, watch.fleet, Diagnosis())]
            state = verdicts[0].state if verdicts else "none"
            answers[state] += 1
            named = {culprit.rank for verdict in verdicts for culprit in verdict.culprits}
            is_wrong = state == "hung" or named - job.label.may_name or (trains(job) and state != "moving")
            if is_wrong:
                wrong.append(f"{state}: {verdicts[0].summary}" if verdicts else state)
            await asyncio.sleep(EVERY_S)
    return answers, wrong


def run_share(number: int, jobs: Sequence[LabelledJob], times: int, results: multiprocessing.Queue[Counted]) -> None:
    """Run some of the jobs, one after the other, on nodes of their own."""
    counted: Counted = []
    try:
        with Rig(nodes=4, name=f"w{number}") as rig, tempfile.TemporaryDirectory() as folder:
            for job in jobs:
                hosts = rig.write_hosts_toml(
                    Path(folder, "hosts.toml"), only=[node.name for node in rig.nodes[: job.nodes]]
                )
                try:
                    with running(rig, job):
                        answers, wrong = asyncio.run(ask(hosts, job, times))
                except RuntimeError as error:  # it did not start
                    answers, wrong = Counter({"not run": 1}), [str(error)]
                counted.append((job.id, answers, wrong))
                states = ", ".join(f"{state_word(state)} {count}" for state, count in answers.most_common())
                print(f"{job.id:28s} {states}", *wrong[:3], sep="\n    ", flush=True)
    finally:  # else the parent would wait for ever
        results.put(counted)


def main() -> int:
    parser = argparse.ArgumentParser(description="Diagnose healthy jobs many times.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these jobs")
    parser.add_argument("--times", type=int, default=100, help="diagnoses of each job; 100 by default")
    parser.add_argument("--at-a-time", type=int, default=2, metavar="N", help="jobs at a time; 2 by default")
    options = parser.parse_args()
    began, shares = time.monotonic(), options.at_a_time
    jobs = [job for job in healthy() if not options.names or job.id in options.names]
    last = [job for job in jobs if LAST.intersection(job.needs)]
    others = [job for job in jobs if job not in last]
    results: multiprocessing.Queue[Counted] = multiprocessing.Queue()
    counted: Counted = []
    for parts in ([others[number::shares] for number in range(shares)], [last]):
        workers = [
            multiprocessing.Process(target=run_share, args=(number, part, options.times, results))
            for number, part in enumerate(parts)
            if part
        ]
        for worker in workers:
            worker.start()
        counted += [entry for _ in workers for entry in results.get()]
        for worker in workers:
            worker.join()
    asked = sum(answers.total() for _, answers, _ in counted)
    wrong = sum(len(texts) for _, _, texts in counted)
    print(f"{len(counted)} jobs, {asked} verdicts, {wrong} wrong, in {time.monotonic() - began:.0f} s, "
          f"load {os.getloadavg()[1]:.1f}")  # fmt: skip
    return 1 if wrong or len(counted) < len(jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
