"""One answer of `ssh -G` for many names, where the files of OpenSSH treat all names alike."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gconsole.transport import ssh_config, ssh_config_files
from gconsole.transport.errors import SshConfigInvalid
from gconsole.transport.ssh_config_files import treats_names_alike

ALIKE = [
    "", "# Host a\nUser me\n",
    "Host *\n  IdentityFile ~/.ssh/x\n", "host=*\nProxyJump gate\n", "Include other/*.conf\n",
]  # fmt: skip
DIFFERENT = [
    "Host gpu*\n  User me\n", "Host * !a\n", "Match all\n", "match exec true\n", "HostName %h.site\n", "Hostname=x\n",
    "CanonicalizeHostname yes\n", "Include ~/${X}/a\n", "Include other/hosts\n", "Include loop\n", "-odd\n", "\udcff",
]  # fmt: skip


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program whose files are known."""
    path = tmp_path / "ssh"
    path.write_bytes(b"\x7fELF and more")
    monkeypatch.setattr(ssh_config_files, "_PROGRAMS", (str(path),))
    return str(path)


def judged(program: str, folder: Path, text: str) -> bool:
    user = folder / ".ssh"
    (user / "other").mkdir(parents=True, exist_ok=True)
    (user / "other/users.conf").write_text("User me\n")
    (user / "other/hosts").write_text("Host a\n  Port 1\n")
    (user / "loop").write_text("Include loop\n")
    (user / "config").write_bytes(text.encode("utf-8", "surrogateescape"))
    (folder / "ssh_config").write_text("Host *\n    SendEnv LANG LC_*\n")
    return treats_names_alike(program, [folder / "ssh_config", folder / "absent"], user)


@pytest.mark.parametrize("text", ALIKE)
def test_files_without_hosts_treat_names_alike(program: str, tmp_path: Path, text: str) -> None:
    assert judged(program, tmp_path, text)


@pytest.mark.parametrize("text", DIFFERENT)
def test_files_that_name_hosts_or_cannot_be_judged_do_not(program: str, tmp_path: Path, text: str) -> None:
    assert not judged(program, tmp_path, text)


def test_system_file_a_script_and_another_build_are_judged_too(program: str, tmp_path: Path) -> None:
    assert judged(program, tmp_path, "")
    (tmp_path / "ssh_config").write_text("Host login*\n")
    assert not treats_names_alike(program, [tmp_path / "ssh_config"], tmp_path / ".ssh")
    assert not treats_names_alike("/opt/site/bin/ssh", [], tmp_path / ".ssh")
    Path(program).write_text("#!/bin/sh\nexec /usr/bin/ssh -F other $@\n")
    assert not treats_names_alike(program, [], tmp_path / ".ssh")


def resolver(monkeypatch: pytest.MonkeyPatch, answer: str, *, alike: bool) -> tuple[ssh_config.Resolver, list[str]]:
    """A resolver, and the names for which it has run ssh; `answer` is the text of `ssh -G`, {} the name."""
    asked: list[str] = []

    async def output(*argv: str) -> tuple[int, str, str]:
        asked.append(argv[-1])
        if argv[-1] == "bad":
            return 255, "", "Bad configuration option: x"
        return 0, answer.replace("{}", argv[-1]), ""

    monkeypatch.setattr(ssh_config, "output", output)
    monkeypatch.setattr(ssh_config, "treats_names_alike", lambda program: alike)
    made = ssh_config.Resolver()
    made._ssh = "/usr/bin/ssh"
    return made, asked


@pytest.mark.parametrize(("answer", "alike", "processes"), [
    ("host {}\nhostname {}\nport 22\nuser me\n", True, 2), ("host {}\nhostname {}\nport 22\n", False, 8),
    ("hostname {}.site\nport 22\n", True, 8), ("hostname {}\ncontrolpath /tmp/{}\n", True, 8),
])  # fmt: skip
async def test_two_answers_stand_for_all_only_if_they_differ_in_the_name_alone(monkeypatch, answer, alike, processes):
    made, asked = resolver(monkeypatch, answer, alike=alike)
    names = [f"node{number}" for number in range(8)]
    hosts = await asyncio.gather(*(made.resolve(name) for name in names))

    assert len(asked) == processes
    assert hosts == [ssh_config.parse(name, answer.replace("{}", name)) for name in names]


async def test_names_that_openssh_changes_and_those_after_a_failure_are_resolved_by_it(monkeypatch):
    made, asked = resolver(monkeypatch, "hostname {}\n", alike=True)
    await asyncio.gather(*(made.resolve(name) for name in ("a", "b", "c", "Node1", "::1")))
    assert asked == ["a", "b", "Node1", "::1"]

    made, asked = resolver(monkeypatch, "hostname {}\n", alike=True)
    with pytest.raises(SshConfigInvalid):
        await made.resolve("bad")
    await asyncio.gather(*(made.resolve(name) for name in ("a", "b")))
    assert asked == ["bad", "a", "b"]
