"""Names and paths reach no shell as anything but themselves; what is written is 0600, whole, and no link."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program import gconsole

from gconsole import files
from gconsole.config import ConfigError, NodeConfig, SshConfig, load
from gconsole.fleet import bundle
from gconsole.fleet.subprocesses import ssh_argv

#: What a shell makes of it, if it ever gets it: `touch TOUCHED`.
NASTY = "it's; touch TOUCHED; $(touch TOUCHED) `touch TOUCHED` && touch TOUCHED | \"x\" > y \\ *"


def test_a_python_with_a_nasty_path_is_run_and_nothing_else_is(tmp_path: Path) -> None:
    folder = tmp_path / NASTY.replace("/", "_")
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    hosts = tmp_path / "hosts.toml"
    python = str(folder / "python3").replace("\\", "\\\\").replace('"', '\\"')
    agent = f'[agent]\npython = "{python}"\nephemeral = true\n'
    hosts.write_text(f'[ssh]\ntransport = "local"\n{agent}[[nodes]]\nhosts = "a"\n')
    done = gconsole("batch", hosts, "--for", "1s", env={**os.environ, "PWD": str(tmp_path)})
    assert done.status in (0, 3), done.stderr
    assert "1/1 nodes ok" in done.stdout, done.stdout + done.stderr
    assert not [*tmp_path.rglob("TOUCHED"), *Path.cwd().glob("TOUCHED")]


@given(python=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_whatever_the_interpreter_is_called_it_is_one_word_of_the_command(python: str) -> None:
    words = shlex.split(bundle.command(python, "sudo"))
    assert words[:7] == ["exec", "sudo", "-n", "--", python, "-I", "-B"]
    assert words[7:] == ["-c", bundle.STAGE0, "gconsole-agent"]


@given(name=st.text(max_size=40))
def test_a_name_of_a_node_is_a_plain_word_or_refused(name: str) -> None:
    try:
        config = load(name, environ={})
    except ConfigError:
        return
    for node in config.nodes:
        argv = ssh_argv(node, "true")
        assert argv[-3] == "--" and not node.host.startswith("-")
        assert shlex.quote(node.host.replace("%", "")) == node.host.replace("%", ""), node.host


@pytest.mark.parametrize("text", [NASTY, "a b", "-oProxyCommand=touch TOUCHED", "100%h"])
def test_paths_of_hosts_toml_are_one_word_for_ssh_and_no_token(text: str) -> None:
    node = NodeConfig(name="n", ssh=SshConfig(identity_file=f"/k/{text}", known_hosts=f"/h/{text}"))
    argv = ssh_argv(node, "true")
    options = dict(word.split("=", 1) for at, word in enumerate(argv) if argv[at - 1] == "-o")
    for key, folder in (("IdentityFile", "/k/"), ("UserKnownHostsFile", "/h/")):
        value = options[key]
        assert value.strip('"') == (folder + text).replace("%", "%%")
        assert value.startswith('"') or not any(letter.isspace() for letter in value)


def test_agent_and_ports_are_forwarded_by_neither_way_to_ssh() -> None:
    options = ssh_argv(NodeConfig(name="n"), "true")
    assert "ForwardAgent=no" in options and "ClearAllForwardings=yes" in options and "-x" in options
    from inspect import getsource

    from gconsole.fleet import ssh

    assert "agent_forwarding=False" in getsource(ssh) and "agent_forwarding=True" not in getsource(ssh)
    assert "known_hosts=None" not in getsource(ssh), "which would skip the check of host keys"


def test_what_is_written_is_for_nobody_else_and_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    files.write_atomically(path, b"1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ZeroDivisionError), files.being_written(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"1"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_appended_to_or_new_goes_through_no_link(tmp_path: Path) -> None:
    theirs, link = tmp_path / "theirs", tmp_path / "link"
    theirs.write_text("precious")
    link.symlink_to(theirs)
    with pytest.raises(OSError):
        files.open_new(link)
    with pytest.raises(FileExistsError):
        files.write_new(link, b"x")
    assert theirs.read_text() == "precious"
