"""Each kind of node fails as specified, in every mode that supports it."""

import subprocess
from collections.abc import Iterator

import asyncssh
import pytest
from rig import KINDS, MODES, PASSWORD, Rig, RigUnavailable, wait_until

DEADLINE_S = 60

pytestmark = pytest.mark.full  # the product tests on these nodes also reveal defects of the rig

OUTCOMES = {  # kind: (exit status of ssh, a text in its output)
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


@pytest.fixture(scope="module", params=MODES)
def kinds_rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with Rig(nodes=0, mode=request.param) as rig:
        yield rig


@pytest.mark.usefixtures("needs_openssh")
@pytest.mark.parametrize("kind", OUTCOMES)
def test_node_of_each_kind_fails_as_specified(kinds_rig: Rig, kind: str) -> None:
    if KINDS[kind].needs_namespaces and kinds_rig.mode != "namespaces":
        with pytest.raises(RigUnavailable, match="needs namespaces mode"):
            kinds_rig.add_node(kind, kind)
        return
    done = kinds_rig.ssh(kinds_rig.add_node(kind, kind), "python3 -V")
    status, text = OUTCOMES[kind]
    assert (done.returncode, text in done.stdout + done.stderr) == (status, True), done


@pytest.mark.usefixtures("needs_openssh")
@pytest.mark.parametrize("kind", ["hang_login", "hang_shell"])
def test_client_of_a_hanging_node_blocks(kinds_rig: Rig, kind: str) -> None:
    node = kinds_rig.add_node(kind, kind)
    client = subprocess.Popen(
        [*kinds_rig.ssh_argv(node, "ConnectTimeout=60"), "true"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        if kind == "hang_shell":
            wait_until(node.logins)
        with pytest.raises(subprocess.TimeoutExpired):
            client.wait(0.7)  # several times the duration of a login
        assert node.logins() == (kind == "hang_shell")
    finally:
        client.kill()
        client.wait()


def test_every_node_kind_has_a_test() -> None:
    assert set(KINDS) == {*OUTCOMES, "hang_login", "hang_shell"}


@pytest.mark.usefixtures("needs_openssh")
def test_throttling_node_accepts_logins_after_the_configured_drops(kinds_rig: Rig) -> None:
    node = kinds_rig.add_node("throttle-2", "throttle", throttle_first=2)
    assert [kinds_rig.ssh(node, "true").returncode for _ in range(3)] == [255, 255, 0]


async def test_password_only_node_accepts_only_its_password(kinds_rig: Rig) -> None:
    node = kinds_rig.add_node("password", "password_only")
    if node.password is None:
        assert kinds_rig.mode == "loopback", "only an sshd without root cannot check passwords"
        return
    connect = {
        "username": kinds_rig.user,
        "known_hosts": str(kinds_rig.known_hosts),
        "config": [],
        "client_keys": None,
        "agent_path": None,
    }
    for method in ("password", "keyboard-interactive"):
        async with asyncssh.connect(node.address, node.port, password=node.password, preferred_auth=method, **connect):
            pass
    with pytest.raises(asyncssh.PermissionDenied):
        await asyncssh.connect(node.address, node.port, password=f"not {PASSWORD}", **connect)


@pytest.mark.usefixtures("needs_openssh")
def test_node_behind_a_bastion_is_reached_with_one_bastion_login(kinds_rig: Rig) -> None:
    bastion = kinds_rig.add_bastion()
    inner = kinds_rig.add_node("inner", behind=bastion)
    home = kinds_rig.ssh_config()
    client = home.popen(
        ["ssh", "-o", "BatchMode=yes", inner.name, "echo in"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.communicate(timeout=DEADLINE_S)[0] == "in\n"
    assert (bastion.logins(), inner.logins()) == (1, 1)
    if kinds_rig.mode == "namespaces":
        assert kinds_rig.ssh(inner, "true", "ConnectTimeout=1").returncode == 255, "reached from outside"
