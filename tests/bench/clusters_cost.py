"""What further clusters on one screen cost: CPU of consoles with one, two and three clusters, in real terminals.

All consoles run at the same time, on the same nodes and for the same interval. A console that shows the nodes of two
clusters as one tells which part of the cost is that of more nodes, and `gconsole batch` what a cluster costs without a
screen.
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
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from rig import Rig

from .process_usage import CpuShare
from .result import Outcome, Row

NODES, GPUS = 2, 8
#: Consoles with one and with three clusters: equal processes differ by up to 0.5 % of a core.
REPLICAS = 3
WARM_UP_S, WINDOWS, WINDOW_S = 30.0, 6, 60.0
GOAL_PCT = 5.0
GCONSOLE = str(Path(sys.executable).parent / "gconsole")


def measure(quick: bool) -> Outcome:
    nodes, replicas = (1, 1) if quick else (NODES, REPLICAS)
    warm_up_s, windows, window_s = (10.0, 1, 10.0) if quick else (WARM_UP_S, WINDOWS, WINDOW_S)
    with Rig(nodes=3 * nodes, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        names = [node.name for node in rig.nodes]
        parts = {f"c{number}": names[number * nodes :][:nodes] for number in range(3)} | {"both": names[: 2 * nodes]}
        files = {}
        for name, only in parts.items():
            files[name] = str(
                rig.write_hosts_toml(Path(scratch, f"{name}.toml"), only=only, agent={"simulate_gpus": GPUS})
            )
        with contextlib.ExitStack() as stack:
            env = {**os.environ, "TERM": "xterm-256color", "XDG_STATE_HOME": scratch, "XDG_DATA_HOME": scratch}
            pids: list[tuple[str, int]] = []
            for _ in range(replicas):
                for name, shown in (("one", ["c0"]), ("three", ["c0", "c1", "c2"])):
                    console = _on_a_terminal([files[each] for each in shown], env)
                    pids.append((name, stack.enter_context(console)))
            pids.append(("both", stack.enter_context(_on_a_terminal([files["both"]], env))))
            pids.append(("batch", stack.enter_context(_headless(files["c1"], env))))
            time.sleep(warm_up_s)
            measured: dict[str, list[float]] = {name: [] for name, _ in pids}
            each_pct = []
            for _ in range(windows):
                with contextlib.ExitStack() as shares:
                    window = [(name, shares.enter_context(CpuShare(pid))) for name, pid in pids]
                    time.sleep(window_s)
                for name, share in window:
                    measured[name].append(share.pct)
                one, three = (median(share.pct for n, share in window if n == name) for name in ("one", "three"))
                each_pct.append((three - one) / 2)
    pct = {name: median(shares) for name, shares in measured.items()}
    each = median(each_pct)
    return Outcome(
        [
            Row(f"one cluster of {nodes} nodes × {GPUS} GPUs, on the screen", f"{pct['one']:.2f} % of a core"),
            Row("each further cluster of that size",
                f"{each:.2f} % of a core ({min(each_pct):.2f} to {max(each_pct):.2f} in {windows} windows)",
                f"≤ {GOAL_PCT:g} % of a core", each <= GOAL_PCT,
                peer=f"the same in gconsole batch {pct['batch']:.2f} %", ratio=each / pct["batch"]),
            Row("the same, relative to the console with one", f"{100 * each / pct['one']:.0f} % more",
                f"≤ {GOAL_PCT:g} % more", 100 * each / pct["one"] <= GOAL_PCT,
                peer=f"its nodes in the same cluster {100 * (pct['both'] / pct['one'] - 1):.0f} % more"),
        ],
        [
            f"{replicas} consoles with one cluster and {replicas} with three on terminals of 120 × 36 cells, and one"
            " with the nodes of two clusters in one file, at the same time, the Overview open:"
            f" {windows} windows of {window_s:g} s after {warm_up_s:g} s; the median of the consoles in each window",
            "real sshd, agents of simulated GPUs, no job; CPU of the process of the console as the scheduler counts it",
            "equal consoles differ: by the phase of their nodes' ticks they paint 4 to 6 times a second, 0.17 % of a"
            " core each, and the median of three does not always hide it (runs gave 0.74 and 0.10); the parts that a"
            " further cluster adds, timed within one console each, sum up to 0.33 %: reading, findings, the black box,"
            " liveness",
        ],
    )  # fmt: skip


@contextlib.contextmanager
def _on_a_terminal(targets: list[str], env: dict[str, str]) -> Iterator[int]:
    """A console in a terminal whose output is read and thrown away; its process id."""
    master, worker = pty.openpty()
    termios.tcsetwinsize(master, (36, 120))
    with tempfile.TemporaryDirectory() as own:
        argv = [GCONSOLE, *targets]
        process = subprocess.Popen(
            argv, stdin=worker, stdout=worker, stderr=worker, env={**env, "XDG_DATA_HOME": own, "XDG_STATE_HOME": own},
            start_new_session=True,
        )  # fmt: skip
        os.close(worker)
        reader = threading.Thread(target=_drain, args=(master,), daemon=True)
        reader.start()
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait(30)
            os.close(master)


def _drain(master: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(master, 65_536):
            pass


@contextlib.contextmanager
def _headless(target: str, env: dict[str, str]) -> Iterator[int]:
    argv = [GCONSOLE, "batch", target, "--for", "1h", "--quiet"]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)
