"""(f) Cost of monitoring eight GPUs on a node, compared with nvitop's monitor on the same fake NVML library.

Only this benchmark uses nvitop: `BENCH_NVITOP` names the program (pip install nvitop==1.7.0 in a separate
environment); without it the peer's columns are empty. `BENCH_NVML_MOCK` names the folder of NVIDIA's NVML mock
(tests/gpus/mock_profiles.py), whose H100 profile is used instead of the library of the tests.
"""

from __future__ import annotations

import os
import pty
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from rig import Node, Rig

from gconsole_remote.proc.process_table import YOUNG_PYTHON_S
from tests.bench.process_usage import CpuShare

from .process import in_new_process
from .result import Outcome, Row, middle

GPUS = 8
WARM_UP_S, MEASURED_S, RUNS = 10.0, 45.0, 3
TICKS = 400
TICK_GOAL_MS, CPU_GOAL_PCT, MEMORY_GOAL_MB, FIRST_GOAL_MB = 2.0, 0.5, 25.0, 30.0
DEADLINE_S = 60.0
_TESTS = Path(__file__).parents[1] / "gpus"
#: On NVIDIA's mock, of which a bare C program that loads and initialises it and opens 8 GPUs takes 8.5 MB of PSS.
ATTEMPTS = (
    "CPU: a wait of 0 ms instead of 1 ms in nvmlEventSetWait, which kept a thread of the mock's Go runtime awake for"
    " 10 ms (66 wake-ups a second, 0.09 % of a core; in a bare C program, too): 5 wake-ups, kept",
    "CPU: links four a call, refused fields recorded by return value, records of the child in the agent's write, and"
    " the head of records by formatting: less than the noise of a busy machine, kept",
    "CPU: memory clock and performance state every 5 s: less than that noise, kept",
    "CPU: samplers whose ticks are short on one thread, and status of the child with its records: 0.79 to 0.63 % side"
    " by side, kept",
    "CPU: files of /proc kept open: 0.1 ms of a tick of 1 ms of host and processes, 0.01 %, not kept",
    "memory: one malloc arena and small trim threshold and top pad by mallopt: 32.0 to 30.5 MB, kept",
    "memory: MALLOC_ARENA_MAX=1 alone: no difference; a lower mmap threshold, too: no difference",
    "memory: fork of the child before the agent's modules are imported: 1.3 MB, kept; 4 MB were simulated, but all but"
    " 1.8 MB of the pages that both share are copied within seconds",
    "memory: gc.freeze before that fork: 0.3 MB, kept",
    "memory: unused imports of pynvml (ctypes.util: subprocess, shutil, three compressions) removed: 1.0 MB, kept",
    "memory: tempfile, shutil and traceback on demand: 0.8 MB, kept",
    "memory: malloc_trim of both processes while they run: 0.3 MB, not kept",
    "memory: no psutil, host figures from /proc by the agent itself: 1.3 MB, kept",
    "memory: -X no_debug_ranges, which drops the columns of every code object: 0.07 MB of 4.9 that the agent's modules"
    " take, not kept",
    "memory: stacks and frames of the agent's 22 threads take 0.3 MB, its compiled patterns 0.05 MB: not pursued",
    "memory: the first capture adds 0.7 MB to the agent permanently, and a job that makes progress needs none; the"
    " mock's own heap grows by 1 MB within a minute: not pursued",
)

#: A rank that needs hardly any CPU and makes progress: one that sleeps for ever is a stalled job, of which the console
#: takes stacks by itself.
RANK = """
import time

def load():
    time.sleep(0.1)

def forward():
    time.sleep(0.1)

def backward():
    time.sleep(0.1)

while True:
    load()
    forward()
    backward()
"""


class Cost(NamedTuple):
    """CPU in % of a core, and memory in MB. PSS divides shared pages among processes, USS leaves them out."""

    cpu: float
    pss: float
    uss: float
    rss: float


def measure(quick: bool) -> Outcome:
    warm_up_s, measured_s, runs = (4.0, 5.0, 1) if quick else (WARM_UP_S, MEASURED_S, RUNS)
    nvitop, mock = os.environ.get("BENCH_NVITOP", ""), os.environ.get("BENCH_NVML_MOCK", "")
    write = partial(_write_mock, mock) if mock else _write_scenario
    ours, theirs = [], []
    with tempfile.TemporaryDirectory(prefix="gconsole-bench-") as scratch, Rig(nodes=1, name="bench") as rig:
        job = _Job(rig.nodes[0])
        environment = in_new_process(write, scratch, job.outside)
        in_new_process(write, str(rig.nodes[0].folder), job.inside)
        hosts = _install_library(rig, Path(scratch))
        ticks = [in_new_process(_tick_ms, environment, TICKS // (4 if quick else 1)) for _ in range(runs)]
        alone = [in_new_process(_library_mb, environment) for _ in range(runs)]
        first = _agent(rig, hosts, 4.0, 0.5)  # compiles the code into the node's cache
        if not quick:
            job.wait_until_old()
        for _ in range(runs):
            ours.append(_agent(rig, hosts, warm_up_s, measured_s))
            if nvitop:
                theirs.append(_nvitop(nvitop, environment, warm_up_s, measured_s))
    rows = [Row("CPU of a tick of 8 GPUs", middle(ticks, "ms"), "≤ 2 ms", statistics.median(ticks) <= TICK_GOAL_MS)]
    rows += [
        _row("agent's CPU at 1 Hz, 8 GPUs by NVML", "cpu", ours, theirs, "% of a core", "≤ 0.5 %", CPU_GOAL_PCT),
        _row("agent's memory, 8 GPUs by NVML, PSS", "pss", ours, theirs, "MB", "≤ 25 MB", MEMORY_GOAL_MB),
        _row("the same, USS", "uss", ours, theirs, "MB"),
        _row("the same, RSS: pages that agent and child share count twice", "rss", ours, theirs, "MB"),
        _row("agent's memory after a first start, which compiles, PSS", "pss", [first], [], "MB", "≤ 30 MB",
             FIRST_GOAL_MB),
        Row("memory of the library alone, loaded and initialised, PSS", middle(alone, "MB")),
    ]  # fmt: skip
    library = "NVIDIA's NVML mock, H100 profile" if mock else "the C library of the tests that answers NVML's ABI"
    return Outcome(rows, [
        f"{library} (8 × H100, 18 NVLinks each, GPM, a rank on each GPU); a real driver's time is additional, for any"
        " client",
        f"a tick: thread CPU of the GPU sampler alone, mean of {TICKS}, NVLinks of each GPU every tenth",
        f"agent: all of it (processes, host, ports, GPUs) on a node of the rig, {GPUS} ranks that make progress and"
        f" are older than two minutes, over {measured_s:g} s after {warm_up_s:g} s, code cached; agent and its NVML"
        " child together: CPU of all threads as the scheduler counts it, the sum of their memory by smaps_rollup, of"
        " the peer in the same way",
        "peer: nvitop 1.7.0 `--monitor full --interval 1` in a pseudo-terminal of 140×50, in turns with the agent, on"
        " the same library and figures; GPUs and their processes only"
        if nvitop else "peer: not at hand (BENCH_NVITOP)",
    ], ATTEMPTS)  # fmt: skip


class _Job:
    """Ranks, one per GPU; their pids on the node and on this machine."""

    def __init__(self, node: Node) -> None:
        self._began_s = time.monotonic()
        self.inside, self.outside = [], []
        for rank in range(GPUS):
            env = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(GPUS), "MASTER_ADDR": "127.0.0.1"}
            process = node.run(["python3", "-c", RANK], env=env, stdin=subprocess.DEVNULL)
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            self.outside.append(process.pid)
            self.inside.append(int(next(line for line in status if line.startswith("NSpid:")).split()[-1]))

    def wait_until_old(self) -> None:
        """Wait until agents no longer look at the ranks every 2 s for what they become."""
        time.sleep(max(0.0, self._began_s + YOUNG_PYTHON_S + 5.0 - time.monotonic()))


def _install_library(rig: Rig, scratch: Path) -> Path:
    """Install the library on the node; the hosts file."""
    node = rig.nodes[0]
    python = node.folder / "gpu-python"
    paths = f"NVML_SCENARIO={node.inside}/scenario MOCK_NVML_CONFIG={node.inside}/mock.yaml"
    python.write_text(f'#!/bin/sh\nexport {paths} LD_LIBRARY_PATH={node.inside}/lib\nexec python3 "$@"\n')
    python.chmod(0o755)
    return rig.write_hosts_toml(scratch / "hosts.toml", agent={"python": f"{node.inside}/gpu-python"})


def _row(
    name: str, figure: str, ours: list[Cost], theirs: list[Cost], unit: str, goal: str = "", limit: float | None = None
) -> Row:
    mine, peers = ([getattr(cost, figure) for cost in costs] for costs in (ours, theirs))
    median = statistics.median(mine)
    peer = f"nvitop {middle(peers, unit)}" if peers else ""
    ratio = median / statistics.median(peers) if peers else None
    return Row(name, middle(mine, unit), goal, median <= limit if limit is not None else None, peer, ratio)


def _write_scenario(folder: str, pids: list[int]) -> dict[str, str]:
    """Put the library and a scenario with these processes into a folder; the environment that selects them."""
    sys.path.insert(0, str(_TESTS))
    from nvml import library, scenarios

    shutil.copytree(library.folder(), Path(folder) / "lib")
    busy = {f"gpu{index}.compute.0": f"{pid} {scenarios.GIB}" for index, pid in enumerate(pids)}
    scenario = library.Scenario(Path(folder) / "scenario", scenarios.hgx_h100() | busy)
    return {"NVML_SCENARIO": str(scenario.path), "LD_LIBRARY_PATH": str(Path(folder) / "lib")}


def _write_mock(mock: str, folder: str, pids: list[int]) -> dict[str, str]:
    """The same with NVIDIA's mock and its H100 profile; GPU n has the n-th process."""
    library = Path(folder) / "lib" / "libnvidia-ml.so.1"
    library.parent.mkdir()
    shutil.copy(Path(mock) / library.name, library)
    profile = (Path(mock) / "configs" / "mock-nvml-config-h100.yaml").read_text()
    for index, pid in enumerate(pids):
        process = f'    processes:\n      - {{pid: {pid}, type: "C", name: python3, used_memory_mib: 1024}}\n'
        profile = profile.replace(f"    minor_number: {index}\n", f"    minor_number: {index}\n{process}")
    config = Path(folder) / "mock.yaml"
    config.write_text(profile)
    return {"MOCK_NVML_CONFIG": str(config), "LD_LIBRARY_PATH": str(library.parent)}


def _tick_ms(environment: Mapping[str, str], ticks: int) -> float:
    """CPU time of one tick of the GPU sampler, ms."""
    import ctypes

    os.environ.update(environment)
    ctypes.CDLL(str(Path(environment["LD_LIBRARY_PATH"]) / "libnvidia-ml.so.1"))
    import pynvml

    from gconsole_remote.samplers.base import Context
    from gconsole_remote.samplers.gpu import GpuSampler

    sampler = GpuSampler(Context(), pynvml)
    sampler.start()
    now = 0.0
    for _ in range(20):
        now += 1.0
        list(sampler.tick(now))
    began = time.thread_time()
    for _ in range(ticks):
        now += 1.0
        list(sampler.tick(now))
    spent_s = time.thread_time() - began
    sampler.stop()
    return 1000 * spent_s / ticks


def _library_mb(environment: Mapping[str, str]) -> float:
    """PSS that the library adds to a process that only loads and initialises it and opens 8 GPUs, MB."""
    import ctypes

    os.environ.update(environment)
    before = _memory_mb(os.getpid())["Pss"]
    library = ctypes.CDLL(str(Path(environment["LD_LIBRARY_PATH"]) / "libnvidia-ml.so.1"))
    handle = ctypes.c_void_p()
    codes = [library.nvmlInit_v2()]
    codes += [library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) for index in range(GPUS)]
    if any(codes):
        raise RuntimeError(f"the library returns {codes}")
    return _memory_mb(os.getpid())["Pss"] - before


def _agent(rig: Rig, hosts: Path, warm_up_s: float, measured_s: float) -> Cost:
    """Cost of an agent on the node, with its child."""
    records = hosts.with_name("records.ndjson")
    records.unlink(missing_ok=True)
    argv = [str(Path(sys.executable).parent / "gconsole"), "batch", str(hosts), "--for", "1h", "--quiet"]
    process = subprocess.Popen([*argv, "--records", str(records)], stdin=subprocess.DEVNULL)
    try:
        pid = rig.nodes[0].outer_pid(_agents_pid(records))
        time.sleep(warm_up_s)
        pids = [pid, *(child for child in _children(pid) if _has_library(child))]
        with ExitStack() as measured:
            shares = [measured.enter_context(CpuShare(each)) for each in pids]
            time.sleep(measured_s)
        return _cost(sum(share.pct for share in shares), pids)
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _has_library(pid: int) -> bool:
    """Whether a child of the agent reads NVML; others live for a moment only."""
    try:
        return "libnvidia-ml" in Path(f"/proc/{pid}/maps").read_text()
    except FileNotFoundError:
        return False


def _cost(cpu_pct: float, pids: list[int]) -> Cost:
    memory = [_memory_mb(pid) for pid in pids]
    uss = sum(of["Private_Clean"] + of["Private_Dirty"] for of in memory)
    return Cost(cpu_pct, sum(of["Pss"] for of in memory), uss, sum(of["Rss"] for of in memory))


def _memory_mb(pid: int) -> dict[str, float]:
    """The kernel's sums over the mappings of a process, MB."""
    words = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]]
    return {name.rstrip(":"): int(kib) * 1024 / 1e6 for name, kib, _ in words}


def _agents_pid(records: Path) -> int:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        lines = records.read_bytes().split(b"\n")[:-1] if records.exists() else []
        decoded = [msgspec.json.decode(line) for line in lines]
        if any(record["kind"] == "gpu" for record in decoded):
            return int(next(record["pid"] for record in decoded if record["kind"] == "node"))
        time.sleep(0.2)
    raise RuntimeError(f"no GPU was sampled within {DEADLINE_S:g} s")


def _nvitop(program: str, environment: Mapping[str, str], warm_up_s: float, measured_s: float) -> Cost:
    """The same for nvitop's monitor."""
    with _terminal() as side:
        environ = {**os.environ, **environment, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "50"}
        process = subprocess.Popen(
            [program, "--monitor", "full", "--interval", "1"], stdin=side, stdout=side, stderr=subprocess.DEVNULL,
            env=environ,
        )  # fmt: skip
        try:
            time.sleep(warm_up_s)
            if process.poll() is not None:
                raise RuntimeError(f"nvitop ended with {process.returncode}")
            before, began = _cpu_s(process.pid), time.perf_counter()
            time.sleep(measured_s)
            pct = 100 * (_cpu_s(process.pid) - before) / (time.perf_counter() - began)
            return _cost(pct, [process.pid])
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, including ended threads (nvitop starts many)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _terminal() -> Iterator[int]:
    """One end of a pseudo-terminal of 140×50, whose other end is read and discarded."""
    import fcntl
    import struct
    import termios

    ours, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 140, 0, 0))

    def drain() -> None:
        try:
            while os.read(ours, 65536):
                pass
        except OSError:
            return  # the program has exited, which closes the terminal

    threading.Thread(target=drain, daemon=True).start()
    try:
        yield side
    finally:
        os.close(side)
        os.close(ours)
