"""Runs the labelled jobs live and prints the scores: `python -m tests.collectives.live [SHAPE …]`.

Each shape is started once with worker servers and once without (`--recorder with|without|both`), and is healthy, then
slow, then hung. `--times` diagnoses each healthy job so many times. `--record` keeps the records of what it ran with
worker servers in `recordings/`; without them the same recordings are judged without their Flight Recorder.
`--for 300` watches long enough for light samples to name a slow rank without a Flight Recorder.
`--keep` keeps the report and the records of each wrong or inexact verdict, so that the defect can be replayed.
Exit code 1 if an innocent rank is named, a healthy job has a finding, or less than 90 % are right.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Makes `from rig import Rig` and `from jobs import Job` work, as in the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from jobs import find_torch_python, gloo_environment, start_plain
from program import run_program
from rig import Rig

from tests.hangs.labels import Label
from tests.hangs.make_recordings import GCONSOLE, without_this_machine
from tests.hangs.score import NOTHING, Outcome, grade, score, summary_of, table

from .labels import SHAPES, Fault, Shape, ShapeCase

SCRIPT = Path(__file__).parent / "jobs" / "shapes.py"
RECORDINGS = Path(__file__).parent / "recordings"
GOAL = 0.9
#: Findings that name ranks, or a whole job: none of them may be there on a healthy job.
ABOUT_JOBS = frozenset({
    "straggler", "desync", "slow", "job_stalled", "rank_missing", "rank_dead", "rank_stopped", "rank_blocked",
    "rank_absent", "collective_mismatch", "p2p_cycle", "wait_cycle", "external", "clock_violated",
})  # fmt: skip
#: Seconds for which each run watches, longer than [hang] min_frozen_s, before it reads stacks and Flight Recorders.
WATCHED_S = 7
READY_S = 300.0
#: Records that no verdict and no lateness rests on; findings are judged anew.
DROPPED = frozenset({
    "finding", "host", "setting", "rank_setting", "capacity", "agent_cost", "clock_cost", "clock_bins", "inventory",
    "log",
})  # fmt: skip
Graded = tuple[ShapeCase, Label, Outcome, str]


def judge(case: ShapeCase, report: dict[str, Any]) -> tuple[Outcome, str]:
    """The outcome of a report, with its findings: also of the findings, which may name no innocent rank."""
    verdicts = report["verdicts"]
    answer = summary_of(verdicts[0]) if verdicts else NOTHING
    outcome = grade(case.label, answer)
    findings = [(line["id"], list(line["culprits"])) for line in report["findings"] if line["id"] in ABOUT_JOBS]
    named = {culprit for _, culprits in findings for culprit in culprits}
    right = case.label.culprits | case.label.may_name
    nodes = {f"node{rank // case.shape.per_node + 1}" for rank in right}  # ranks that are late together, by their node
    innocent = named - {f"rank {rank}" for rank in right} - nodes
    if innocent or (case.fault == "healthy" and findings):
        outcome = "wrong"
    elif case.label.decidable and outcome == "refused" and ("straggler", [f"rank {case.shape.culprit}"]) in findings:
        outcome = "right"  # by the Flight Recorder, where the stacks show nothing
    return outcome, f"{answer}; findings {findings}"


def run_shape(
    rig: Rig,
    shape: Shape,
    has_recorder: bool,
    folder: Path,
    times: int,
    faults: Sequence[Fault],
    record: bool,
    keep: Path | None = None,
    watched_s: int = WATCHED_S,
) -> Iterator[Graded]:
    """Start a shape and judge it with each of its faults."""
    nodes = rig.nodes[:2]
    hosts = rig.write_hosts_toml(folder / "hosts.toml", only=[node.name for node in nodes])
    fault_files = [node.folder / "fault" for node in nodes]
    for path in fault_files:
        path.write_text("healthy\n")
    env = {
        **gloo_environment(rig), "SHAPE": shape.name, "CULPRIT": str(shape.culprit),
        "FAULT_FILE": f"{nodes[0].inside}/fault", "TORCH_FR_BUFFER_SIZE": "96",
        **({"RECORDER": "1"} if has_recorder else {}), **({"DEVICE_MESH": "1"} if shape.device_mesh else {}),
        **({"LIGHT_TORCH": "launchers"} if shape.needs_all_of_torch else {}),
    }  # fmt: skip
    python = str(find_torch_python())
    with start_plain(rig, SCRIPT, nodes, shape.per_node, env, python=python) as job:
        job.wait_ready(READY_S)
        for fault in faults:
            case = ShapeCase(shape, fault, has_recorder)
            for path in fault_files:
                path.write_text(f"{fault}\n")
            for _ in range(times if fault == "healthy" else 1):
                report, records = folder / "report.json", folder / "records.ndjson"
                for path in (report, records):
                    path.unlink(missing_ok=True)
                argv = [
                    GCONSOLE, "batch", hosts, "-q", "--for", f"{watched_s}s", "--diagnose", "--skew", "-o", report,
                    "--records", records,
                ]  # fmt: skip
                run = run_program(argv, deadline_s=180.0 + watched_s)
                if not report.exists():
                    raise RuntimeError(f"gconsole ended with {run.status}: {run.stderr}")
                outcome, answer = judge(case, json.loads(report.read_text()))
                if keep is not None and outcome in ("wrong", "inexact"):
                    name = keep / f"{case.id}-{outcome}-{time.strftime('%H%M%S')}"
                    shutil.copy(report, f"{name}.json")
                    shutil.copy(records, f"{name}.ndjson")
                yield case, case.label, outcome, answer
            if record:
                text = without_this_machine(records.read_text()).replace(str(SCRIPT.parent), "/home/user/train")
                (RECORDINGS / f"{shape.name}-{fault}.ndjson.xz").write_bytes(packed(text))


def packed(text: str) -> bytes:
    """Records without those that no verdict rests on, compressed."""
    kept = [line for line in text.splitlines() if json.loads(line)["kind"] not in DROPPED]
    return lzma.compress("".join(f"{line}\n" for line in kept).encode(), preset=9)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help="only these")
    parser.add_argument("--recorder", choices=("with", "without", "both"), default="both")
    parser.add_argument("--fault", choices=("healthy", "slow", "hung"), action="append", help="only these")
    parser.add_argument("--times", type=int, default=1, help="diagnoses of each healthy job")
    parser.add_argument(
        "--for",
        type=int,
        default=WATCHED_S,
        metavar="SECONDS",
        dest="watched_s",
        help="watch for this long before the verdict",
    )
    parser.add_argument("--name", default="shp", help="of the rig; runs at the same time need one each")
    parser.add_argument("--record", action="store_true", help="keep the records")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep reports and records of wrong verdicts there")
    options = parser.parse_args()
    wanted = [shape for shape in SHAPES if not options.shapes or shape.name in options.shapes]
    sides = {"with": (True,), "without": (False,), "both": (True, False)}[options.recorder]
    graded: list[Graded] = []
    failed = []
    RECORDINGS.mkdir(exist_ok=True)
    with Rig(nodes=2, name=options.name) as rig, tempfile.TemporaryDirectory() as folder:
        for shape in wanted:
            for has_recorder in sides:
                began = time.monotonic()
                faults = [fault for fault in shape.faults if not options.fault or fault in options.fault]
                try:
                    for case, label, outcome, answer in run_shape(
                        rig, shape, has_recorder, Path(folder), options.times, faults,
                        options.record and has_recorder, options.keep, options.watched_s,
                    ):  # fmt: skip
                        graded.append((case, label, outcome, answer))
                        took = f"{time.monotonic() - began:6.1f} s, load {os.getloadavg()[0]:4.1f}"
                        print(f"{outcome:8s} {took}  {case.id:36s} {answer}", flush=True)
                except (RuntimeError, TimeoutError) as error:  # it did not start
                    failed.append(shape.name)
                    print(f"not run  {shape.name}: {str(error)[-400:]}", flush=True)
    outcomes = [(case.fault, label, outcome) for case, label, outcome, _ in graded]
    total = score("all", [(label, outcome) for _, label, outcome in outcomes])
    parts = [
        score(fault, [(label, outcome) for own, label, outcome in outcomes if own == fault])
        for fault in ("healthy", "slow", "hung")
    ]
    print(*table([*parts, total]), f"{len(graded)} verdicts, load {os.getloadavg()[1]:.1f}", sep="\n")
    return 0 if not failed and total.wrong == 0 and total.share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
