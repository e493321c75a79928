"""Faults of a node other than its link: agents, disks, memory, boot."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rig import Node

CGROUP = Path("/sys/fs/cgroup/memory")


def agents(node: Node) -> list[dict[str, Any]]:
    """The status files of the agents on a node."""
    text = node.output(["sh", "-c", "cat /var/tmp/gconsole-*/run/*.who 2>/dev/null || true"])
    decoder, facts = json.JSONDecoder(), []
    while text:
        fact, end = decoder.raw_decode(text)
        facts.append(fact)
        text = text[end:]
    living = set(node.processes())
    return [fact for fact in facts if fact["pid"] in living]


def lingering(node: Node, label_pid: int) -> int:
    """The pid, in the node's namespace, of the agent that lingers for the console with that pid."""
    named = [
        agent["pid"] for agent in agents(node) if agent["linger_s"] > 0 and agent["label"].endswith(f"pid {label_pid}")
    ]
    [pid] = named or _detached(node)  # if the disk was full at its start, it has no status file
    return int(pid)


def every_agent(node: Node) -> list[int]:
    """Pids of the agents of all consoles, in the node's namespace."""
    return [int(line.split()[0]) for line in node.ps().splitlines() if "gconsole-agent" in line]


def signal_all(node: Node, pids: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            node.kill(pid, number)


def _detached(node: Node) -> list[int]:
    """Agents whose parent is process 1: not part of any session."""
    init = node.outer_pid(1)
    return [pid for pid in every_agent(node) if _parent(node.outer_pid(pid)) == init]


def _parent(outer_pid: int) -> int:
    return int(Path(f"/proc/{outer_pid}/stat").read_text().rpartition(")")[2].split()[1])


def reboot(node: Node) -> None:
    """Kill everything on the node without a shutdown, and restart it with another boot id."""
    node.down()
    signal_all(node, [pid for pid in node.processes() if pid != 1], signal.SIGKILL)
    node.stop_sshd(sessions=True)
    (node.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")  # in place: the file is bind-mounted in the node
    node.start_sshd()
    node.up()


@contextlib.contextmanager
def full_disks(node: Node) -> Iterator[None]:
    """Fill /var/tmp, /tmp and the home."""
    places = ("/var/tmp", "/tmp", _home(node))
    for place in places:  # each is a tmpfs of the node
        node.output(["sh", "-c", f"used=$(df -k --output=used {place} | tail -1); "  # 0 would mean no limit
                                 f"mount -o remount,size=$((used + 4))k {place}; "
                                 f"dd if=/dev/zero of={place}/ballast bs=4k count=64 2>/dev/null || true"])  # fmt: skip
    try:
        yield
    finally:
        for place in places:
            node.output(["sh", "-c", f"rm -f {place}/ballast; mount -o remount,size=256m {place}"])


@contextlib.contextmanager
def read_only_home(node: Node) -> Iterator[None]:
    home = _home(node)
    node.output(["mount", "-o", "remount,ro", home])
    try:
        yield
    finally:
        node.output(["mount", "-o", "remount,rw", home])


def _home(node: Node) -> str:
    return node.output(["sh", "-c", "echo $HOME"]).strip()


@contextlib.contextmanager
def without_memory(outer_pid: int) -> Iterator[None]:
    """Make memory allocations of the process fail."""
    soft, hard = resource.prlimit(outer_pid, resource.RLIMIT_AS)
    resource.prlimit(outer_pid, resource.RLIMIT_AS, (1 << 20, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(outer_pid, resource.RLIMIT_AS, (soft, hard))


def kill_by_memory_limit(outer_pid: int) -> None:
    """Have the kernel's OOM killer end a process, by a cgroup with almost no memory."""
    group = CGROUP / f"gcf-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text("4096")
    except OSError as error:
        pytest.skip(f"no memory control group can be made here: {error}")
    try:
        (group / "cgroup.procs").write_text(str(outer_pid))
        subprocess.run(["true"], check=True)
        _wait_for_end(outer_pid)
    finally:
        group.rmdir()


def _wait_for_end(outer_pid: int) -> None:
    from .consoles import until

    until(lambda: not Path(f"/proc/{outer_pid}").exists(), f"process {outer_pid} is gone")
