"""Leftovers of a run: processes, files, sockets, known_hosts entries; also after kill -9."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import fork_server
import pytest
from program import GCONSOLE, batch, gconsole
from rig import Node, Rig

#: Folders of a node that this user can write to.
_PLACES = "/tmp /var/tmp /dev/shm /run ~"
CACHE = re.compile(r"/(var/)?tmp/gconsole-\d+(/|$)")


@dataclass(frozen=True)
class NodeContents:
    """Files, processes and sockets of one node."""

    processes: frozenset[str]
    files: frozenset[str]
    sockets: frozenset[str]  # listening or bound: TCP, UDP, unix

    def beyond(self, before: NodeContents) -> tuple[set[str], set[str], set[str]]:
        return (
            set(self.processes - before.processes), set(self.files - before.files), set(self.sockets - before.sockets)
        )  # fmt: skip


def read_contents(node: Node) -> NodeContents:
    # sshd's processes change with every connection; the rig's own are fixed
    listed = [line.split(None, 2) for line in node.ps().splitlines() if "sshd" not in line]
    processes = {command for _, state, command in listed if state != "Z"}
    files = node.output(["sh", "-c", f"find {_PLACES} -xdev 2>/dev/null; true"]).splitlines()
    listening = node.output(["sh", "-c", "cd /proc/net; cat tcp tcp6 udp udp6 unix"])
    sockets = set()
    for line in listening.splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[0].endswith(":") and fields[3] in ("0A", "07"):  # listening TCP, bound UDP
            sockets.add(fields[1])
        elif len(fields) == 8 and fields[0].endswith(":") and "gconsole" in fields[7]:
            sockets.add(fields[7])
    return NodeContents(frozenset(processes), frozenset(files), frozenset(sockets))


@pytest.fixture(scope="module")
def rig(needs_namespaces: None) -> Iterator[Rig]:
    with Rig(nodes=1, name="gcy-left", is_first_start=True) as rig:
        yield rig


@pytest.fixture
def node(rig: Rig, tmp_path: Path) -> Iterator[Node]:
    """A node that must have no leftovers of gconsole afterwards."""
    yield rig.nodes[0]
    gconsole("clean", rig.write_hosts_toml(tmp_path / "clean.toml"), "--force")


def until(condition: Callable[[], object], deadline_s: float = 90.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s:g} s"
        time.sleep(0.1)


def agents(node: Node) -> list[int]:
    return [int(line.split()[0]) for line in node.ps().splitlines() if "gconsole-agent" in line]


def started(hosts: Path) -> subprocess.Popen[bytes]:
    argv = [str(GCONSOLE), "batch", str(hosts), "--for", "60s", "--quiet"]
    return fork_server.Popen(argv, stdin=subprocess.DEVNULL)


def test_normal_exit_leaves_only_the_cache_folder_and_clean_removes_it(rig: Rig, node: Node, tmp_path: Path) -> None:
    hosts, known_hosts = rig.write_hosts_toml(tmp_path / "hosts.toml"), rig.known_hosts.read_bytes()
    before = read_contents(node)
    assert batch(hosts, "--capture", "--samples", "1").status == 3, "no ranks"
    processes, files, sockets = read_contents(node).beyond(before)
    assert (processes, sockets) == (set(), set())
    assert files and [path for path in files if not CACHE.match(path)] == []
    assert gconsole("clean", hosts).status == 0
    assert read_contents(node).beyond(before) == (set(), set(), set())
    assert rig.known_hosts.read_bytes() == known_hosts


@pytest.mark.parametrize("linger_s", [0, pytest.param(2, marks=pytest.mark.full)])
def test_ephemeral_run_leaves_no_process_file_or_socket(rig: Rig, node: Node, tmp_path: Path, linger_s: int) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", agent={"ephemeral": True, "linger_s": linger_s})
    before = read_contents(node)
    assert batch(hosts, "--capture", "--samples", "1").status == 3, "no ranks"
    until(lambda: not agents(node))
    assert read_contents(node).beyond(before) == (set(), set(), set())


@pytest.mark.parametrize(
    "settings",
    [
        {"ephemeral": True, "orphan_s": 1},
        pytest.param({"ephemeral": True, "orphan_s": 1, "linger_s": 2}, marks=pytest.mark.full),
        pytest.param({"orphan_s": 1}, marks=pytest.mark.full),
        pytest.param({"orphan_s": 1, "linger_s": 2}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_console_killed_with_sigkill_leaves_no_more_than_a_normal_exit(
    rig: Rig, node: Node, tmp_path: Path, settings: dict[str, object]
) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", agent=settings)
    before = read_contents(node)
    process = started(hosts)
    until(lambda: agents(node))
    process.kill()
    process.wait()
    until(lambda: not agents(node))
    processes, files, sockets = read_contents(node).beyond(before)
    assert (processes, sockets) == (set(), set())
    assert [path for path in files if not CACHE.match(path)] == []
    assert not (settings.get("ephemeral") and files)
    if not settings.get("ephemeral"):
        assert gconsole("clean", hosts).status == 0
        assert read_contents(node).beyond(before) == (set(), set(), set())


@pytest.mark.full
@pytest.mark.parametrize("linger_s", [0, 30])
def test_clean_removes_leftovers_of_a_killed_agent(rig: Rig, node: Node, tmp_path: Path, linger_s: int) -> None:
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", agent={"linger_s": linger_s})
    before = read_contents(node)
    process = started(hosts)
    until(lambda: agents(node))
    until(lambda: any(".who" in path for path in read_contents(node).files))
    for pid in agents(node):
        os.kill(node.outer_pid(pid), signal.SIGKILL)
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not agents(node))
    done = gconsole("clean", hosts)
    assert done.status == 0, done.stdout
    assert read_contents(node).beyond(before) == (set(), set(), set())
