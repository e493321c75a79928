"""(a) Time from start to the first sample of 32 nodes, compared with `clush -w … true` on the same nodes."""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from rig import Rig
from rig.detect import tool

from tests.bench.process_usage import ProcessCost, run

from .result import Outcome, Row, middle

NODES, PAIRS = 32, 7
#: Seconds. Enough for every node to fill its cache: both programs are measured warm.
WARM_UP_S = 12
CPU_GOAL, WALL_GOAL = 1 / 3, 1.25


def measure(quick: bool) -> Outcome:
    tool("ssh")  # clush runs it
    nodes, pairs, warm_up_s = (8, 2, 4) if quick else (NODES, PAIRS, WARM_UP_S)
    with Rig(nodes=nodes, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        target = rig.write_hosts_toml(Path(scratch, "hosts.toml"))
        ssh_config = Path(scratch, "ssh_config")
        ssh_config.write_text(rig.ssh_config_text())
        names = ",".join(node.name for node in rig.nodes)
        programs = Path(sys.executable).parent
        gconsole = [str(programs / "gconsole"), "batch", str(target), "--quiet", "--for"]
        clush = [str(programs / "clush"), "-w", names, "-f", str(nodes), "-o", f"-F {ssh_config}", "true"]
        run([*gconsole, f"{warm_up_s}s"])
        run(clush)
        ours, theirs = [], []
        for _ in range(pairs):
            ours.append(run([*gconsole, "0s"]))
            theirs.append(run(clush))
    return Outcome(
        [
            _row(f"client CPU to the first sample of {nodes} nodes", "cpu_s", ours, theirs, CPU_GOAL, "1/3 of clush"),
            _row(f"wall to the first sample of {nodes} nodes", "wall_s", ours, theirs, WALL_GOAL, "1.25 × clush"),
        ],
        [
            f"`gconsole batch hosts.toml --for 0s --quiet` and `clush -w … -f {nodes} true`, in turns, each a whole"
            " process with its children (`ssh -G` here, one `ssh` a node there), from exec to exit",
            f"real OpenSSH servers; gconsole's caches are warm on both sides (a run of {warm_up_s} s before), its"
            " agents start anew each time",
            "wall includes sshd and the agents on the same cores; on a cluster each node has its own",
        ],
    )


def _row(
    name: str, figure: str, ours: list[ProcessCost], theirs: list[ProcessCost], goal: float, goal_text: str
) -> Row:
    mine, peer = ([getattr(cost, figure) for cost in runs] for runs in (ours, theirs))
    ratio = statistics.median(mine) / statistics.median(peer)
    return Row(name, middle(mine, "s"), f"≤ {goal_text}", ratio <= goal, f"clush {middle(peer, 's')}", ratio)
