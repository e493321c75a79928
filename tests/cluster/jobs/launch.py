"""Starts jobs on the nodes of a rig; knows the node and pid of each rank."""

import functools
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig import Node, Rig, RigUnavailable
from rig.processes import descendants, end

FOLDER = Path(__file__).parent
MASTER_PORT = 29500
STOP_DEADLINE_S = 20.0
#: One thread per rank, and a faster import of torch (light_torch/sitecustomize.py).
TORCH_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(FOLDER / "light_torch"), "LIGHT_TORCH": "ranks"}
#: Anywhere on a line: another rank's prompt of pdb ends without a line break.
_READY = re.compile(r"\bREADY rank=(\d+) pid=(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Rank:
    """One rank as it reported itself; `pid` is that in the node's namespace."""

    rank: int
    node: str
    pid: int


@dataclass(frozen=True)
class Process:
    """A process started for a job: a launcher or a rank."""

    node: Node
    popen: subprocess.Popen
    log: Path


@dataclass
class Job:
    """A running job; a context manager that kills it on exit."""

    world_size: int
    processes: list[Process]
    stop_file: Path | None = None

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def ranks(self) -> list[Rank]:
        """The ranks that reported READY so far, sorted."""
        return sorted(
            (
                Rank(int(rank), process.node.name, int(pid))
                for process in self.processes
                for rank, pid in _READY.findall(process.log.read_text())
            ),
            key=lambda rank: rank.rank,
        )

    def wait_ready(self, deadline_s: float = 120.0) -> list[Rank]:
        """Wait for the first step of every rank; RuntimeError with the job's output if one exits before that."""
        deadline = time.monotonic() + deadline_s
        while len(self.ranks) < self.world_size:
            if any(process.popen.poll() is not None for process in self.processes):
                raise RuntimeError(f"the job ended before it was ready:\n{self.output()}")
            if time.monotonic() > deadline:
                count = f"{len(self.ranks)} of {self.world_size}"
                raise TimeoutError(f"{count} ranks after {deadline_s} s:\n{self.output()}")
            time.sleep(0.02)
        return self.ranks

    def output(self) -> str:
        """The output of the job, by node."""
        return "\n".join(f"--- {process.node.name}\n{process.log.read_text()}" for process in self.processes)

    def stop(self, deadline_s: float = STOP_DEADLINE_S) -> list[int]:
        """Terminate the job and, at the deadline, kill it; the exit statuses, in the order of `processes`."""
        if self.stop_file is not None:
            self.stop_file.touch()
        else:
            self.processes[0].popen.terminate()  # its rank notifies the others
        if not self._ended_within(deadline_s):
            self.kill()
        return [process.popen.returncode for process in self.processes]

    def kill(self) -> None:
        """Kill the job, including ranks of launchers and stopped processes."""
        launched = [pid for process in self.processes for pid in descendants(process.popen.pid)]
        for process in self.processes:
            process.popen.kill()
            process.popen.wait(STOP_DEADLINE_S)
        end(launched, grace_s=0)

    def _ended_within(self, deadline_s: float) -> bool:
        deadline = time.monotonic() + deadline_s
        while any(process.popen.poll() is None for process in self.processes):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def start_torchrun(
    rig: Rig,
    nodes: Sequence[Node] | None = None,
    nproc_per_node: int = 2,
    script: Path = FOLDER / "gloo_allreduce.py",
    env: dict[str, str] | None = None,
    user: str | int | None = None,
) -> Job:
    """torchrun with gloo on these nodes (all, by default); RigUnavailable if there is no torch."""
    nodes = list(nodes or rig.nodes)
    python = find_torch_python()
    master, port = nodes[0].address, _free_port(rig, nodes[0])
    stop_file = nodes[0].folder / f"stop-{port}"
    shared = {**gloo_environment(rig), **(env or {})}
    processes = []
    for index, node in enumerate(nodes):
        argv = [
            str(python),
            "-m",
            "torch.distributed.run",
            f"--nnodes={len(nodes)}",
            f"--node-rank={index}",
            f"--nproc-per-node={nproc_per_node}",
            f"--master-addr={master}",
            f"--master-port={port}",
            str(script),
        ]
        variables = {**shared, "GLOO_STOP_FILE": f"{node.inside}/{stop_file.name}"} if index == 0 else shared
        processes.append(_start(node, argv, variables, f"torchrun-{port}", user))
    return Job(len(nodes) * nproc_per_node, processes, stop_file)


def start_ring(
    rig: Rig,
    nodes: Sequence[Node] | None = None,
    nproc_per_node: int = 2,
    env: dict[str, str] | None = None,
    user: str | int | None = None,
    script: str = "ring.py",
) -> Job:
    """The ring job (or another plain one) on these nodes (all, by default), one process per rank, started with a
    launcher's variables."""
    return start_plain(rig, FOLDER / script, nodes, nproc_per_node, env, user)


def start_plain(
    rig: Rig,
    script: Path,
    nodes: Sequence[Node] | None = None,
    nproc_per_node: int = 2,
    env: dict[str, str] | None = None,
    user: str | int | None = None,
    python: str = "python3",
    absent: Collection[int] = (),
) -> Job:
    """Any script, one process per rank with a launcher's variables, without a launcher that would end the others when
    one exits; ranks in `absent` are not started."""
    nodes = list(nodes or rig.nodes)
    world_size = len(nodes) * nproc_per_node
    port = _free_port(rig, nodes[0])
    processes = []
    for index, node in enumerate(nodes):
        for local_rank in range(nproc_per_node):
            rank = index * nproc_per_node + local_rank
            if rank in absent:
                continue
            variables = {
                "RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "LOCAL_RANK": str(local_rank),
                "LOCAL_WORLD_SIZE": str(nproc_per_node),
                "MASTER_ADDR": nodes[0].address,
                "MASTER_PORT": str(port),
                "RING_ADDR": node.address,
                **(env or {}),
            }
            processes.append(_start(node, [python, str(script)], variables, f"{script.stem}-{port}-{rank}", user))
    return Job(world_size - len(absent), processes)


def start_script(
    rig: Rig, script: Path, nodes: Sequence[Node], nproc_per_node: int, env: dict[str, str], python: str
) -> Job:
    """One process of a script per node, which starts the ranks itself, from NODE_NUMBER and PER_NODE."""
    world_size = len(nodes) * nproc_per_node
    port = _free_port(rig, nodes[0])
    shared = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": nodes[0].address, "MASTER_PORT": str(port), **env}
    return Job(
        world_size,
        [
            _start(
                node,
                [python, str(script)],
                {**shared, "NODE_NUMBER": str(index), "PER_NODE": str(nproc_per_node)},
                f"{script.stem}-{port}",
            )
            for index, node in enumerate(nodes)
        ],
    )


def gloo_environment(rig: Rig) -> dict[str, str]:
    """Environment that every torch job on the rig needs."""
    # gloo would resolve the machine's host name, which on many machines is 127.0.1.1 or not resolvable.
    return {"GLOO_SOCKET_IFNAME": "eth0" if rig.mode == "namespaces" else "lo", **TORCH_ENVIRONMENT}


def _start(node: Node, argv: list[str], env: dict[str, str], name: str, user: str | int | None = None) -> Process:
    log = node.folder / f"{name}.log"
    with log.open("w") as file:
        popen = node.run(argv, env=env, user=user, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    return Process(node, popen, log)


def _free_port(rig: Rig, node: Node) -> int:
    """A free port for the rendezvous of the ranks."""
    if rig.mode == "namespaces":
        used = len(list(node.folder.glob("*.log")))
        return MASTER_PORT + used
    with socket.socket() as probe:
        probe.bind((node.address, 0))
        return probe.getsockname()[1]


@functools.cache
def no_torch() -> str | None:
    """Why torch is not available for the jobs; None if it is."""
    try:
        find_torch_python()
    except RigUnavailable as error:
        return str(error)
    return None


def find_torch_python() -> Path:
    """An interpreter with torch: $GCONSOLE_TEST_TORCH_PYTHON, else this one; RigUnavailable if neither has it."""
    candidates = [os.environ.get("GCONSOLE_TEST_TORCH_PYTHON"), sys.executable]
    for candidate in filter(None, candidates):
        if _has_torch(candidate):
            return Path(candidate)
    raise RigUnavailable("no torch (neither at $GCONSOLE_TEST_TORCH_PYTHON nor here)")


@functools.cache
def _has_torch(python: str) -> bool:
    # find_spec, not import: importing torch takes seconds.
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    try:
        return subprocess.run([python, "-c", probe], stdin=subprocess.DEVNULL, check=False, timeout=90).returncode == 0
    except OSError:
        return False
