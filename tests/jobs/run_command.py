"""Runs `gconsole run`, and the scripts that it starts."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fork_server
from jobs import TORCH_ENVIRONMENT
from program import GCONSOLE, Run, gconsole
from rig import Rig

#: A real training loop: every rank steps an all_reduce and prints it; a file makes it misbehave.
TRAIN = """
import os, signal, sys, time
import torch, torch.distributed as dist

steps, bad_rank, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
if how == "ignore" and rank == bad_rank:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for step in range(steps):
    total = torch.ones(8)
    dist.all_reduce(total)
    print(f"step {step} sum {total[0]:.0f}", flush=True)
    if how == "fail" and rank == bad_rank and step == 2:
        print("out of luck", flush=True)
        os._exit(5)  # at once: while Python cleans up, its neighbours would die of the closed connection before it
    time.sleep(0.1)
if rank == 0:
    open("result.txt", "w").write("sum %d" % total[0])
dist.destroy_process_group()
"""

#: `--env` options of every torch job.
TORCH_OPTIONS = [word for name, value in TORCH_ENVIRONMENT.items() for word in ("--env", f"{name}={value}")]

#: The same without torch: only the variables that a launcher sets.
PLAIN = """
import os, sys, time
rank = int(os.environ["RANK"])
print("rank %d of %s at %s" % (rank, os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"]), flush=True)
until = sys.argv[1] if len(sys.argv) > 1 else ""
while until and not os.path.exists(until):
    time.sleep(0.05)
print("bye", flush=True)
"""


def run(*args: object, **options: Any) -> Run:
    return gconsole("run", *args, deadline_s=150.0, **options)


def list_jobs(hosts: Path) -> list[dict[str, Any]]:
    """All jobs that the nodes report."""
    return json.loads(run("status", hosts, "--json").stdout)["jobs"]


def start_job(hosts: Path, *args: object) -> str:
    """Start a job; its id."""
    result = run("start", hosts, "--yes", "--json", *args)
    assert result.status == 0, result.stdout + result.stderr
    return json.loads(result.stdout)["plan"]["job"]


def follow_until(hosts: Path, job: str, text: str, deadline_s: float = 150.0) -> None:
    """Follow a job's output with one command until it contains this text."""
    argv = [GCONSOLE, "run", "logs", hosts, job, "--follow"]
    following = fork_server.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    timer = threading.Timer(deadline_s, following.kill)
    timer.start()
    try:
        assert any(text in line for line in following.stdout), f"{text!r} not within {deadline_s:g} s, or the job ended"
    finally:
        timer.cancel()
        following.kill()
        following.communicate()


def processes_of(rig: Rig, word: str) -> list[str]:
    """Lines of ps on all nodes that contain this word."""
    return [f"{node.name} {line}" for node in rig.nodes for line in node.ps().splitlines() if word in line]


def until(condition: Callable[[], Any], deadline_s: float = 60.0) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s:g} s"
        time.sleep(0.1)
