"""Runs every labelled crash live once and prints the outcomes: `python -m tests.crashes.rounds [JOB …]`.

Exit code 1 if an innocent rank is named, a job that ended well raises an error, fewer than nine of ten are right, or a
job did not start.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from rig import Rig

from .labels import JOBS, Label
from .live_jobs import lacks_needs, watched
from .score import Outcome, answer_of, counts, grade

GOAL = 0.9


def main() -> int:
    parser = argparse.ArgumentParser(description="Run every labelled crash live once and print the outcomes.")
    parser.add_argument("names", nargs="*", metavar="JOB", help="only these, by id")
    names = parser.parse_args().names
    jobs = [job for job in JOBS if (not names or job.id in names) and not lacks_needs(job)]
    began, graded, missing = time.monotonic(), list[tuple[Label, Outcome]](), 0
    with Rig(nodes=2, name="c") as rig:
        for labelled in jobs:
            began_s = time.monotonic()
            try:
                with tempfile.TemporaryDirectory() as folder:
                    answer = answer_of(watched(rig, labelled, Path(folder)))
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                missing += 1
                print(f"not run           {labelled.id:28s} {error}", flush=True)
                continue
            outcome = grade(labelled.label, answer)
            graded.append((labelled.label, outcome))
            took_s = time.monotonic() - began_s
            print(f"{outcome:8s} {took_s:5.1f} s  {labelled.id:28s} {answer}", flush=True)
    by_outcome, share = counts(graded)
    print(f"{dict(by_outcome)}, {share:.0%} of the decidable ones are right, {missing} did not run")
    print(f"{len(graded)} jobs in {time.monotonic() - began:.0f} s, load {os.getloadavg()[1]:.1f}")
    return 0 if not missing and not by_outcome["wrong"] and share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
