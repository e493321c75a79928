"""The inner command of a gateway, its configuration, and the choice between gateways."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gconsole.config import ConfigError, load
from gconsole.config.model import NodeConfig
from gconsole.config.sections import SshConfig
from gconsole.transport import errors
from gconsole.transport.gateway.transport import GatewayTransport, gateway_hosts, inner_argv
from gconsole.transport.login_limiter import LoginLimiter


def node(name: str = "node7", **ssh: Any) -> NodeConfig:
    return NodeConfig(name=name, ssh=SshConfig(gateway="login1", **ssh))


def test_ssh_gets_our_options_before_those_of_the_user() -> None:
    argv = inner_argv(node(gateway_command="ssh -o BatchMode=no -p 2222 {node}", user="ops"), "echo 'a b'")
    assert argv[0] == "ssh"
    assert argv.index("BatchMode=yes") < argv.index("BatchMode=no"), "OpenSSH takes the first value"
    for option in ("ForwardAgent=no", "ClearAllForwardings=yes", "ControlMaster=no", "StrictHostKeyChecking=yes"):
        assert argv[argv.index(option) - 1] == "-o"
    assert "User=ops" in argv
    assert argv[-4:] == ["-p", "2222", "node7", "echo 'a b'"]


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        ("rsh {node}", ["rsh", "node7", "id"]),
        ("/usr/bin/srun --nodelist={node} -N1", ["/usr/bin/srun", "--nodelist=node7", "-N1", "/bin/sh", "-c", "id"]),
        ("env 'A=x y' rsh {node}", ["env", "A=x y", "rsh", "node7", "id"]),
        ("rsh '{node};reboot'", ["rsh", "node7;reboot", "id"]),
    ],
)
def test_command_is_split_into_words_without_a_shell(words: str, argv: list[str]) -> None:
    assert inner_argv(node(gateway_command=words), "id") == argv


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=id", "$(id)", "a;id", "a`id`", "a|id", "a\nid", "a'b", "~root", "a>b"]
)
@pytest.mark.parametrize("key", ["hosts", "address"])
def test_name_that_a_shell_or_a_program_would_read_as_more_is_refused(tmp_path: Path, name: str, key: str) -> None:
    entry = {"hosts": "node1", key: name}
    lines = [f"{setting} = {json.dumps(value)}" for setting, value in entry.items()]
    path = tmp_path / "hosts.toml"
    path.write_text("\n".join(["[ssh]", 'gateway = "login1"', "[[nodes]]", *lines]))
    with pytest.raises(ConfigError):
        load(str(path), environ={})


def test_gateway_is_reached_by_the_settings_of_ssh_but_the_nodes_port() -> None:
    [host] = gateway_hosts(node(user="ops", port=2222, jump="bastion", identity_file="/k"))
    assert (host.name, host.ssh.user, host.ssh.port, host.ssh.jump) == ("login1", "ops", None, "bastion")
    assert host.ssh.gateway is None
    [other] = gateway_hosts(NodeConfig(name="n", ssh=SshConfig(gateway="me@login1:77", user="ops")))
    assert (other.ssh.user, other.ssh.port) == ("me", 77)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"ssh.gateway": "login[3-1]"}, "ssh.gateway"),
        ({"ssh.gateway": "-oProxyCommand=id"}, "ssh.gateway"),
        ({"ssh.gateway": "login1", "ssh.gateway_command": "ssh"}, "contains {node}"),
        ({"ssh.gateway": "login1", "ssh.gateway_command": "ssh '{node}"}, "split into words"),
        ({"ssh.gateway": "login1", "ssh.gateway_command": "x{node}"}, "must not depend"),
        ({"ssh.gateway": "login1", "ssh.transport": "local"}, "local"),
    ],
)
def test_invalid_gateway_is_a_configuration_error(flags: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load("node1", flags=flags, environ={})


class Refused:
    """An outer transport that reaches nothing."""

    def __init__(self) -> None:
        self.attempts: list[str] = []

    async def open(self, node: NodeConfig, command: str, receiver: Any) -> Any:
        self.attempts.append(node.name)
        raise errors.ConnectionRefused("connection refused", "check it")


def test_every_gateway_is_tried_once_and_each_failure_is_reported_once() -> None:
    outer, reports = Refused(), []
    site = GatewayTransport(
        LoginLimiter(8), lambda host: outer, lambda host: type("L", (), {"command": "x", "first": b""})(),
        lambda: None, lambda name, error: reports.append((name, type(error))),
    )  # fmt: skip
    nodes = [NodeConfig(name=f"node{index}", ssh=SshConfig(gateway="login[1-2]")) for index in range(6)]

    async def run() -> list[Any]:
        failures = await asyncio.gather(*(site.open(node, "id", None) for node in nodes), return_exceptions=True)
        await site.close()
        return failures

    failures = asyncio.run(run())
    assert {type(failure) for failure in failures} == {errors.ConnectionRefused}
    assert all("gateway login" in str(failure) for failure in failures)
    assert sorted(outer.attempts) == ["login1", "login2"]
    assert sorted(reports) == [("login1", errors.ConnectionRefused), ("login2", errors.ConnectionRefused)]
