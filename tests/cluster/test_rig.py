"""The rig itself: what it promises to the tests of the product."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncssh
import pytest
from jobs import start_ring, start_torchrun
from rig import KINDS, PASSWORD, Node, Rig, RigUnavailable

HERE = str(Path(__file__).parent)
SSH_DEADLINE_S = 10


def ssh(rig: Rig, node: Node, command: str, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run([*rig.ssh_argv(node, *options), command], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=SSH_DEADLINE_S, check=False)


def traces(pid: int) -> list[str]:
    """Everything on this machine that carries the prefix of rigs of process `pid`."""
    prefix = f"gct{pid}"
    found = [str(path) for path in Path(tempfile.gettempdir()).glob(f"{prefix}*")]
    found += [str(path) for path in Path("/run/netns").glob(f"{prefix}*")]
    found += [str(path) for path in Path("/sys/class/net").glob(f"{prefix}*")]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if prefix.encode() in text:
            found.append(f"process {folder.name}: {text[:200]}")
    return found


def wait_until(condition: Callable[[], object], deadline_s: float = 10.0) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s} s"
        time.sleep(0.02)


# Every mode


@pytest.mark.usefixtures("needs_openssh")
def test_ssh_enters_every_node_and_afterwards_nothing_is_left(each_mode: str) -> None:
    with Rig(nodes=2, mode=each_mode) as rig:
        for node in rig.nodes:
            done = ssh(rig, node, "echo $((6 * 7)); echo aside >&2; exit 3")
            assert (done.returncode, done.stdout, done.stderr) == (3, "42\n", "aside\n")
            assert node.logins() == 1
        rig.nodes[0].run(["sleep", "1000"])
        assert traces(os.getpid())
    assert traces(os.getpid()) == []


async def test_a_command_over_ssh_reads_its_stdin_to_the_end(each_mode: str) -> None:
    with Rig(nodes=1, mode=each_mode) as rig:
        node = rig.nodes[0]
        async with asyncssh.connect(node.address, node.port, username=rig.user, client_keys=[str(rig.key)],
                                    known_hosts=str(rig.known_hosts), config=[]) as connection:
            done = await connection.run("wc -c", input="x" * 300_000)
            assert done.stdout.strip() == "300000"


async def test_a_command_sees_its_stdin_end_when_the_client_vanishes(each_mode: str) -> None:
    with Rig(nodes=1, mode=each_mode) as rig:
        node = rig.nodes[0]
        connection = await asyncssh.connect(node.address, node.port, username=rig.user, client_keys=[str(rig.key)],
                                            known_hosts=str(rig.known_hosts), config=[])
        process = await connection.create_process(f"echo started; cat; touch {node.inside}/ended")
        assert await process.stdout.readline() == "started\n"
        connection.abort()
        await asyncio.to_thread(wait_until, (node.folder / "ended").exists)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_rig_whose_owner_is_killed_leaves_nothing(each_mode: str, number: signal.Signals) -> None:
    script = f"""
import signal, sys
sys.path.insert(0, {HERE!r})
from rig import Rig
with Rig(nodes=2, mode={each_mode!r}) as rig:
    rig.nodes[0].run(["sleep", "1000"])
    print("open", flush=True)
    signal.pause()
"""
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert owner.stdout.readline() == "open\n"
    owner.send_signal(number)
    assert owner.wait(SSH_DEADLINE_S) == -number
    owner.stdout.close()
    if number == signal.SIGKILL:
        with Rig(nodes=0, mode=each_mode):   # the next rig cleans up
            pass
    assert traces(owner.pid) == []


def test_hosts_toml_names_every_node_and_takes_changes(each_mode: str) -> None:
    import tomli

    with Rig(nodes=2, mode=each_mode) as rig:
        text = rig.hosts_toml(ssh={"host_key_policy": "accept-new"}, nodes={"node2": {"python": "python3.6"}},
                              extra="[console]\nhistory_bytes = 1000000")
        read = tomli.loads(text)
    assert read["ssh"]["host_key_policy"] == "accept-new"
    assert [entry["hosts"] for entry in read["nodes"]] == ["node1", "node2"]
    assert read["nodes"][1]["python"] == "python3.6"
    assert read["console"] == {"history_bytes": 1000000}
    assert ("process_filter" in read["nodes"][0]) == (each_mode != "namespaces")


def test_processes_of_a_node_are_those_started_there(each_mode: str) -> None:
    with Rig(nodes=2, mode=each_mode) as rig:
        first, second = rig.nodes
        before = first.processes()
        job = first.run(["sleep", "1000"])
        (pid,) = set(first.processes()) - set(before)
        assert first.outer_pid(pid) == job.pid
        assert "sleep 1000" in first.ps() and "sleep 1000" not in second.ps()
        first.kill(pid, signal.SIGTERM)
        assert job.wait(SSH_DEADLINE_S) == -signal.SIGTERM


def test_the_ring_job_runs_over_two_nodes(each_mode: str) -> None:
    with Rig(nodes=2, mode=each_mode) as rig, start_ring(rig, nproc_per_node=2) as job:
        ranks = job.wait_ready(30)
        assert [(rank.rank, rank.node) for rank in ranks] == [(0, "node1"), (1, "node1"), (2, "node2"), (3, "node2")]
        assert all(rank.pid in rig.node(rank.node).processes() for rank in ranks)
        assert job.stop() == [0, 0, 0, 0]


@pytest.mark.usefixtures("needs_torch")
def test_the_torchrun_job_runs_over_two_nodes(rig: Rig) -> None:
    with start_torchrun(rig, rig.nodes[:2], nproc_per_node=1) as job:
        ranks = job.wait_ready(60)
        assert [(rank.rank, rank.node) for rank in ranks] == [(0, "node1"), (1, "node2")]
        assert job.stop() == [0, 0], job.output()


# Kinds of nodes


OUTCOMES = {   # kind: (exit status of ssh, a text it must show)
    "plain": (0, "Python 3."),
    "noisy": (0, "Quota: 83 %"),
    "no_python": (127, "not found"),
    "python36": (0, "Python 3.6."),
    "old_python": (0, "Python 2.7"),
    "readonly_home": (0, "Python 3."),
    "noexec_cache": (0, "Python 3."),
    "throttle": (255, "kex_exchange_identification"),
    "refuse": (255, "Connection refused"),
    "wrong_key": (255, "Permission denied (publickey"),
    "password_only": (255, "password"),
    "sudo": (0, "Python 3."),
}


@pytest.fixture(scope="module", params=["namespaces", "loopback", "asyncssh"])
def kinds_rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with Rig(nodes=0, mode=request.param) as rig:
        yield rig


@pytest.mark.usefixtures("needs_openssh")
@pytest.mark.parametrize("kind", OUTCOMES)
def test_a_node_fails_the_way_its_kind_says(kinds_rig: Rig, kind: str) -> None:
    done = ssh(kinds_rig, kinds_rig.add_node(kind, kind), "python3 -V")
    status, text = OUTCOMES[kind]
    assert (done.returncode, text in done.stdout + done.stderr) == (status, True), done


@pytest.mark.usefixtures("needs_openssh")
@pytest.mark.parametrize("kind", ["hang_login", "hang_shell"])
def test_a_node_that_hangs_lets_the_client_wait(kinds_rig: Rig, kind: str) -> None:
    node = kinds_rig.add_node(kind, kind)
    client = subprocess.Popen([*kinds_rig.ssh_argv(node, "ConnectTimeout=60"), "true"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if kind == "hang_shell":
            wait_until(node.logins)
        with pytest.raises(subprocess.TimeoutExpired):
            client.wait(0.7)   # several times what a login takes
        assert node.logins() == (kind == "hang_shell")
    finally:
        client.kill()
        client.wait()


def test_every_kind_is_tried_here() -> None:
    assert set(KINDS) == {*OUTCOMES, "hang_login", "hang_shell"}


@pytest.mark.usefixtures("needs_openssh")
def test_a_throttling_node_lets_in_after_the_connections_it_was_told_to_drop(kinds_rig: Rig) -> None:
    node = kinds_rig.add_node("throttle-2", "throttle", throttle_first=2)
    assert [ssh(kinds_rig, node, "true").returncode for _ in range(3)] == [255, 255, 0]


async def test_a_password_opens_a_password_only_node(kinds_rig: Rig) -> None:
    node = kinds_rig.add_node("password", "password_only")
    if node.password is None:
        pytest.skip("sshd without root cannot check passwords")
    connect = {"username": kinds_rig.user, "known_hosts": str(kinds_rig.known_hosts), "config": [], "client_keys": None,
               "agent_path": None}
    for method in ("password", "keyboard-interactive"):
        async with asyncssh.connect(node.address, node.port, password=node.password, preferred_auth=method, **connect):
            pass
    with pytest.raises(asyncssh.PermissionDenied):
        await asyncssh.connect(node.address, node.port, password=f"not {PASSWORD}", **connect)


@pytest.mark.usefixtures("needs_openssh")
def test_a_node_is_reached_through_its_bastion_with_one_login_there(kinds_rig: Rig) -> None:
    bastion = kinds_rig.add_bastion()
    inner = kinds_rig.add_node("inner", behind=bastion)
    home = kinds_rig.ssh_config()
    client = home.popen(["ssh", "-o", "BatchMode=yes", inner.name, "echo in"], stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE, text=True)
    assert client.communicate(timeout=SSH_DEADLINE_S)[0] == "in\n"
    assert (bastion.logins(), inner.logins()) == (1, 1)
    if kinds_rig.mode == "namespaces":
        assert ssh(kinds_rig, inner, "true", "ConnectTimeout=1").returncode == 255, "reached from outside"


# Keys, configuration, network


@pytest.mark.usefixtures("needs_openssh")
def test_a_changed_host_key_is_refused_by_a_strict_client(each_mode: str) -> None:
    with Rig(nodes=1, mode=each_mode) as rig:
        old = rig.nodes[0].host_key()
        rig.nodes[0].change_host_key()
        assert rig.nodes[0].host_key() != old
        assert "IDENTIFICATION HAS CHANGED" in ssh(rig, rig.nodes[0], "true").stderr


@pytest.mark.usefixtures("needs_openssh")
def test_an_encrypted_key_opens_through_the_agent_only(rig: Rig) -> None:
    key = rig.encrypted_key("for the test")
    argv = rig.nodes[0].ssh_argv(key, rig.known_hosts)
    assert subprocess.run([*argv, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 255
    with rig.ssh_agent() as agent:
        with pytest.raises(subprocess.CalledProcessError):
            agent.add(key, "something else")
        agent.add(key, "for the test")
        argv = rig.nodes[0].ssh_argv(key, rig.known_hosts, f"IdentityAgent={agent.socket}")
        subprocess.run([*argv, "true"], stdin=subprocess.DEVNULL, check=True, timeout=SSH_DEADLINE_S)


@pytest.mark.usefixtures("needs_openssh")
def test_ssh_reads_the_configuration_of_the_tests_home_both_ways(rig: Rig) -> None:
    home = rig.ssh_config("Host special   # a comment\n    Port 2222 # another\n    ConnectTimeout 2m\n")
    as_account = home.popen(["ssh", "-G", "--", "special"], stdout=subprocess.PIPE, text=True).communicate()[0]
    in_path = subprocess.run(["ssh", "-G", "--", "special"], env=home.env(), capture_output=True, text=True, check=True)
    for answer in (as_account, in_path.stdout):
        assert "port 2222\n" in answer and "connecttimeout 120\n" in answer


@pytest.mark.usefixtures("needs_openssh")
def test_a_relay_delays_silences_and_cuts(rig: Rig) -> None:
    node = rig.nodes[0]
    with rig.relay(node, delay_s=0.05, seed=1) as relay:
        argv = rig.ssh_argv(node)
        argv[argv.index("-p") + 1] = str(relay.port)
        argv[argv.index(f"{node.user}@{node.address}")] = f"{node.user}@{relay.address}"
        began = time.monotonic()
        client = subprocess.Popen([*argv, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, bufsize=1)
        client.stdin.write("one\n")
        assert client.stdout.readline() == "one\n"
        assert time.monotonic() - began > 10 * 0.05, "a login and an echo are at least five round trips"
        relay.half_open()
        client.stdin.write("two\n")
        os.set_blocking(client.stdout.fileno(), False)
        with pytest.raises(subprocess.TimeoutExpired):
            client.wait(0.3)   # nothing comes, and nobody is told
        assert client.stdout.readline() == ""
        relay.resume()
        wait_until(lambda: client.stdout.readline() == "two\n")
        relay.cut()
        assert client.wait(SSH_DEADLINE_S) == 255
        for stream in (client.stdin, client.stdout, client.stderr):
            stream.close()
        assert "refused" in subprocess.run([*argv, "true"], capture_output=True, text=True, check=False).stderr
        relay.resume()
        assert subprocess.run([*argv, "true"], check=False, timeout=SSH_DEADLINE_S).returncode == 0


# Namespaces


@pytest.mark.usefixtures("needs_namespaces")
class TestNamespaces:
    @pytest.fixture(scope="class")
    def rig(self) -> Iterator[Rig]:
        with Rig(nodes=2, mode="namespaces") as rig:
            yield rig

    def test_a_node_has_its_own_hostname_boot_and_interfaces(self, rig: Rig) -> None:
        said = [ssh(rig, node, "hostname; cat /proc/sys/kernel/random/boot_id; ls /sys/class/net").stdout.split()
                for node in rig.nodes]
        assert [lines[0] for lines in said] == ["node1", "node2"]
        assert said[0][1] != said[1][1]
        assert said[0][2:] == said[1][2:] == ["eth0", "lo"]

    def test_a_node_sees_only_its_own_processes(self, rig: Rig) -> None:
        pids = ssh(rig, rig.nodes[0], "ls /proc | grep -c '^[0-9]*$'").stdout
        assert 4 <= int(pids) < 12

    @pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm", "~"])
    def test_a_file_of_one_node_is_not_on_the_other_nor_on_the_machine(self, rig: Rig, folder: str) -> None:
        assert ssh(rig, rig.nodes[0], f"touch {folder}/gct-mine && ls {folder}").returncode == 0
        assert "gct-mine" not in ssh(rig, rig.nodes[1], f"ls {folder}").stdout
        assert not (Path(folder).expanduser() / "gct-mine").exists()

    def test_nodes_reach_each_other_by_name(self, rig: Rig) -> None:
        script = "import socket; print(socket.create_connection(('node2', 22), 5).recv(4))"
        assert "SSH-" in rig.nodes[0].output(["python3", "-c", script])

    def test_an_unplugged_node_falls_silent_and_comes_back(self, rig: Rig) -> None:
        node = rig.nodes[0]
        client = subprocess.Popen([*rig.ssh_argv(node, "ServerAliveInterval=1", "ServerAliveCountMax=1"), "sleep 1000"],
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: "sleep 1000" in node.ps())
        node.down()
        assert client.wait(SSH_DEADLINE_S) == 255
        assert "not responding" in client.stderr.read()
        client.stderr.close()
        node.up()
        assert ssh(rig, node, "true").returncode == 0

    def test_a_stopped_server_refuses_and_can_take_its_sessions_along(self, rig: Rig) -> None:
        node = rig.nodes[1]
        client = subprocess.Popen([*rig.ssh_argv(node), "echo in; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        assert client.stdout.readline() == "in\n"
        node.stop_sshd()
        assert "refused" in ssh(rig, node, "true").stderr
        assert client.poll() is None, "a session outlives the listener"
        node.stop_sshd(sessions=True)
        assert client.wait(SSH_DEADLINE_S) == 255
        client.communicate()
        node.start_sshd()
        assert ssh(rig, node, "true").returncode == 0

    def test_orphans_on_a_node_are_reaped(self, rig: Rig) -> None:
        node = rig.nodes[0]
        orphan = int(node.output(["sh", "-c", "sleep 0.2 >&- & echo $!"]))
        assert orphan in node.processes()
        wait_until(lambda: orphan not in node.processes())

    def test_a_job_runs_under_another_user(self, rig: Rig) -> None:
        assert rig.nodes[0].output(["id", "-un"], user="other") == "other\n"
        assert rig.nodes[0].output(["id", "-u"], user=4242) == "4242\n"

    def test_an_unprivileged_user_logs_in(self, rig: Rig) -> None:
        node = rig.add_node("for-ops", user="ops")
        assert ssh(rig, node, "id -un; pwd; echo $HOME").stdout == "ops\n/home/ops\n/home/ops\n"

    def test_nothing_can_be_written_or_executed_where_the_kind_forbids_it(self, rig: Rig) -> None:
        read_only = rig.add_node("read-only", "readonly_home")
        assert "Read-only" in ssh(rig, read_only, "touch ~/x").stderr
        noexec = rig.add_node("noexec", "noexec_cache")
        for folder in ("/tmp", "/var/tmp", "~", "/dev/shm", "/run"):
            run = ssh(rig, noexec, f"cp /bin/true {folder}/x && {folder}/x")
            assert "Permission denied" in run.stderr, folder

    @pytest.mark.parametrize("mode", ["loopback", "asyncssh"])
    def test_the_other_modes_work_without_root(self, rig: Rig, mode: str) -> None:
        script = f"""
import os, subprocess, sys
sys.path.insert(0, {HERE!r})
from rig import Rig, pick_mode
with Rig(nodes=2, mode={mode!r}) as rig:
    done = [subprocess.run([*rig.ssh_argv(node), "id -u"], capture_output=True, text=True) for node in rig.nodes]
print(os.getuid(), [one.stdout.strip() + one.stderr for one in done], pick_mode().name,
      [name for name in os.listdir("/tmp") if "gct%d" % os.getpid() in name])
"""
        said = rig.nodes[1].output([sys.executable, "-c", script], user="ops")
        assert said == "61801 ['61801', '61801'] loopback []\n"


def test_a_mode_that_is_not_there_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rig.detect.TOOL_PATH", "/nonexistent")
    from rig import detect

    detect.missing_for.cache_clear()
    try:
        with pytest.raises(RigUnavailable, match="no OpenSSH"):
            Rig(mode="loopback")
        assert Rig().mode == "asyncssh"
    finally:
        detect.missing_for.cache_clear()
