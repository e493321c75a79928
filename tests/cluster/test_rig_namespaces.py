"""Namespaces mode: nodes are isolated from each other."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import Rig, wait_until

HERE = str(Path(__file__).parent)
DEADLINE_S = 60

#: The product tests on this rig also reveal its defects.
pytestmark = [pytest.mark.full, pytest.mark.usefixtures("needs_namespaces")]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig(nodes=2, mode="namespaces") as rig:
        yield rig


def test_a_node_has_its_own_hostname_boot_and_interfaces(rig: Rig) -> None:
    printed = [
        rig.ssh(node, "hostname; cat /proc/sys/kernel/random/boot_id; ls /sys/class/net").stdout.split()
        for node in rig.nodes
    ]
    assert [lines[0] for lines in printed] == ["node1", "node2"]
    assert printed[0][1] != printed[1][1]
    assert printed[0][2:] == printed[1][2:] == ["eth0", "lo"]


def test_a_node_sees_only_its_own_processes(rig: Rig) -> None:
    pids = rig.ssh(rig.nodes[0], "ls /proc | grep -c '^[0-9]*$'").stdout
    assert 4 <= int(pids) < 12


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm", "~"])
def test_file_of_one_node_is_hidden_from_other_nodes_and_the_host(rig: Rig, folder: str) -> None:
    assert rig.ssh(rig.nodes[0], f"touch {folder}/gct-mine && ls {folder}").returncode == 0
    assert "gct-mine" not in rig.ssh(rig.nodes[1], f"ls {folder}").stdout
    assert not (Path(folder).expanduser() / "gct-mine").exists()


def test_nodes_reach_each_other_by_name(rig: Rig) -> None:
    script = "import socket; print(socket.create_connection(('node2', 22), 5).recv(4))"
    assert "SSH-" in rig.nodes[0].output(["python3", "-c", script])


def test_unplugged_node_times_out_and_is_reachable_again_when_plugged_in(rig: Rig) -> None:
    node = rig.nodes[0]
    client = subprocess.Popen(
        [*rig.ssh_argv(node, "ServerAliveInterval=1", "ServerAliveCountMax=1"), "sleep 1000"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: "sleep 1000" in node.ps())
    node.down()
    assert client.wait(DEADLINE_S) == 255
    assert "not responding" in client.stderr.read()
    client.stderr.close()
    node.up()
    assert rig.ssh(node, "true").returncode == 0


def test_stopped_sshd_refuses_connections_and_can_end_its_sessions(rig: Rig) -> None:
    node = rig.nodes[1]
    client = subprocess.Popen(
        [*rig.ssh_argv(node), "echo in; cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert client.stdout.readline() == "in\n"
    node.stop_sshd()
    assert "refused" in rig.ssh(node, "true").stderr
    assert client.poll() is None, "a session outlives the listener"
    node.stop_sshd(sessions=True)
    assert client.wait(DEADLINE_S) == 255
    client.communicate()
    node.start_sshd()
    assert rig.ssh(node, "true").returncode == 0


def test_orphans_on_a_node_are_reaped(rig: Rig) -> None:
    node = rig.nodes[0]
    orphan = int(node.output(["sh", "-c", "sleep 0.2 >&- & echo $!"]))
    assert orphan in node.processes()
    wait_until(lambda: orphan not in node.processes())


def test_a_job_runs_under_another_user(rig: Rig) -> None:
    assert rig.nodes[0].output(["id", "-un"], user="other") == "other\n"
    assert rig.nodes[0].output(["id", "-u"], user=4242) == "4242\n"


def test_an_unprivileged_user_logs_in(rig: Rig) -> None:
    node = rig.add_node("for-ops", user="ops")
    assert rig.ssh(node, "id -un; pwd; echo $HOME").stdout == "ops\n/home/ops\n/home/ops\n"


def test_readonly_home_rejects_writes_and_noexec_folders_reject_execution(rig: Rig) -> None:
    read_only = rig.add_node("read-only", "readonly_home")
    assert "Read-only" in rig.ssh(read_only, "touch ~/x").stderr
    noexec = rig.add_node("noexec", "noexec_cache")
    for folder in ("/tmp", "/var/tmp", "~", "/dev/shm", "/run"):
        run = rig.ssh(noexec, f"cp /bin/true {folder}/x && {folder}/x")
        assert "Permission denied" in run.stderr, folder


@pytest.mark.parametrize("mode", ["loopback", "asyncssh"])
def test_the_other_modes_work_without_root(rig: Rig, mode: str) -> None:
    script = f"""
import os, subprocess, sys
sys.path.insert(0, {HERE!r})
from rig import Rig, pick_mode
with Rig(nodes=2, mode={mode!r}) as rig:
    done = [subprocess.run([*rig.ssh_argv(node), "id -u"], capture_output=True, text=True) for node in rig.nodes]
print(os.getuid(), [one.stdout.strip() + one.stderr for one in done], pick_mode().name,
      [name for name in os.listdir("/tmp") if "gct%d" % os.getpid() in name])
"""
    printed = rig.nodes[1].output([sys.executable, "-c", script], user="ops")
    assert printed == "61801 ['61801', '61801'] loopback []\n"
