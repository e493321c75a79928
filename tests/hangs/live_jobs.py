"""Runs a labelled job on the nodes of a rig until its fault has begun."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from jobs import Job, find_torch_python, gloo_environment, start_plain, start_script, start_torchrun
from program import batch
from rig import Rig

from .labels import Label, LabelledJob
from .score import NOTHING, Outcome, grade, summary_of

SCRIPTS = Path(__file__).parent / "jobs"
#: Four to eight interpreters import torch at once, on two shared cores.
READY_S = 300.0


@contextlib.contextmanager
def running(rig: Rig, labelled: LabelledJob, env: Mapping[str, str] | None = None) -> Iterator[list[Job]]:
    """The job, and the healthy one beside it if there is one, all ranks READY; killed at the end."""
    nodes = rig.nodes[: labelled.nodes]
    script = SCRIPTS / f"{labelled.name}.py"
    variables = {**gloo_environment(rig), "LIGHT_TORCH": labelled.light_torch, **(env or {})}
    if labelled.restarts:
        variables["PET_MAX_RESTARTS"] = str(labelled.restarts)  # as --max-restarts
    if labelled.needs:
        variables["PYTHONPATH"] = ""  # whole packages, not those of light_torch
    python = str(find_torch_python())
    with contextlib.ExitStack() as stack:
        if labelled.launcher == "torchrun":
            job = start_torchrun(rig, nodes, labelled.per_node, script, variables)
        elif labelled.launcher == "plain":
            job = start_plain(rig, script, nodes, labelled.per_node, variables, python=python, absent=labelled.absent)
        else:
            job = start_script(rig, script, nodes, labelled.per_node, variables, python)
        jobs = [stack.enter_context(job)]
        if labelled.beside:
            healthy = start_torchrun(rig, nodes, labelled.per_node, SCRIPTS / f"{labelled.beside}.py", variables)
            jobs.append(stack.enter_context(healthy))
        for job in jobs:
            wait_ready(job)
        yield jobs


def lacks_modules(labelled: LabelledJob) -> str:
    """The modules that a job needs and the jobs' Python does not have; empty if it has all."""
    probe = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    done = subprocess.run([find_torch_python(), "-c", probe, *labelled.needs], capture_output=True)
    return ", ".join(labelled.needs) if done.returncode else ""


def wait_ready(job: Job) -> None:
    """Wait until every rank has printed READY, including ranks that died since."""
    deadline = time.monotonic() + READY_S
    while len(job.ranks) < job.world_size:
        if all(process.popen.poll() is not None for process in job.processes) or time.monotonic() > deadline:
            raise RuntimeError(f"{len(job.ranks)} of {job.world_size} ranks were ready:\n{job.output()}")
        time.sleep(0.05)


def graded_live(rig: Rig, labelled: LabelledJob, folder: Path) -> list[tuple[Label, Outcome, str]]:
    """Run a job and diagnose it: (label, outcome, answer with the output) of it and of the one beside it."""
    hosts = rig.write_hosts_toml(folder / "hosts.toml", only=[node.name for node in rig.nodes[: labelled.nodes]])
    with running(rig, labelled):
        run = batch(hosts, *arguments(labelled), deadline_s=120.0)
    verdicts = sorted(run.report["verdicts"], key=lambda verdict: str(verdict["job"]))
    answers = [summary_of(verdict) for verdict in verdicts] or [NOTHING]
    return [
        (label, grade(label, answer), f"{answer}\n{run.stdout}\n{run.stderr}")
        for label, answer in zip(labelled.labels, answers, strict=False)
    ]


def arguments(labelled: LabelledJob) -> list[str]:
    """Arguments of `gconsole batch` for a verdict on such a job."""
    return [*(("--for", labelled.watched) if labelled.watched else ()), "--diagnose"]
