"""Where and when the benchmarks ran: what is needed to interpret or repeat a figure."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PACKAGES = ("asyncssh", "cryptography", "msgspec", "numpy", "textual", "psutil", "ClusterShell")


def conditions(rig_mode: str) -> list[tuple[str, str]]:
    """(name, value) of everything that the figures depend on."""
    return [
        ("date", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("commit", _commit()),
        ("cores", f"{len(os.sched_getaffinity(0))} ({_cpu_model()}); load average when done {os.getloadavg()[1]:.1f}"),
        ("kernel", platform.release()),
        ("Python", f"{platform.python_version()} ({sys.implementation.name})"),
        ("OpenSSH", _first_line(["ssh", "-V"])),
        ("packages", ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)),
        ("nodes", f"of the tests' rig, {rig_mode}: servers, agents and jobs share these cores with the console"),
    ]


#: What a benchmark measures, where that is not everything: folders below the root.
MEASURED_CODE = {
    "agent_cost": ("remote",), "gpu_cost": ("remote",), "watched_step": ("remote",), "capture_cost": ("remote",),
    "throughput": ("console/fleet", "console/core", "console/records", "console/transport"),
    "wire_forms": ("console/fleet", "console/records", "remote/agent"),
    "idle_digests": ("console/fleet", "console/core", "console/records", "console/monitor", "console/analysis/health"),
    "store_memory": ("console/core", "console/records"), "screen_widgets": ("console/tui/widgets",),
    "screen_live": ("console/tui", "console/core", "console/present", "console/monitor"),
    "screen_memory": ("console/tui", "console/core"),
    "hang_fold": ("console/analysis/stacks", "console/analysis/hang", "console/monitor/hang.py", "console/core/store"),
    "clock_probes": ("remote/clocks", "console/fleet/clocks"), "clock_stamps": ("remote/clocks",),
    "clock_paths": ("remote/clocks", "console/analysis/clock"), "clock_lines": ("console/analysis/clock",),
    "session_cost": ("console/session",), "query_cost": ("console/session",), "long_sessions": ("console/session",),
    "longest_session": ("console/session",), "job_plan": ("console/launch",), "http_metrics": ("console/web",),
    "job_output": ("console/launch", "console/core", "remote/jobs"),
}  # fmt: skip


def is_older_than_its_code(name: str, commit: str) -> bool:
    """Whether the code that a benchmark measures has changed since this commit, or that is unknown."""
    folders = MEASURED_CODE.get(name, ("console", "remote"))
    argv = ["git", "-C", str(ROOT), "rev-list", "--count", f"{commit}..HEAD", "--", *folders]
    return not commit or _first_line(argv) != "0"


def _commit() -> str:
    commit = _first_line(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"])
    changed = _output(["git", "-C", str(ROOT), "status", "--porcelain", "--", "console", "remote"]).strip()
    return f"{commit}{' and uncommitted changes' if changed else ''}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _first_line(argv: list[str]) -> str:
    return (_output(argv).splitlines() or ["unknown"])[0]


def _output(argv: list[str]) -> str:
    """The output of a program on both streams; empty if it is not installed."""
    if shutil.which(argv[0]) is None:
        return ""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30)
    return done.stdout or done.stderr
