"""Compares the step clock with real torchrun jobs: `python -m tests.watch.step_clock --for 240s`.

Each job has two ranks on two nodes and watches nothing; `gconsole batch` runs beside them. Prints the length of a step
as the job measured it and as gconsole shows it. Exit code 1 if one is missing, or differs by more than 1 %.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from jobs import Job, start_torchrun
from program import GCONSOLE
from rig import Rig

SCRIPT = Path(__file__).parent / "jobs/short_steps.py"
STEPS_S = (0.22, 0.3, 0.5, 0.8, 1.3, 2.2, 4.0, 9.0)
MOST_ERROR = 0.01


def measured_s(job: Job) -> float:
    """The mean of the newest steps, as rank 0 printed it last."""
    return float([line for line in job.output().splitlines() if "MEAN" in line][-1].partition("MEAN")[2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--for", dest="duration", default="300s", help="of the run of batch")
    parser.add_argument("--jitter", type=float, default=0.02, help="standard deviation of a step, relative")
    options = parser.parse_args()
    are_right = True
    with contextlib.ExitStack() as stack:
        rig = stack.enter_context(Rig(nodes=2 * len(STEPS_S), name="steps"))
        hosts = rig.write_hosts_toml(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "hosts.toml")
        jobs = []
        for number, step_s in enumerate(STEPS_S):
            nodes = rig.nodes[2 * number : 2 * number + 2]
            env = {"STEP_S": str(step_s), "STEP_JITTER": str(options.jitter)}
            jobs.append((nodes[0].name, stack.enter_context(start_torchrun(rig, nodes, 1, SCRIPT, env))))
        argv = [str(GCONSOLE), "batch", str(hosts), "--for", options.duration, "--json"]
        report = json.loads(subprocess.run(argv, check=False, stdout=subprocess.PIPE).stdout)
        job_on = {rank["node"]: rank["job"] for rank in report["ranks"]}
        lines = {line["job"]: line for line in report["jobs"]}
        for node, job in jobs:
            line, mean_s = lines[job_on[node]], measured_s(job)
            error = None if line["step_s"] is None else line["step_s"] / mean_s - 1.0
            are_right = are_right and error is not None and abs(error) <= MOST_ERROR
            shown = "unknown" if error is None else f"{line['step_s']:.4f} s  {error:+.2%}  {line['step_source']}"
            print(f"step {mean_s:.4f} s  shown {shown}")
    return 0 if are_right else 1


if __name__ == "__main__":
    sys.exit(main())
