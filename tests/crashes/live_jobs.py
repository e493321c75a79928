"""Runs a labelled job on the nodes of a rig while the program watches, until the job has died or ended."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fork_server import GCONSOLE
from jobs import find_torch_python, gloo_environment
from rig import Node, Rig
from rig.processes import descendants, end

from .labels import LabelledJob

SCRIPTS = Path(__file__).parent / "jobs"
READY_S, ENDED_S, CONNECTED_S = 180.0, 90.0, 60.0
#: Seconds after the job's end: outputs arrive, and findings are raised.
AFTER_S = 4.5
#: Seconds for which a node that reboots is away.
REBOOT_S = 14.0
#: Size of the file system that a job fills.
SMALL_DISK = "size=8m"


@dataclass
class RunningJob:
    """The processes of a job: launchers, or ranks without one."""

    labelled: LabelledJob
    rig: Rig
    folder: str
    nodes: list[Node]
    launchers: list[tuple[Node, subprocess.Popen[Any]]] = field(default_factory=list)

    def ranks(self) -> dict[int, tuple[Node, int]]:
        """{rank: (node, pid on it)} of the ranks that are ready."""
        ready = {}
        for node in self.nodes:
            for path in (node.folder / self.folder).glob("rank[0-9]*"):
                if path.name[4:].isdigit():
                    ready[int(path.name[4:])] = (node, int(path.read_text()))
        return ready

    def is_over(self) -> bool:
        return all(popen.poll() is not None for _, popen in self.launchers)

    def kill(self) -> None:
        launched = [pid for _, popen in self.launchers for pid in descendants(popen.pid)]
        for _, popen in self.launchers:
            popen.kill()
            popen.wait(20)
        end(launched, grace_s=0)


@contextlib.contextmanager
def running(rig: Rig, labelled: LabelledJob) -> Iterator[RunningJob]:
    """The job, started; killed at the end."""
    nodes = rig.nodes[: labelled.nodes]
    number = len(list(nodes[0].folder.glob("crash-*")))
    job = RunningJob(labelled, rig, f"crash-{number}", nodes)
    for node in nodes:
        (node.folder / job.folder).mkdir()
        (node.folder / job.folder / "checkpoints").mkdir()
        node.output(["mount", "-t", "tmpfs", "-o", SMALL_DISK, "tmpfs", f"{node.inside}/{job.folder}/checkpoints"])
    try:
        _start(job, 29600 + 10 * number)
        yield job
    finally:
        job.kill()
        for node in nodes:
            with contextlib.suppress(subprocess.CalledProcessError, OSError):
                node.output(["umount", f"{node.inside}/{job.folder}/checkpoints"])


def _start(job: RunningJob, port: int) -> None:
    labelled, nodes = job.labelled, job.nodes
    script, python, master = str(SCRIPTS / f"{labelled.name}.py"), str(find_torch_python()), nodes[0].address
    for index, node in enumerate(nodes):
        own = f"{node.inside}/{job.folder}"
        env = {
            **gloo_environment(job.rig), "READY_FOLDER": own, "CHECKPOINTS": f"{own}/checkpoints",
            "LIGHT_TORCH": "launchers" if labelled.whole_torch else "ranks", "PER_NODE": str(labelled.per_node),
            "JOIN_TIMEOUT_S": str(labelled.timeout_s),
        }  # fmt: skip
        if labelled.needs:
            env["PYTHONPATH"] = ""
        master_env = {"MASTER_ADDR": master, "MASTER_PORT": str(port)}
        torchrun = [
            python, "-m", "torch.distributed.run", f"--nnodes={len(nodes)}", f"--node-rank={index}",
            f"--nproc-per-node={labelled.per_node}", f"--master-addr={master}", f"--master-port={port}",
        ]  # fmt: skip
        if labelled.launcher == "redirected":
            torchrun += ["--redirects", "3", "--log-dir", f"{own}/logs"]
        if labelled.restarts:
            torchrun.append(f"--max-restarts={labelled.restarts}")
        if labelled.launcher == "plain":
            for local_rank in range(labelled.per_node):
                rank = {
                    "RANK": str(index * labelled.per_node + local_rank), "LOCAL_RANK": str(local_rank),
                    "WORLD_SIZE": str(len(nodes) * labelled.per_node), "LOCAL_WORLD_SIZE": str(labelled.per_node),
                    "GROUP_RANK": str(index),
                }  # fmt: skip
                _run(job, node, [python, script], {**env, **master_env, **rank}, f"rank-{local_rank}.log")
        elif labelled.launcher == "script":
            size = {"WORLD_SIZE": str(len(nodes) * labelled.per_node)}
            _run(job, node, [python, script], {**env, **master_env, **size}, "script.log")
        elif labelled.launcher == "accelerate":
            launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(labelled.per_node)]
            options = ["--num_machines", "1", "--main_process_port", str(port), "--mixed_precision", "no"]
            _run(job, node, [python, *launch, *options, script], {**env, "OMP_NUM_THREADS": "1"}, "accelerate.log")
        elif labelled.launcher == "pipe":
            _run(job, node, [*torchrun, script], env, None)
        elif labelled.launcher == "tee":
            line = " ".join([*torchrun, script]) + f" 2>&1 | tee {own}/tee.log > /dev/null"
            _run(job, node, ["bash", "-c", line], env, "bash.log")
        else:
            _run(job, node, [*torchrun, script], env, "torchrun.log")


def _run(job: RunningJob, node: Node, argv: list[str], env: dict[str, str], log: str | None) -> None:
    if log is None:
        popen = node.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        threading.Thread(target=popen.stdout.read, daemon=True).start()
    else:
        with (node.folder / job.folder / log).open("w") as file:
            popen = node.run(argv, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    job.launchers.append((node, popen))


# -- what happens to a job from outside --------------------------------------------------------------------------------


def _signal_rank(number: int, rank: int) -> Callable[[RunningJob], None]:
    def act(job: RunningJob) -> None:
        node, pid = job.ranks()[rank]
        node.kill(pid, number)

    return act


def _kill_for_memory(job: RunningJob) -> None:
    """SIGKILL, and the kernel's message about it in a stand-in of the kernel log."""
    node, pid = job.ranks()[1]
    time_us = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    text = f"Memory cgroup out of memory: Killed process {pid} (python) total-vm:9000000kB, anon-rss:8000000kB"
    with (node.folder / "kmsg").open("a") as file:
        file.write(f"3,1,{time_us},-;{text}\n")
    node.kill(pid, signal.SIGKILL)


def _lose_node(job: RunningJob) -> None:
    """The second node is disconnected, loses all its processes, and is there again after a while: a reboot."""
    node = job.nodes[1]
    node.down()
    for line in node.ps().splitlines():
        if "python" in line and line.split()[0] != "1":  # 1 is the init of its namespace
            with contextlib.suppress(ProcessLookupError):
                node.kill(int(line.split()[0]), signal.SIGKILL)
    (node.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
    node.output(["mount", "--bind", f"{node.inside}/boot_id", "/proc/sys/kernel/random/boot_id"])
    threading.Timer(REBOOT_S, node.up).start()


def _signal_launchers(number: int, indices: tuple[int, ...]) -> Callable[[RunningJob], None]:
    def act(job: RunningJob) -> None:
        for index in indices:
            job.launchers[index][1].send_signal(number)

    return act


def _terminate_all(job: RunningJob) -> None:
    for node, pid in job.ranks().values():
        node.kill(pid, signal.SIGTERM)
    for _, popen in job.launchers:
        popen.send_signal(signal.SIGTERM)


def _terminate_ranks(job: RunningJob) -> None:
    for node, pid in job.ranks().values():
        node.kill(pid, signal.SIGTERM)


ACTS: dict[str, Callable[[RunningJob], None]] = {
    "kill_rank_2": _signal_rank(signal.SIGKILL, 2),
    "terminate_rank_2": _signal_rank(signal.SIGTERM, 2),
    "kill_rank_1_for_memory": _kill_for_memory,
    "lose_node_2": _lose_node,
    "terminate_launcher_1": _signal_launchers(signal.SIGTERM, (1,)),
    "terminate_all": _terminate_all,
    "terminate_ranks": _terminate_ranks,
    "interrupt_launcher": _signal_launchers(signal.SIGINT, (0,)),
    "interrupt_launchers": _signal_launchers(signal.SIGINT, (0, 1)),
    "kill_launcher": _signal_launchers(signal.SIGKILL, (0,)),
}


# -- a run -------------------------------------------------------------------------------------------------------------


def watched(rig: Rig, labelled: LabelledJob, folder: Path) -> dict[str, Any]:
    """Run a job while `gconsole batch` watches it: the report. The records are in records.ndjson of the folder."""
    nodes = rig.nodes[: labelled.nodes]
    hosts = rig.write_hosts_toml(folder / "hosts.toml", only=[node.name for node in nodes])
    report, records = folder / "report.json", folder / "records.ndjson"
    with contextlib.ExitStack() as stack:
        for node in nodes:
            stack.enter_context(kernel_log(node))
        argv = [str(GCONSOLE), "batch", str(hosts), "--for", "10m", "-o", str(report), "--records", str(records)]
        errors = stack.enter_context((folder / "stderr").open("w+"))
        console = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        stack.callback(console.wait)
        stack.callback(console.kill)
        _until(lambda: f"nodes {len(nodes)}/{len(nodes)} sampled" in (folder / "stderr").read_text(), CONNECTED_S)
        job = stack.enter_context(running(rig, labelled))
        until_over(job)
        time.sleep(AFTER_S)
        console.send_signal(signal.SIGINT)
        console.wait(60)
    return dict(json.loads(report.read_text()))


def until_over(job: RunningJob) -> None:
    """Wait until a job is ready, do to it what its label says, and wait for its end."""
    labelled = job.labelled
    size = labelled.nodes * labelled.per_node
    if labelled.act or labelled.lasts_s > 1:
        if labelled.name not in ("port_taken",):
            _until(lambda: len(job.ranks()) == size or job.is_over(), READY_S)
        if labelled.act:
            ACTS[labelled.act](job)
    if labelled.lasts_s:
        began = time.monotonic()
        least_s = max(labelled.lasts_s, 30.0 if labelled.name in ("port_taken",) else 0.0)
        while not job.is_over() and time.monotonic() - began < (ENDED_S if labelled.lasts_s == 1 else least_s):
            time.sleep(0.1)
    else:
        _until(job.is_over, READY_S + ENDED_S)


@contextlib.contextmanager
def kernel_log(node: Node) -> Iterator[None]:
    """A stand-in of the node's kernel log: the machine's own would be read by every node."""
    (node.folder / "kmsg").write_text("")
    node.output(["mount", "--bind", f"{node.inside}/kmsg", "/dev/kmsg"])
    try:
        yield
    finally:
        with contextlib.suppress(subprocess.CalledProcessError, OSError):
            node.output(["umount", "/dev/kmsg"])


def _until(condition: Callable[[], Any], deadline_s: float) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {deadline_s:g} s")
        time.sleep(0.05)


def lacks_needs(labelled: LabelledJob) -> bool:
    """Whether a job needs a program that is not installed, or a module that the jobs' Python does not have."""
    if labelled.program and shutil.which(labelled.program) is None:
        return True
    if not labelled.needs:
        return False
    probe = f"import {labelled.needs}"
    return bool(subprocess.run([find_torch_python(), "-c", probe], capture_output=True, check=False).returncode)
