"""Python processes without a rank: jobs that nobody recognises, and services."""

import subprocess
import sys

import pytest
from fake_proc import torch_rank, watch
from test_nccl import maps

from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.proc.unclaimed import COMPUTE, SCRIPT, SERVICE

TORCH = "/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"


def program_of(proc, argv, cgroup="0::/user.slice/user-1000.slice/session-3.scope", **more):
    """The program that the record of a process has."""
    proc.python(100, argv, **more)
    (proc.root / "100/cgroup").write_text(cgroup + "\n")
    return watch(proc).processes[100].program


@pytest.mark.parametrize(
    "argv", ["x.py", "-u /home/ann/train.py --lr 1", "/tmp/job/main.py", "/opt/ml/code/train.py", "/usr/src/app/run.py"]
)
def test_script_of_a_user_is_a_job(proc, argv):
    assert program_of(proc, argv) == SCRIPT


@pytest.mark.parametrize(
    "argv",
    [
        "/usr/bin/networkd-dispatcher --run-startup-triggers", "-Es /usr/sbin/tuned -l -P", "-s /usr/sbin/firewalld",
        "/usr/share/unattended-upgrades/unattended-upgrade-shutdown --wait-for-signal", "/usr/bin/x.py",
        "-u bin/WALinuxAgent-2.9.egg -run-exthandlers", "-m ipykernel_launcher -f k.json", "-m http.server",
        "/home/ann/venv/bin/jupyter-lab", "/home/ann/venv/bin/tensorboard --logdir x", "-I -c pass",
        "/opt/venv/lib/python3.11/site-packages/ray/dashboard/dashboard.py --port 1",
        "/home/ann/.vscode-server/extensions/ms-python/server.py", "/usr/local/bin/exporter.py",
    ],
)  # fmt: skip
def test_daemon_or_tool_is_a_service(proc, argv):
    assert program_of(proc, argv) == SERVICE


def test_script_that_systemd_started_is_a_service_and_one_of_a_login_or_scheduler_is_not(proc):
    assert program_of(proc, "/opt/ours/agent.py", "0::/system.slice/ours.service") == SERVICE
    assert program_of(proc, "/opt/ours/agent.py", "0::/system.slice/ssh.service") == SCRIPT
    assert program_of(proc, "/opt/ours/agent.py", "0::/system.slice/slurmstepd.scope/job_7/step_0") == SCRIPT
    proc.process(90, "/bin/bash", ppid=1)
    assert program_of(proc, "/opt/ours/agent.py", "0::/system.slice/ours.service", ppid=90) == SCRIPT


def test_module_that_loads_torch_later_is_a_job_from_then_on(proc):
    proc.python(100, "-m my.train")
    seen = watch(proc)
    assert seen.processes[100].program == SERVICE
    maps(proc, 100, TORCH)
    for _ in range(4):
        seen.tick()
    assert seen.processes[100].program == COMPUTE
    count = len(seen.said)
    for _ in range(200):
        seen.tick()
    assert len(seen.said) == count, "one record for the change"


def test_notebook_and_idle_worker_of_ray_are_services_even_with_torch(proc):
    for pid, argv in ((100, "-m ipykernel_launcher -f k.json"), (101, "/opt/ray/_private/workers/default_worker.py")):
        proc.python(pid, argv)
        maps(proc, pid, TORCH)
    assert {process.program for process in watch(proc).processes.values()} == {SERVICE}


def test_init_of_a_container_is_a_job_only_if_it_computes(proc):
    proc.python(1, "/work/init.py", ppid=0)
    proc.python(100, "x.py", ppid=1)
    seen = watch(proc)
    assert {pid: process.program for pid, process in seen.processes.items()} == {1: SERVICE, 100: SCRIPT}
    maps(proc, 1, TORCH)
    for _ in range(4):
        seen.tick()
    assert seen.processes[1].program == COMPUTE


def test_rank_and_its_children_have_no_program(proc):
    proc.python(100, env=torch_rank(0, 1))
    proc.python(101, "helper.py", ppid=100)
    assert {process.program for process in watch(proc).processes.values()} == {None}


def test_process_that_is_not_readable_is_unknown(proc):
    proc.python(100, "x.py", denied=True)
    assert watch(proc).processes[100].program is None


def test_real_process_with_torch_is_a_job():
    pytest.importorskip("torch")
    source = "import torch, sys; print(1, flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline()
        from gconsole_remote.proc.unclaimed import _LIBRARIES

        assert _LIBRARIES.search(ProcFs().read(process.pid, "maps", 16 << 20))
    finally:
        process.kill()
        process.communicate()
