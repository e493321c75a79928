"""`gconsole check` on 64 nodes of one machine: wall time, and CPU seconds of the console and of all nodes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rig import Rig

from .result import Outcome, Row, middle

NODES, RUNS = 64, 5
WALL_GOAL_S = 10.0
#: What was done for the goal, with medians of interleaved runs on two busy cores: console, and a node.
ATTEMPTS = (
    "no process for NVIDIA's library where it is not installed, patterns compiled when needed: 124 to 99 ms a node",
    "`ssh -G` for two names where the files of OpenSSH treat all alike: 1.42 to 0.99 s, with the next",
    "no numpy for a check: 67 ms of the console",
)
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def measure(quick: bool) -> Outcome:
    nodes, runs = (4, 1) if quick else (NODES, RUNS)
    wall, client, remote, unreached = [], [], [], []
    with Rig(nodes=nodes, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        target = rig.write_hosts_toml(Path(scratch, "hosts.toml"))
        argv = [str(Path(sys.executable).parent / "gconsole"), "check", str(target)]
        _check(argv)  # fills the caches of the nodes
        for _ in range(runs):
            before, began = node_cpu_s(), time.perf_counter()
            cpu_s, output = _check(argv)
            wall.append(time.perf_counter() - began)
            client.append(cpu_s)
            remote.append(node_cpu_s() - before)
            unreached.append(len(re.findall(r"not reached", output)))
    row = Row(f"`gconsole check` on {nodes} nodes, wall", middle(wall, "s"), f"≤ {WALL_GOAL_S:g} s",
              max(wall) <= WALL_GOAL_S)  # fmt: skip
    return Outcome(
        [
            row,
            Row("the same, CPU of the console", middle(client, "s")),
            Row("the same, CPU of sshd and agent, a node", middle([1000 * each / nodes for each in remote], "ms", 0)),
            Row("the same, nodes not reached", middle(unreached, "nodes", 0), "0", not any(unreached)),
        ],
        [
            f"{runs} runs of `gconsole check hosts.toml`, each a whole process, after one that fills the caches; real"
            " OpenSSH servers in namespaces, whose sshd, agents and the console share the cores of this machine",
            "the goal holds for the slowest run; CPU of the nodes is that of all processes of the rig and of those that"
            " they waited for; a run watches for 7 s, which is most of its wall time, or 9 s where logins are"
            " late",
        ],
        attempts=ATTEMPTS,
    )


def _check(argv: list[str]) -> tuple[float, str]:
    """(CPU seconds of the console, what it printed). RuntimeError unless it judged the nodes."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode not in (0, 1, 3):
        raise RuntimeError(f"gconsole check ended with {process.returncode}: {text[-500:]}")
    return usage.ru_utime + usage.ru_stime, text


def node_cpu_s() -> float:
    """CPU seconds of all descendants of this process that live, and of all that these have waited for."""
    children: dict[int, list[tuple[int, float]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        children.setdefault(int(fields[1]), []).append((int(path.parent.name), sum(map(int, fields[11:15])) * _TICK_S))
    total, parents = 0.0, [os.getpid()]
    while parents:
        for pid, cpu_s in children.get(parents.pop(), ()):
            total += cpu_s
            parents.append(pid)
    return total
