"""Names and paths are passed to shells quoted; files are written atomically, with mode 0600, not through links."""

from __future__ import annotations

import shlex
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program import gconsole

from gconsole.config import ConfigError, NodeConfig, SshConfig, load
from gconsole.fleet.deploy import agent_payload
from gconsole.text import atomic_files
from gconsole.transport.openssh import ssh_argv

#: A shell that evaluates it runs `touch TOUCHED`.
NASTY = 'it\'s; touch TOUCHED; $(touch TOUCHED) `touch TOUCHED` && touch TOUCHED | "x" > y \\ *'


def test_python_path_with_shell_metacharacters_runs_without_injection(tmp_path: Path) -> None:
    folder = tmp_path / NASTY.replace("/", "_")
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    hosts = tmp_path / "hosts.toml"
    python = str(folder / "python3").replace("\\", "\\\\").replace('"', '\\"')
    agent = f'[agent]\npython = "{python}"\nephemeral = true\n'
    hosts.write_text(f'[ssh]\ntransport = "local"\n{agent}[[nodes]]\nhosts = "a"\n')
    done = gconsole("doctor", hosts)
    assert "host key, login and agent work" in done.stdout, done.stdout + done.stderr
    assert not [*tmp_path.rglob("TOUCHED"), *Path.cwd().glob("TOUCHED")]


@given(python=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_any_interpreter_path_is_a_single_shell_word(python: str) -> None:
    words = shlex.split(agent_payload.command(python, "sudo"))
    assert words[:8] == ["exec", "sudo", "-n", "--", python, "-I", "-S", "-B"]
    assert words[8:] == ["-c", agent_payload.STAGE0, "gconsole-agent"]


@given(name=st.text(max_size=40))
def test_node_name_is_a_plain_shell_word_or_is_rejected(name: str) -> None:
    try:
        config = load(name, environ={})
    except ConfigError:
        return
    for node in config.nodes:
        argv = ssh_argv(node, "true", accept_new=False)
        assert argv[-3] == "--" and not node.host.startswith("-")
        assert shlex.quote(node.host.replace("%", "")) == node.host.replace("%", ""), node.host


@pytest.mark.parametrize("text", [NASTY, "a b", "-oProxyCommand=touch TOUCHED", "100%h"])
def test_paths_of_hosts_toml_are_single_ssh_words_with_percent_escaped(text: str) -> None:
    node = NodeConfig(name="n", ssh=SshConfig(identity_file=f"/k/{text}", known_hosts=f"/h/{text}"))
    argv = ssh_argv(node, "true", accept_new=False)
    options = dict(word.split("=", 1) for index, word in enumerate(argv) if argv[index - 1] == "-o")
    for key, folder in (("IdentityFile", "/k/"), ("UserKnownHostsFile", "/h/")):
        value = options[key]
        assert value.strip('"') == (folder + text).replace("%", "%%")
        assert value.startswith('"') or not any(letter.isspace() for letter in value)


def test_ssh_agent_and_port_forwarding_are_disabled_in_both_transports() -> None:
    options = ssh_argv(NodeConfig(name="n"), "true", accept_new=False)
    assert "ForwardAgent=no" in options and "ClearAllForwardings=yes" in options and "-x" in options
    from inspect import getsource

    from gconsole.transport import ssh

    assert "agent_forwarding=False" in getsource(ssh) and "agent_forwarding=True" not in getsource(ssh)
    assert "known_hosts=None" not in getsource(ssh), "which would disable host key verification"


def test_atomic_write_has_mode_0600_and_leaves_no_partial_file(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    atomic_files.write_atomically(path, b"1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ZeroDivisionError), atomic_files.open_replacement(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"1"
    assert list(tmp_path.iterdir()) == [path]


def test_truncating_and_new_files_do_not_follow_symlinks(tmp_path: Path) -> None:
    theirs, link = tmp_path / "theirs", tmp_path / "link"
    theirs.write_text("precious")
    link.symlink_to(theirs)
    with pytest.raises(OSError):
        atomic_files.open_truncated(link)
    with pytest.raises(FileExistsError):
        atomic_files.write_new(link, b"x")
    assert theirs.read_text() == "precious"


@pytest.mark.parametrize("write", [atomic_files.write_new, lambda path, data: atomic_files.create_text(path).close()])
def test_new_file_has_mode_0600_and_does_not_follow_a_dangling_symlink(write, tmp_path: Path) -> None:
    write(tmp_path / "new", b"x")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        write(tmp_path / "link", b"x")
    assert not (tmp_path / "nowhere").exists()


#: Modules of the console that open files for writing directly, and why.
WRITERS = {
    "text/atomic_files.py": "the one place",
    "text/logs.py": "the log: appended to, 0600, no link",
    "config/schema.py": "hosts.toml is the user's own document, with the mode of their umask; new",
    "transport/host_keys.py": "known_hosts: appended to, locked, 0600, no link",
    "session/format/writer.py": "a segment: appended to, 0600, no link",
    "session/format/layout.py": "the lock of a session, and its folder, synced",
    "session/format/pseudonyms.py": "the key of pseudonyms: 0600, created atomically",
    "session/manage/retention.py": "the list of deleted sessions, in the folder of sessions",
    "session/manage/compact.py": "the lock of a compaction",
    "session/record/recovery.py": "a segment: its torn tail is truncated",
    "session/format/line_files.py": "lines of a table, in the scratch folder of a query: 0700",
    "monitor/imports/isolated_files.py": "a pipe from its child process",
    "session/export/formats.py": "copies of compacted files, in the folder of an export; none that exists",
    "session/query/source_tables.py": "scratch tables of a query, in a folder of its own, 0700",
    "session/query/output.py": "scratch file of a query, in a folder of its own, 0700",
    "session/query/worker.py": "result of a query, in a folder of its own, 0700",
    "runtime/recorded.py": "an unpacked recording, in a folder of its own, 0700",
    "tui/controllers/shutdown.py": "/dev/null",
    "cli/options.py": "a copy of standard input, in a folder of its own, 0700",
    "launch/archive.py": "an unpacked archive, in a new folder of the uploads, 0700; none that exists",
    "web/uploads.py": "an archive that a client sends, and locks, in folders of its own, 0700",
    "demo/cluster.py": "in a folder of its own, 0700",
    "demo/flight_recorder.py": "in the demo's folder",
}


def test_only_listed_modules_open_files_for_writing() -> None:
    import ast

    import gconsole

    root = Path(gconsole.__file__).parent
    writers = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            text = ast.unparse(node.func)
            if not text.endswith(("open", ".write_text", ".write_bytes")):
                continue
            arguments = [ast.unparse(argument) for argument in node.args]
            modes = {source.strip("'\"") for source in arguments} & {"w", "wb", "x", "xb", "a", "ab", "a+b"}
            opens = text.endswith("open") and modes
            raw = text == "os.open" and (
                len(arguments) > 2 or any("O_WRONLY" in source or "O_RDWR" in source for source in arguments)
            )
            if opens or raw or text.endswith((".write_text", ".write_bytes")):
                writers.add(str(path.relative_to(root)))
    assert writers - set(WRITERS) == set()
