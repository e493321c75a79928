"""CPU time and memory of processes: of one run, and of a process that keeps running."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessCost:
    """One run of a program: seconds on the clock, and CPU seconds including waited-for children."""

    wall_s: float
    cpu_s: float


def run(argv: Sequence[str], env: Mapping[str, str] | None = None) -> ProcessCost:
    """Run a program to its end, discarding its output. RuntimeError with its last output unless it exits with 0."""
    began = time.perf_counter()
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env
    )
    assert process.stderr is not None
    with process.stderr:
        errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{argv[0]} ended with {process.returncode}: {errors.decode(errors='replace')[-500:]}")
    return ProcessCost(wall_s, usage.ru_utime + usage.ru_stime)


class CpuShare(AbstractContextManager["CpuShare"]):
    """The CPU share of a running process within a `with`: `pct` of one core, available afterwards.

    Counted by the scheduler in ns, per thread; a thread that ends meanwhile would lose its count, which is an
    error.
    """

    def __init__(self, pid: int) -> None:
        self.pid, self.pct = pid, 0.0

    def __enter__(self) -> CpuShare:
        self._before, self._began = self._threads(), time.perf_counter()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            return
        after, took_s = self._threads(), time.perf_counter() - self._began
        gone = self._before.keys() - after.keys()
        if gone:
            raise RuntimeError(f"{len(gone)} threads of process {self.pid} ended while it was measured")
        self.pct = 100 * (sum(after.values()) - sum(self._before.values())) / 1e9 / took_s

    def _threads(self) -> dict[str, int]:
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return {task.name: int((task / "schedstat").read_text().split()[0]) for task in tasks}


def memory_bytes(pid: int | str = "self") -> tuple[int, int]:
    """(current RSS, peak RSS) of a process, in bytes."""
    figures = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            figures[name] = int(value.split()[0]) * 1024
    return figures["VmRSS"], figures["VmHWM"]
