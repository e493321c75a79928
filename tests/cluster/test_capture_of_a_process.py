"""A Python process that is no rank, captured by its pid."""

import subprocess
import sys
from pathlib import Path

import pytest
from jobs import find_torch_python, gloo_environment
from program import batch
from rig import Rig
from rig.processes import descendants, end

DEADLOCK = """
import threading

def take_twice():
    lock = threading.Lock()
    lock.acquire()
    print("ready", flush=True)
    lock.acquire()

take_twice()
"""

SPAWNED = """
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", "29941"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    dist.barrier()
    if rank == 0:
        print("ready", flush=True)
    while True:
        dist.all_reduce(torch.ones(4))
        time.sleep(0.05)


if __name__ == "__main__":
    mp.spawn(run, args=(2,), nprocs=2)
"""


def test_stack_of_a_process_that_is_no_rank_is_captured_by_its_pid(rig: Rig, tmp_path: Path) -> None:
    node = rig.nodes[0]
    (node.folder / "alone.py").write_text(DEADLOCK)
    with node.run([sys.executable, f"{node.inside}/alone.py"], stdout=-1, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        pid = next(pid for pid in node.processes() if node.outer_pid(pid) == process.pid)
        hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name])
        run = batch(hosts, "--capture", "--pid", f"{node.name}:{pid}", deadline_s=60.0)
        gone = batch(hosts, "--capture", "--pid", f"{node.name}:4194303", deadline_s=60.0)
        process.kill()
    assert gone.status == 3, "nothing was captured"
    assert "no process with pid 4194303" in gone.stdout
    assert run.status == 0, run.stderr
    assert "take_twice  alone.py:8" in run.stdout


def test_batch_that_sees_a_process_and_judges_none_is_partial_and_names_it(rig: Rig, tmp_path: Path) -> None:
    node = rig.nodes[0]
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name])
    before = batch(hosts, deadline_s=60.0)
    nothing = batch(hosts, "--diagnose", deadline_s=60.0)
    (node.folder / "alone.py").write_text(DEADLOCK)
    with node.run([sys.executable, f"{node.inside}/alone.py"], stdout=-1, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        pid = next(pid for pid in node.processes() if node.outer_pid(pid) == process.pid)
        run = batch(hosts, deadline_s=60.0)
        diagnosed = batch(hosts, "--diagnose", deadline_s=60.0)
        process.kill()
    assert before.status == 0, before.stdout
    assert before.report["unrecognised"] == []
    assert nothing.status == 3, "a diagnosis without ranks is none"
    assert run.status == diagnosed.status == 3
    [line] = run.report["unrecognised"]
    assert (line["node"], line["pid"], line["program"]) == (node.name, pid, "script")
    assert "1 Python process not recognised as a rank was not judged" in run.stdout
    assert f"--pid {node.name}:{pid}" in run.stdout


@pytest.mark.full
def test_rank_that_only_its_stack_numbers_is_captured_by_its_number(
    rig: Rig, needs_torch: None, tmp_path: Path
) -> None:
    node = rig.nodes[0]
    (node.folder / "spawned.py").write_text(SPAWNED)
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", only=[node.name])
    argv = [str(find_torch_python()), f"{node.inside}/spawned.py"]
    with node.run(argv, env=gloo_environment(rig), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            run = batch(hosts, "--capture", "--rank", "1", deadline_s=60.0)
        finally:
            end(descendants(process.pid), grace_s=0)
            process.kill()
    assert run.status == 0, run.stderr
    assert "1 rank" in run.stdout and "spawned.py" in run.stdout
