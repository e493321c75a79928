"""What further clusters on one screen cost: CPU of consoles with one and with nine clusters, in real terminals.

Equal consoles differ by up to 0.5 % of a core: nodes whose ticks fall into the same frame save a paint, and each of
them has its own agents, with phases of their own. So each console's paints are counted too, and the cost of a paint is
fitted: what further clusters cost is the difference that remains between consoles that paint equally often.
"""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rig import Rig

from .process_usage import CpuShare
from .result import Outcome, Row

NODES, GPUS, CLUSTERS = 2, 8, 9  # so many that what they cost stands out from how consoles differ
#: Consoles of each kind.
REPLICAS = 4
#: The first minute has what happens once: which figures GPUs lack is learnt for 70 s, and clocks are compared twice.
WARM_UP_S, WINDOWS, WINDOW_S = 120.0, 4, 60.0
GOAL_PCT = 5.0
GCONSOLE = str(Path(sys.executable).parent / "gconsole")


@dataclass
class _Console:
    """A console in a terminal that counts what it paints."""

    pid: int
    clusters: int
    written: int = 0  # pieces that its terminal received
    pct: list[float] = field(default_factory=list)  # of a core, of each window
    paints: list[float] = field(default_factory=list)  # pieces a second, of each window


def measure(quick: bool) -> Outcome:
    nodes, replicas = (1, 2) if quick else (NODES, REPLICAS)
    warm_up_s, windows, window_s = (10.0, 1, 10.0) if quick else (WARM_UP_S, WINDOWS, WINDOW_S)
    with Rig(nodes=CLUSTERS * nodes, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        names = [node.name for node in rig.nodes]
        parts = [names[number * nodes :][:nodes] for number in range(CLUSTERS)]
        agent = {"simulate_gpus": GPUS}
        files = [
            str(rig.write_hosts_toml(Path(scratch, f"c{number}.toml"), only=only, agent=agent))
            for number, only in enumerate(parts)
        ]
        both = str(rig.write_hosts_toml(Path(scratch, "both.toml"), only=[*parts[0], *parts[1]], agent=agent))
        env = {**os.environ, "TERM": "xterm-256color", "XDG_STATE_HOME": scratch, "XDG_DATA_HOME": scratch}
        with contextlib.ExitStack() as stack:
            consoles = [
                stack.enter_context(_on_a_terminal(targets, env))
                for _ in range(replicas)
                for targets in (files[:1], files)
            ]
            nodes_of_two = stack.enter_context(_on_a_terminal([both], env))
            batch = stack.enter_context(_headless(files[1], env))
            time.sleep(warm_up_s)
            batch_pct = []
            for _ in range(windows):
                batch_pct.append(_measure_window([*consoles, nodes_of_two], batch, window_s))
    one_pct, each_pct, error_pct, paint_pct, paints = fitted(consoles)
    both_pct = float(np.mean(nodes_of_two.pct)) - paint_pct * (float(np.mean(nodes_of_two.paints)) - paints)
    headless_pct = float(np.mean(batch_pct))
    relative_pct = 100 * each_pct / one_pct
    return Outcome(
        [
            Row(f"one cluster of {nodes} nodes × {GPUS} GPUs, on the screen", f"{one_pct:.2f} % of a core"),
            Row("each further cluster of that size", f"{each_pct:.2f} ± {error_pct:.2f} % of a core",
                f"≤ {GOAL_PCT:g} % of a core", each_pct <= GOAL_PCT,
                peer=f"the same in gconsole batch {headless_pct:.2f} %", ratio=each_pct / headless_pct),
            Row("the same, relative to the console with one",
                f"{relative_pct:.1f} ± {100 * error_pct / one_pct:.1f} % more",
                f"≤ {GOAL_PCT:g} % more", relative_pct <= GOAL_PCT,
                peer=f"its nodes in the same cluster {100 * (both_pct / one_pct - 1):.0f} % more"),
        ],
        [
            f"{replicas} consoles with one cluster and {replicas} with {CLUSTERS} on terminals of 120 × 36 cells, and"
            " one with the nodes of two clusters in one file, at the same time, the Overview open:"
            f" {windows} windows of {window_s:g} s after {warm_up_s:g} s",
            "each console's CPU: " + "; ".join(
                f"{console.clusters} clusters {np.mean(console.pct):.2f} % at {np.mean(console.paints):.1f} writes/s"
                for console in consoles
            ),
            "real sshd, agents of simulated GPUs, no job; CPU of the process of the console as the scheduler counts it",
            "equal consoles do not paint equally often: the cost of a piece written to the terminal is fitted"
            f" ({paint_pct:.3f} % of a core for one a second, here {paints:.1f}), and"
            " all figures are those of consoles that write equally often; ± is the standard error of the fit",
        ],
        [
            "garbage collected once for all clusters, and seldom of young objects: 0.36 to 0.07 % of a core with three"
            " clusters; the thread of a black box not woken by each batch: 0.085 to 0.06 % each; findings every 5 s and"
            " links without errors not summed up: 0.04 to 0.02 % each (parts timed within one"
            " console, the first figures while the machine was slower)",
            "nodes of all clusters sample at the same instants: 0.32 to 0.23 % of a core each (9.3 to 7.0 % more)",
            "key hints listed once a second: 3.3 to 2.2 % of a core for one cluster, so that the same cost of a further"
            " one is a larger share",
            "idle nodes of hidden clusters hold figures back for 5 s, and their clocks are compared every 150 s: 0.37"
            " to 0.60 before, 0.21 to 0.27 % of a core each after it, with nine clusters (load 8 to 14)",
            "nine clusters, load 2 to 4: 0.17 to 0.23 % of a core each (6.4 % more); threads of black boxes"
            " wake less often, and clock pings not without edges: 0.16 to 0.17 %; nodes without ranks hold figures"
            " back for 10 s: 0.12 to 0.15 %",
        ],
    )  # fmt: skip


def fitted(consoles: Sequence[_Console]) -> tuple[float, float, float, float, float]:
    """Least squares over consoles: CPU = a + b × (clusters - 1) + c × (paints - mean), with c = 0 if it were negative.

    Returns a, b, the standard error of b, c, all in % of a core, and the mean of the paints a second.
    """
    pct = np.array([np.mean(console.pct) for console in consoles])
    paints = np.array([np.mean(console.paints) for console in consoles])
    further = np.array([console.clusters - 1.0 for console in consoles])
    design = np.column_stack([np.ones(len(consoles)), further, paints - paints.mean()])
    fit, *_ = np.linalg.lstsq(design, pct, rcond=None)
    if fit[2] < 0:  # they paint too equally to tell
        design = design[:, :2]
        fit, *_ = np.linalg.lstsq(design, pct, rcond=None)
    free = max(1, len(consoles) - design.shape[1])
    variance = float(np.sum((pct - design @ fit) ** 2)) / free
    error = float(np.sqrt(variance * np.linalg.pinv(design.T @ design)[1, 1]))
    paint = float(fit[2]) if len(fit) > 2 else 0.0
    return float(fit[0]), float(fit[1]), error, paint, float(paints.mean())


def _measure_window(consoles: Sequence[_Console], batch: int, window_s: float) -> float:
    """Note what each console needs and paints in the next seconds; % of a core of the headless one."""
    before = [console.written for console in consoles]
    with contextlib.ExitStack() as shares:
        headless = shares.enter_context(CpuShare(batch))
        measured = [shares.enter_context(CpuShare(console.pid)) for console in consoles]
        time.sleep(window_s)
        after = [console.written for console in consoles]
    for console, share, first, last in zip(consoles, measured, before, after, strict=True):
        console.pct.append(share.pct)
        console.paints.append((last - first) / window_s)
    return headless.pct


@contextlib.contextmanager
def _on_a_terminal(targets: Sequence[str], env: dict[str, str]) -> Iterator[_Console]:
    """A console in a terminal whose output is counted and thrown away."""
    master, worker = pty.openpty()
    termios.tcsetwinsize(master, (36, 120))
    with tempfile.TemporaryDirectory() as own:
        argv = [GCONSOLE, *targets]
        process = subprocess.Popen(
            argv, stdin=worker, stdout=worker, stderr=worker, env={**env, "XDG_DATA_HOME": own, "XDG_STATE_HOME": own},
            start_new_session=True,
        )  # fmt: skip
        os.close(worker)
        console = _Console(process.pid, len(targets))
        threading.Thread(target=_drain, args=(master, console), daemon=True).start()
        try:
            yield console
        finally:
            process.terminate()
            process.wait(30)
            os.close(master)


def _drain(master: int, console: _Console) -> None:
    with contextlib.suppress(OSError):
        while os.read(master, 65_536):
            console.written += 1


@contextlib.contextmanager
def _headless(target: str, env: dict[str, str]) -> Iterator[int]:
    argv = [GCONSOLE, "batch", target, "--for", "1h", "--quiet"]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)
