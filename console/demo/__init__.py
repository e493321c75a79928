"""A cluster on this machine, embedded: SSH servers on loopback, throw-away keys, the real agent, a real job.

`demo_cluster` is all that the rest of the program sees. Everything else happens in a process of its own (`cluster`), so
that the console's event loop is not disturbed and nothing outlives the console, however that ends: `server` is the SSH
server of one node, `job` launches the ranks, `ring` is the program that they run.
"""

from __future__ import annotations

import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

#: From the start of the cluster's process until all its servers listen; a second is usual.
START_S = 30.0
#: From the end of its input until it is gone; a tenth of a second is usual.
STOP_S = 10.0


class DemoError(Exception):
    """The demo could not start; the text says what happened."""


@dataclass(frozen=True)
class Demo:
    """A running cluster; `hosts` is the hosts.toml that lists its nodes."""

    hosts: Path
    strike: Callable[[], None]  # makes the job hang in the way chosen at start


@contextmanager
def demo_cluster(nodes: int = 4, ranks: int = 8, gpus: int = 8, hang: str = "") -> Iterator[Demo]:
    """Nodes that exist, with a job running on them, for as long as the block lasts.

    `ranks` in total, `gpus` (simulated) per node, `hang` one of `ring.HANGS` or "". After the block no process and no
    file is left; the same holds when this process is killed. Raises DemoError where this machine cannot do it.
    """
    if sys.platform != "linux":
        raise DemoError("the demo's nodes are this machine, and a node must be Linux; try it in a container or a VM")
    with tempfile.TemporaryFile("w+", errors="replace") as errors:  # has no name, so nothing is left of it
        cluster = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__name__}.cluster", str(nodes), str(ranks), str(gpus), hang],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            start_new_session=True,  # Ctrl-C in the terminal is meant for the console alone
        )  # fmt: skip
        hosts = None
        try:
            hosts = _hosts_file(cluster, errors)
            yield Demo(hosts, lambda: _strike(cluster))
        finally:
            _end(cluster)
            if hosts is not None and hosts.parent.exists():  # somebody killed the cluster
                shutil.rmtree(hosts.parent)


def _hosts_file(cluster: subprocess.Popen[str], errors: IO[str]) -> Path:
    """Wait until the cluster is ready; returns the path of its hosts.toml. Raises DemoError."""
    assert cluster.stdout is not None
    ready, _, _ = select.select([cluster.stdout], [], [], START_S)
    line = cluster.stdout.readline().strip() if ready else ""
    if line:
        return Path(line)
    errors.seek(0)
    reason = errors.read().strip().splitlines()[-1:] or [f"no output within {START_S:g} s"]
    raise DemoError(f"the demo's SSH servers did not start: {reason[0]}")


def _strike(cluster: subprocess.Popen[str]) -> None:
    assert cluster.stdin is not None
    try:
        cluster.stdin.write("hang\n")
        cluster.stdin.flush()
    except OSError:
        pass  # somebody killed the cluster; whoever watches it sees that


def _end(cluster: subprocess.Popen[str]) -> None:
    """Let go of the cluster's input, which ends it, and wait until it has cleaned up."""
    assert cluster.stdin is not None and cluster.stdout is not None
    cluster.stdin.close()
    try:
        cluster.wait(STOP_S)
    except subprocess.TimeoutExpired:
        cluster.kill()
        cluster.wait()
    cluster.stdout.close()
