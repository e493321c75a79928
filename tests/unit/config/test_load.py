"""Precedence of defaults, file, entry, names, environment and flags, and the source of each value."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gconsole.config import ConfigError, ConsoleConfig, SshConfig, is_file_target, load

FILE = """\
[cluster]
name = "h100-pod"
[ssh]
user = "ops"
port = 22
[agent]
linger_s = 5
[[nodes]]
hosts = "node[001-003]"
[[nodes]]
hosts = "gpu-a"
address = "::1"
port = 2222
linger_s = 9
process_filter = "env:TEAM=llm=7"
tags = ["rack3"]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text(FILE)
    return str(path)


def node(config, name):
    return next(node for node in config.nodes if node.name == name)


def origin(config, key):
    return next(str(setting.origin) for setting in config.settings if setting.key == key and not setting.nodes)


def test_nodes_are_loaded_in_file_order(file):
    config = load(file, environ={})
    assert [node.name for node in config.nodes] == ["node001", "node002", "node003", "gpu-a"]
    assert (config.cluster, config.path) == ("h100-pod", Path(file))


def test_an_entry_overrides_the_sections_for_its_own_nodes_only(file):
    config = load(file, environ={})
    assert (node(config, "node001").ssh.port, node(config, "node001").agent.linger_s) == (22, 5.0)
    gpu = node(config, "gpu-a")
    assert (gpu.ssh.port, gpu.agent.linger_s, gpu.ssh.user, gpu.address) == (2222, 9.0, "ops", "::1")
    assert (gpu.process_filter, gpu.tags) == (("TEAM", "llm=7"), ("rack3",))
    assert config.ssh.port == 22


def test_the_environment_overrides_the_file_and_its_entries(file):
    config = load(file, environ={"GCONSOLE_SSH_PORT": "99", "GCONSOLE_AGENT_LINGER_S": "1.5"})
    assert {node.ssh.port for node in config.nodes} == {99}
    assert {node.agent.linger_s for node in config.nodes} == {1.5}
    assert origin(config, "ssh.port") == "GCONSOLE_SSH_PORT"


def test_a_flag_overrides_everything(file):
    config = load(file, environ={"GCONSOLE_SSH_PORT": "99"}, flags={"ssh.port": 7, "ssh.user": None})
    assert {node.ssh.port for node in config.nodes} == {7}
    assert {node.ssh.user for node in config.nodes} == {"ops"}
    assert origin(config, "ssh.port") == "flag"


def test_flag_given_as_text_is_parsed_like_an_environment_variable(file):
    config = load(file, environ={}, flags={"agent.ephemeral": "yes", "console.history_bytes": "33_554_432"})
    assert (config.agent.ephemeral, config.console.history_bytes) == (True, 33_554_432)


def test_unset_keys_have_their_default(file):
    config = load(file, environ={})
    assert config.console == ConsoleConfig(history_bytes=1 << 30)
    assert config.ssh == SshConfig(user="ops", port=22)
    assert origin(config, "agent.python") == "default"


def test_origin_of_a_value_is_its_file_and_line(file):
    config = load(file, environ={})
    assert origin(config, "ssh.user") == f"{file}:4"
    own = {(setting.key, str(setting.origin), setting.nodes) for setting in config.settings if setting.nodes}
    assert own == {
        ("nodes.address", f"{file}:12", ("gpu-a",)), ("ssh.port", f"{file}:13", ("gpu-a",)),
        ("agent.linger_s", f"{file}:14", ("gpu-a",)), ("nodes.process_filter", f"{file}:15", ("gpu-a",)),
        ("nodes.tags", f"{file}:16", ("gpu-a",)),
    }  # fmt: skip


def test_entry_value_overridden_by_a_flag_is_not_listed(file):
    config = load(file, environ={}, flags={"ssh.port": 7})
    assert [setting.origin.kind for setting in config.settings if setting.key == "ssh.port"] == ["flag"]


def test_unnamed_cluster_takes_its_name_from_the_file_stem(tmp_path):
    (tmp_path / "pod7.toml").write_text('[[nodes]]\nhosts = "a"\n')
    assert load(str(tmp_path / "pod7.toml"), environ={}).cluster == "pod7"


def test_a_node_set_needs_no_file():
    config = load("node[1-2],ops@gpu-a:2222", environ={"GCONSOLE_SSH_USER": "me", "GCONSOLE_SSH_PORT": "7"})
    assert (config.cluster, config.path) == ("node[1-2],ops@gpu-a:2222", None)
    assert [node.name for node in config.nodes] == ["node1", "node2", "gpu-a:2222"]
    assert (node(config, "node1").ssh.user, node(config, "node1").ssh.port) == ("me", 7)


def test_user_and_port_in_the_target_override_flags():
    config = load("ops@gpu-a:2222", environ={"GCONSOLE_SSH_USER": "me"}, flags={"ssh.port": 7})
    (gpu,) = config.nodes
    assert (gpu.ssh.user, gpu.ssh.port, gpu.host, gpu.address) == ("ops", 2222, "gpu-a", None)
    assert [(s.key, s.value, str(s.origin)) for s in config.settings if s.nodes] == [
        ("ssh.user", "ops", "target"), ("ssh.port", 2222, "target"),
    ]  # fmt: skip


def test_user_and_port_in_a_host_name_override_only_their_entry(tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text('[[nodes]]\nhosts = "ops@a:2222,b"\nuser = "entry"\n')
    config = load(str(path), environ={})
    assert [(node.name, node.ssh.user, node.ssh.port) for node in config.nodes] == [
        ("a:2222", "ops", 2222), ("b", "entry", None),
    ]  # fmt: skip
    assert [(s.value, s.nodes) for s in config.settings if s.nodes and s.key == "ssh.user"] == [
        ("entry", ("b",)), ("ops", ("a:2222",)),
    ]  # fmt: skip
    assert {node.ssh.user for node in load(str(path), environ={}, flags={"ssh.user": "me"}).nodes} == {"me"}


def test_ssh_host_is_the_node_name_without_the_port():
    assert [node.host for node in load("gpu-a:22,fe80::1,b", environ={}).nodes] == ["gpu-a", "fe80::1", "b"]


def test_paths_in_a_file_are_relative_to_it_and_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ops")
    path = tmp_path / "hosts.toml"
    path.write_text('[ssh]\nidentity_file = "keys/id"\nknown_hosts = "~/.ssh/kh"\n[[nodes]]\nhosts = "a"\n')
    ssh = load(str(path), environ={}).nodes[0].ssh
    assert (ssh.identity_file, ssh.known_hosts) == (str(tmp_path / "keys/id"), "/home/ops/.ssh/kh")


def test_paths_in_environment_and_flags_are_relative_to_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ssh = load("a", environ={"GCONSOLE_SSH_IDENTITY_FILE": "id"}, flags={"ssh.known_hosts": "kh"}).nodes[0].ssh
    assert (ssh.identity_file, ssh.known_hosts) == (str(tmp_path / "id"), str(tmp_path / "kh"))


def test_an_unknown_variable_is_a_warning_with_the_nearest_name():
    config = load("a", environ={"GCONSOLE_AGENT_LINGER": "5", "GCONSOLE_QQQQQQ": "x", "OTHER": "x"})
    assert config.warnings == (
        "environment: GCONSOLE_AGENT_LINGER: unknown variable, ignored (did you mean GCONSOLE_AGENT_LINGER_S?)",
        "environment: GCONSOLE_QQQQQQ: unknown variable, ignored",
    )


def test_an_empty_variable_counts_as_not_set():
    assert load("a", environ={"GCONSOLE_SSH_PORT": ""}).ssh.port is None


@pytest.mark.parametrize(
    ("environ", "flags", "message"),
    [
        ({"GCONSOLE_SSH_PORT": "x"}, {}, 'environment: GCONSOLE_SSH_PORT: must be a whole number, is "x"'),
        (
            {"GCONSOLE_AGENT_RUN_AS": "sud"}, {},
            'environment: GCONSOLE_AGENT_RUN_AS: must be "self" or "sudo", is "sud" (did you mean "sudo"?)',
        ),
        ({}, {"ssh.port": 0}, "flag: ssh.port: must be 1 to 65535, is 0"),
        (
            {}, {"agent.linger": 5},
            "--set: agent.linger: unknown configuration key; gconsole config show TARGET prints all "
            "(did you mean agent.linger_s?)",
        ),
        ({}, {"foo.bar": 1}, "--set: foo.bar: unknown configuration key; gconsole config show TARGET prints all"),
        (
            {}, {"ssh.identity_file": "~no-such-user/id"},
            'flag: ssh.identity_file: home directory does not exist: "~no-such-user/id"',
        ),
    ],
)  # fmt: skip
def test_invalid_variable_or_flag_is_reported_by_name(environ, flags, message):
    with pytest.raises(ConfigError) as caught:
        load("a", environ=environ, flags=flags)
    assert str(caught.value) == message


def test_invalid_node_set_is_reported_as_a_target_error():
    with pytest.raises(ConfigError) as caught:
        load("node[3-1]", environ={})
    assert str(caught.value) == 'target: invalid range "3-1" (start > end)'


def test_target_is_recognized_as_a_file_or_a_node_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pod").write_text("")
    Path("node9").mkdir()
    files = ["hosts.toml", "a/b", "./x", "pod", "/etc/node[1-2]"]
    sets = ["node[1-4],gpu-a", "@group", "node[0-8/2]", "node9", "ops@host:22", "n" * 5000, ""]
    assert [text for text in files if not is_file_target(text)] == []
    assert [text for text in sets if is_file_target(text)] == []


def test_nodes_of_one_target_share_their_section_objects():
    first, second = load("node[1-2]", environ={}).nodes
    assert first.ssh is second.ssh


def test_importing_the_config_package_loads_no_heavy_dependencies():
    program = "import sys, gconsole.config; print(*sys.modules)"
    seen = subprocess.run(
        [sys.executable, "-c", program], env=dict(os.environ), capture_output=True, text=True, timeout=60, check=True
    )
    heavy = {"ClusterShell", "tomlkit", "tomli", "textual", "asyncssh", "pandas", "numpy", "yaml"}
    assert heavy & set(seen.stdout.split()) == set()
