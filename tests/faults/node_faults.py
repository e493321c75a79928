"""What the tests do to a node beyond its link: its agents, its disks, its memory, its boot."""

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
    """What the agents on a node wrote of themselves."""
    text = node.output(["sh", "-c", "cat /var/tmp/gconsole-*/run/*.who 2>/dev/null || true"])
    decoder, facts = json.JSONDecoder(), []
    while text:
        fact, end = decoder.raw_decode(text)
        facts.append(fact)
        text = text[end:]
    living = set(node.processes())
    return [fact for fact in facts if fact["pid"] in living]


def lingering(node: Node, label_pid: int) -> int:
    """The pid, as the node counts, of the agent that lingers for the console with that pid."""
    named = [
        agent["pid"] for agent in agents(node) if agent["linger_s"] > 0 and agent["label"].endswith(f"pid {label_pid}")
    ]
    [pid] = named or _detached(node)  # where the disk was full when it began, it wrote nothing of itself
    return int(pid)


def every_agent(node: Node) -> list[int]:
    """Those of all consoles, as the node counts."""
    return [int(line.split()[0]) for line in node.ps().splitlines() if "gconsole-agent" in line]


def signal_all(node: Node, pids: Sequence[int], number: signal.Signals) -> None:
    """Each of them that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            node.kill(pid, number)


def _detached(node: Node) -> list[int]:
    """Agents whose parent is process 1: no session's, and nobody's else."""
    init = node.outer_pid(1)
    return [pid for pid in every_agent(node) if _parent(node.outer_pid(pid)) == init]


def _parent(outer_pid: int) -> int:
    return int(Path(f"/proc/{outer_pid}/stat").read_text().rpartition(")")[2].split()[1])


def reboot(node: Node) -> None:
    """Everything on the node ends without a word to anybody, and it comes back with another boot id."""
    node.down()
    signal_all(node, [pid for pid in node.processes() if pid != 1], signal.SIGKILL)
    node.stop_sshd(sessions=True)
    (node.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")  # in place: the node sees this very file
    node.start_sshd()
    node.up()


@contextlib.contextmanager
def full_disks(node: Node) -> Iterator[None]:
    """Nothing more can be written to /var/tmp, /tmp and the home."""
    places = ("/var/tmp", "/tmp", _home(node))
    for place in places:  # each is a tmpfs of the node's own
        node.output(["sh", "-c", f"used=$(df -k --output=used {place} | tail -1); "  # of 0 there would be no limit
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
    """The process gets no more memory from the kernel: what asks for it is told so."""
    soft, hard = resource.prlimit(outer_pid, resource.RLIMIT_AS)
    resource.prlimit(outer_pid, resource.RLIMIT_AS, (1 << 20, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(outer_pid, resource.RLIMIT_AS, (soft, hard))


def kill_by_memory_limit(outer_pid: int) -> None:
    """Have the kernel's OOM killer end a process, by a group of its own with no memory to speak of."""
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
