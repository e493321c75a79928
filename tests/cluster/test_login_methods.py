"""Login methods: bastions, agents, encrypted keys, the user's own ssh and configuration."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from program import batch
from rig import Rig


def test_a_bastion_is_logged_into_once_for_all_targets(tmp_path: Path) -> None:
    with Rig(nodes=0, name="bastion") as rig:
        bastion = rig.add_bastion(max_startups="3:100:3")
        for number in range(12):
            rig.add_node(f"far{number}", behind=bastion)
        home = rig.ssh_config()
        run = batch(rig.write_hosts_toml(tmp_path / "hosts.toml"), home=home)
        assert run.status == 0, run.stdout + run.stderr
        assert bastion.logins() == 1


def test_bastion_refusing_connections_is_reported_as_the_cause(tmp_path: Path) -> None:
    with Rig(nodes=0, name="nobastion") as rig:
        bastion = rig.add_bastion()
        rig.add_node("far", behind=bastion)
        bastion.stop_sshd()
        run = batch(rig.write_hosts_toml(tmp_path / "hosts.toml"), home=rig.ssh_config())
    error = run.node("far")["error"]
    assert error["name"] == "refused"
    assert "jump host" in error["text"]


def test_a_key_in_the_ssh_agent_is_enough(rig: Rig, tmp_path: Path) -> None:
    key = rig.encrypted_key("correct horse")
    hosts = rig.write_hosts_toml(tmp_path / "hosts.toml", ssh={"identity_file": key})
    with rig.ssh_agent() as agent:
        agent.add(key, "correct horse")
        run = batch(hosts, env={**os.environ, **agent.env})
    assert run.status == 0, run.stdout


def test_encrypted_key_without_an_agent_suggests_ssh_add(rig: Rig, tmp_path: Path) -> None:
    key = rig.encrypted_key("correct horse", "id_locked")
    run = batch(rig.write_hosts_toml(tmp_path / "hosts.toml", ssh={"identity_file": key}))
    for line in run.report["nodes"]:
        assert line["error"]["name"] == "auth_interactive"
        assert str(key) in line["error"]["text"]
        assert line["error"]["try"].startswith("ssh-add")


def test_missing_identity_file_wrong_key_and_empty_agent_are_told_apart(rig: Rig, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.toml"
    missing, wrong = tmp_path / "no-such-key", rig.new_key("id_wrong", authorize=False)

    def texts(ssh: dict[str, object], **options: object) -> set[str]:
        run = batch(rig.write_hosts_toml(hosts, ssh=ssh), **options)
        return {line["error"]["text"] for line in run.report["nodes"]}

    for text in texts({"identity_file": missing}):
        assert f"identity file {missing} does not exist" in text
    for text in texts({"identity_file": wrong}):
        assert "key refused for " in text and "(1 key offered)" in text
    with rig.ssh_agent() as agent:
        for text in texts({"identity_file": None}, home=rig.ssh_config("Host *\n"), env={**os.environ, **agent.env}):
            assert "no key to offer" in text and "the ssh-agent has no keys" in text


def test_ssh_config_with_comments_and_time_suffixes_is_parsed_like_openssh(
    rig: Rig, tmp_path: Path, needs_openssh: None
) -> None:
    node = rig.nodes[0]
    text = (
        f"Host alias1\n"
        f"    HostName {node.address}   # the machine in rack 3\n"
        f"    Port {node.port}   # not 22\n"
        f"    User {node.user}\n"
        f"    ConnectTimeout 5s\n"
        f"    ServerAliveInterval 2m\n"
        f"    IdentityFile {tmp_path}/no-such-key\n"
        f"    IdentityFile {rig.key}\n"
        f"    UserKnownHostsFile {rig.known_hosts}\n"
        f"    StrictHostKeyChecking yes\n"
    )
    hosts = tmp_path / "hosts.toml"
    hosts.write_text('[[nodes]]\nhosts = "alias1"\n')
    if node.process_filter:
        hosts.write_text(hosts.read_text() + f'process_filter = "{node.process_filter}"\n')
    run = batch(hosts, home=rig.ssh_config(text))
    assert run.status == 0, run.stdout + run.stderr


def test_openssh_transport_reuses_the_control_master(rig: Rig, tmp_path: Path, needs_openssh: None) -> None:
    node = rig.nodes[0]
    control = Path(tempfile.mkdtemp(prefix="gct-")) / "cm"  # short: socket paths are limited in length
    sharing = f"Host *\n    ControlMaster auto\n    ControlPath {control}-%C\n    ControlPersist 20s\n"
    text = rig.ssh_config_text() + sharing
    home = rig.ssh_config(text)
    hosts = tmp_path / "hosts.toml"
    lines = ["[ssh]", 'transport = "openssh"', "[[nodes]]", f'hosts = "{node.name}"']
    lines += [f'process_filter = "{node.process_filter}"'] if node.process_filter else []
    hosts.write_text("\n".join(lines) + "\n")
    before = node.logins()
    try:
        runs = [batch(hosts, home=home) for _ in range(3)]
        assert [run.status for run in runs] == [0, 0, 0], runs[0].stdout + runs[0].stderr
        assert node.logins() - before == 1
    finally:
        home.popen(["ssh", "-O", "exit", node.name]).wait(10)
        shutil.rmtree(control.parent)


OPENSSH_FAILURES = [
    ("wrong_key", "auth"),
    ("password_only", "auth_interactive"),
    ("refuse", "refused"),
    ("throttle", "throttled"),
    ("no_python", "no_python"),
]


@pytest.mark.parametrize(("kind", "name"), OPENSSH_FAILURES)
def test_openssh_transport_failures_have_the_same_error_names(
    tmp_path: Path, needs_openssh: None, kind: str, name: str
) -> None:
    with Rig(nodes=0, name="own") as rig:
        rig.add_node("node1", kind)
        run = batch(rig.write_hosts_toml(tmp_path / "hosts.toml", ssh={"transport": "openssh"}))
    assert run.node("node1")["error"]["name"] == name, run.node("node1")


def test_local_transport_needs_no_ssh(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.toml"
    settings = '[ssh]\ntransport = "local"\n[agent]\nephemeral = true\n'
    hosts.write_text(settings + '[[nodes]]\nhosts = "here"\nprocess_filter = "env:GCONSOLE_TEST_MARK=none"\n')
    run = batch(hosts)
    assert run.status == 0, run.stdout
    assert run.node("here")["state"] == "ok"
