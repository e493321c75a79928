"""A cluster on this machine: SSH servers on loopback, temporary keys, the real agent, a real job.

`demo_cluster` is the interface. The rest runs in a process of its own (`cluster`), so that it neither delays the
console's event loop nor outlives the console: `server` is the SSH server of one node, `job` launches the ranks, `ring`
is the program that they run.
"""

from __future__ import annotations

import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

#: Seconds. Timeout from the start of the cluster's process until all its servers listen; usually 1 s.
START_S = 30.0
#: Seconds. Timeout from the end of its input until it exits; usually 0.1 s.
STOP_S = 10.0


class DemoError(Exception):
    """The demo could not start; the text is the reason."""


class Demo(msgspec.Struct, frozen=True):
    """A running cluster; `hosts` is the hosts.toml that lists its nodes."""

    hosts: Path
    trigger_hang: Callable[[], None]  # makes the job hang, in the way chosen at start


@contextmanager
def demo_cluster(nodes: int = 4, ranks: int = 8, gpus: int = 8, hang: str = "") -> Iterator[Demo]:
    """A cluster with a running job, until the block ends.

    `ranks` in total, `gpus` (simulated) per node, `hang` one of `ring.HANGS` or "". No process and no file is left
    after the block, nor if this process is killed. Raises DemoError if this machine cannot run it.
    """
    if sys.platform != "linux":
        raise DemoError("the demo's nodes are this machine, and a node must be Linux; try it in a container or a VM")
    with tempfile.TemporaryFile("w+", errors="replace") as errors:  # without a name: nothing to remove
        cluster = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__name__}.cluster", str(nodes), str(ranks), str(gpus), hang],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            start_new_session=True,  # Ctrl-C in the terminal reaches only the console
        )  # fmt: skip
        hosts = None
        try:
            hosts = _hosts_file(cluster, errors)
            yield Demo(hosts, lambda: _trigger_hang(cluster))
        finally:
            _end(cluster)
            if hosts is not None and hosts.parent.exists():  # the cluster was killed
                shutil.rmtree(hosts.parent)


def _hosts_file(cluster: subprocess.Popen[str], errors: IO[str]) -> Path:
    """The path of the cluster's hosts.toml, once it is ready. Raises DemoError."""
    assert cluster.stdout is not None
    ready, _, _ = select.select([cluster.stdout], [], [], START_S)
    line = cluster.stdout.readline().strip() if ready else ""
    if line:
        return Path(line)
    errors.seek(0)
    reason = errors.read().strip().splitlines()[-1:] or [f"no output within {START_S:g} s"]
    raise DemoError(f"the demo's SSH servers did not start: {reason[0]}")


def _trigger_hang(cluster: subprocess.Popen[str]) -> None:
    assert cluster.stdin is not None
    try:
        cluster.stdin.write("hang\n")
        cluster.stdin.flush()
    except OSError:
        pass  # the cluster was killed; its nodes are shown as lost


def _end(cluster: subprocess.Popen[str]) -> None:
    """Close the cluster's input, which ends it, and wait until it has cleaned up."""
    assert cluster.stdin is not None and cluster.stdout is not None
    cluster.stdin.close()
    try:
        cluster.wait(STOP_S)
    except subprocess.TimeoutExpired:
        cluster.kill()
        cluster.wait()
    cluster.stdout.close()
