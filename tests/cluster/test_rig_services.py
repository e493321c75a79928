"""Services around the nodes of a rig: keys, an agent, a home with a configuration, a relay."""

import os
import subprocess
import time

import pytest
from rig import Rig, wait_until

DEADLINE_S = 60


@pytest.mark.usefixtures("needs_openssh")
def test_a_changed_host_key_is_refused_by_a_strict_client(each_mode: str) -> None:
    with Rig(nodes=1, mode=each_mode) as rig:
        old = rig.nodes[0].host_key()
        rig.nodes[0].change_host_key()
        assert rig.nodes[0].host_key() != old
        assert "IDENTIFICATION HAS CHANGED" in rig.ssh(rig.nodes[0], "true").stderr


@pytest.mark.usefixtures("needs_openssh")
def test_encrypted_key_works_only_through_the_ssh_agent(rig: Rig) -> None:
    key = rig.encrypted_key("for the test")
    argv = rig.nodes[0].ssh_argv(key, rig.known_hosts)
    assert subprocess.run([*argv, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 255
    with rig.ssh_agent() as agent:
        with pytest.raises(subprocess.CalledProcessError):
            agent.add(key, "something else")
        agent.add(key, "for the test")
        argv = rig.nodes[0].ssh_argv(key, rig.known_hosts, f"IdentityAgent={agent.socket}")
        subprocess.run([*argv, "true"], stdin=subprocess.DEVNULL, check=True, timeout=DEADLINE_S)


@pytest.mark.usefixtures("needs_openssh")
def test_ssh_reads_the_test_home_config_by_account_and_by_path(rig: Rig) -> None:
    home = rig.ssh_config("Host special   # a comment\n    Port 2222 # another\n    ConnectTimeout 2m\n")
    as_account = home.popen(["ssh", "-G", "--", "special"], stdout=subprocess.PIPE, text=True).communicate()[0]
    in_path = subprocess.run(["ssh", "-G", "--", "special"], env=home.env(), capture_output=True, text=True, check=True)
    for answer in (as_account, in_path.stdout):
        assert "port 2222\n" in answer and "connecttimeout 120\n" in answer


@pytest.mark.usefixtures("needs_openssh")
def test_relay_delays_half_opens_and_cuts_connections(rig: Rig) -> None:
    node = rig.nodes[0]
    with rig.relay(node, delay_s=0.05, seed=1) as relay:
        argv = rig.ssh_argv(node)
        argv[argv.index("-p") + 1] = str(relay.port)
        argv[argv.index(f"{node.user}@{node.address}")] = f"{node.user}@{relay.address}"
        began = time.monotonic()
        client = subprocess.Popen(
            [*argv, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        client.stdin.write("one\n")
        assert client.stdout.readline() == "one\n"
        assert time.monotonic() - began > 10 * 0.05, "a login and an echo are at least five round trips"
        relay.half_open()
        client.stdin.write("two\n")
        os.set_blocking(client.stdout.fileno(), False)
        with pytest.raises(subprocess.TimeoutExpired):
            client.wait(0.3)  # no data, no error
        assert client.stdout.readline() == ""
        relay.resume()
        wait_until(lambda: client.stdout.readline() == "two\n")
        relay.cut()
        assert client.wait(DEADLINE_S) == 255
        for stream in (client.stdin, client.stdout, client.stderr):
            stream.close()
        assert "refused" in subprocess.run([*argv, "true"], capture_output=True, text=True, check=False).stderr
        relay.resume()
        assert subprocess.run([*argv, "true"], check=False, timeout=DEADLINE_S).returncode == 0
