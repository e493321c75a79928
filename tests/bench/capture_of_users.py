"""CPU of a capture by an agent that is root: of two gloo ranks of another user, and of two of root beside them.

Of ranks of root nothing is separated: the agent parses all of it. The captures alternate.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gconsole_remote.proc.procfs import ProcFs
from gconsole_remote.stacks import capture, readers

from .process import in_new_process
from .result import Outcome, Row, middle

#: Captures of each user, with one and with three samples; those of one sample are a second apart at most.
CAPTURES = 40
USER = 65_534
GOAL = 1.15
MASTER_PORTS = {0: 29_711, USER: 29_712}
SCRIPT = """
import time, torch, torch.distributed as dist
def step(number, tensor):
    dist.all_reduce(tensor)
    time.sleep(0.02)
dist.init_process_group("gloo")
tensor, number = torch.ones(1000), 0
while True:
    step(number, tensor)
    number += 1
    if number == 5:
        print("ready", flush=True)
"""


def measure(quick: bool) -> Outcome:
    count = 3 if quick else CAPTURES
    with ranks_of(0) as own, ranks_of(USER) as others:
        by_samples = {samples: in_new_process(_captured_ms, own, others, samples, count) for samples in (1, 3)}
    rows = []
    for samples, (own_ms, others_ms, first_ms) in by_samples.items():
        ratio = statistics.median(others_ms) / statistics.median(own_ms)
        rows.append(
            Row(f"capture of two gloo ranks of another user, {samples} sample{'s' * (samples > 1)}",
                middle(others_ms, "ms"), f"≤ {GOAL} × of ranks of root", ratio <= GOAL,
                peer=f"ranks of root {middle(own_ms, 'ms')}", ratio=ratio),
        )  # fmt: skip
        rows.append(Row("the first one, which starts the child that parses", f"{first_ms:.1f} ms"))
    return Outcome(
        rows,
        [
            "user and system CPU of the agent's process and its children, py-spy among them; captures of both pairs"
            f" of ranks in turns, {count} of each; load average {os.getloadavg()[0]:.1f} at the end",
        ],
    )


@contextlib.contextmanager
def ranks_of(uid: int) -> Iterator[list[int]]:
    """Pids of two ranks that have done some steps together."""
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(MASTER_PORTS[uid]), "WORLD_SIZE": "2",
                 "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}  # fmt: skip
    with contextlib.ExitStack() as stack:
        started = []
        for rank in range(2):
            env = {**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            argv = [sys.executable, "-c", SCRIPT]
            process = subprocess.Popen(argv, user=uid, group=uid, cwd="/", env=env, stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append(process)
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("a rank of the bench has not started")
        yield [process.pid for process in started]


def _captured_ms(own: list[int], others: list[int], samples: int, count: int) -> tuple[list[float], list[float], float]:
    """CPU of captures of both pairs, and of the very first one of the others."""
    _captured(own, samples)
    first_ms = _captured(others, samples)
    own_ms, others_ms = [], []
    for _ in range(count):
        own_ms.append(_captured(own, samples))
        others_ms.append(_captured(others, samples))
        time.sleep(0.2)
    readers.PARSERS.close()
    return own_ms, others_ms, first_ms


def _captured(pids: list[int], samples: int) -> float:
    """CPU of one capture of these ranks, ms."""
    py_spy = str(Path(sys.executable).with_name("py-spy"))
    procfs = ProcFs()
    ranks = [
        SimpleNamespace(pid=pid, rank=rank, job="bench", attempt=0, start_ticks=procfs.stat(pid).start_ticks)
        for rank, pid in enumerate(pids)
    ]
    now = time.time_ns()
    request = capture.CaptureRequest({"id": "bench", "at": now, "samples": samples, "every_ms": 100,
                                      "deadline": now + 60 * 10**9})  # fmt: skip
    blobs: Any = SimpleNamespace(path=lambda name: py_spy, problem=lambda name: None)
    seen: Any = SimpleNamespace(ranks=ranks, children=[])
    before_s = _cpu_s()
    counts = capture.Capture(request, seen, blobs, lambda records: None).run()
    spent_s = _cpu_s() - before_s
    if counts["statuses"] != {"ok": samples * len(pids)}:
        raise RuntimeError(f"not all stacks were read: {counts['statuses']}")
    return 1000 * spent_s


def _cpu_s() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
