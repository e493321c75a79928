"""Peers of a stack capture: `py-spy dump` on every node through ssh in a loop, or through clush."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rig import Rig

_STAMP = re.compile(r"(?:^|: )STAMP (\d+)$", re.MULTILINE)
DEADLINE_S = 120.0


@dataclass(frozen=True)
class PeerCapture:
    """One round over all ranks: its duration, and the time between the first and the last dump."""

    wall_s: float
    spread_s: float
    dumps: int


def command(script: str) -> str:
    """The command for each node: consecutive dumps, each with its start time."""
    py_spy = Path(sys.executable).with_name("py-spy")
    # torchrun starts its ranks with -u, which excludes torchrun itself and this shell
    return f"for p in $(pgrep -f -- ' -u [^ ]*{script}'); do echo STAMP $(date +%s%N); {py_spy} dump --pid $p; done"


def one_by_one(rig: Rig, nodes: Sequence[str], script: str) -> PeerCapture:
    """Loop over the nodes with ssh."""
    began = time.perf_counter()
    output = [rig.ssh(rig.node(name), command(script), deadline_s=DEADLINE_S).stdout for name in nodes]
    return _round(began, "\n".join(output))


def with_clush(ssh_config: Path, nodes: Sequence[str], script: str) -> PeerCapture:
    """All nodes in parallel with clush."""
    clush = str(Path(sys.executable).with_name("clush"))
    argv = [clush, "-w", ",".join(nodes), "-f", str(len(nodes)), "-o", f"-F {ssh_config}", command(script)]
    began = time.perf_counter()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S)
    return _round(began, done.stdout)


def _round(began: float, output: str) -> PeerCapture:
    wall_s = time.perf_counter() - began
    stamps = [int(stamp) for stamp in _STAMP.findall(output)]
    if not stamps or output.count("MainThread") < len(stamps):
        raise RuntimeError(f"{len(stamps)} dumps, but these are not their stacks: {output[-500:]}")
    return PeerCapture(wall_s, (max(stamps) - min(stamps)) / 1e9, len(stamps))
