"""The agent's modules are packed only for a node that lacks them, once their digest is known on this machine."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from gconsole.fleet.deploy import agent_payload, archive_digests
from gconsole.fleet.deploy.archive_digests import ArchiveName
from gconsole.transport.errors import AgentCrashed

NAME = ArchiveName("0123456789abcdef" * 4, 352_813)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    agent_payload._built.cache_clear()
    yield tmp_path
    agent_payload._built.cache_clear()


def built_again() -> agent_payload.Payload:
    agent_payload._built.cache_clear()
    return agent_payload.build()


def fail_to_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sources: agent_payload._Sources) -> bytes:
        raise AssertionError("packed")

    monkeypatch.setattr(agent_payload._Sources, "archive", fail)


def test_second_start_gives_the_same_payload_and_packs_nothing_until_a_node_requests_it(monkeypatch):
    first = agent_payload.build()
    with monkeypatch.context() as patched:
        fail_to_pack(patched)
        second = built_again()
    assert (second.digest, second.preamble, second.archive_digest) == (
        first.digest, first.preamble, first.archive_digest,
    )  # fmt: skip
    assert second.archive == first.archive


@pytest.mark.parametrize("changed", ["a module", "pynvml", "Python", "zlib"])
def test_digest_of_other_sources_is_not_used(changed, monkeypatch):
    agent_payload.build()
    if changed == "Python":
        monkeypatch.setattr(agent_payload.sys, "version", "3.11.99")
    elif changed == "zlib":
        monkeypatch.setattr(agent_payload.zlib, "ZLIB_RUNTIME_VERSION", "99")
    else:
        suffix = "proc/pci.py" if changed == "a module" else "pynvml.py"
        read = Path.read_bytes
        monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"\n" * str(path).endswith(suffix))
    fail_to_pack(monkeypatch)
    with pytest.raises(AssertionError, match="packed"):
        built_again()


def test_modules_installed_after_the_start_do_not_reach_the_nodes_of_this_console(monkeypatch):
    first = agent_payload.build()
    second = built_again()
    monkeypatch.setattr(Path, "read_bytes", lambda path: b"an update")
    assert second.archive == first.archive


def test_wrong_digest_ends_the_connection_and_is_forgotten(cache_folder):
    right = agent_payload.build()
    [(key, _)] = json.loads(archive_digests.path().read_bytes()).items()
    archive_digests.remember(key, NAME)

    wrong = built_again()
    assert wrong.archive_digest == NAME.digest
    with pytest.raises(AgentCrashed, match=f"{archive_digests.path()} had a wrong digest"):
        _ = wrong.archive

    assert archive_digests.remembered(key) is None
    again = agent_payload.build()  # by the next attempt to connect
    assert (again.digest, again.archive) == (right.digest, right.archive)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\xff", b"[]", b"{", b'{"k":["zz",3]}', b'{"k":["%s",0]}' % (b"0" * 64), b'{"k":["%s"]}' % (b"0" * 64),
     b'{"k":7}', b'{"k":["%s",5]}' % (b"../" * 22)],
)  # fmt: skip
def test_damaged_file_counts_as_empty_and_is_replaced(content, cache_folder):
    file = archive_digests.path()
    file.parent.mkdir()
    file.write_bytes(content)
    assert archive_digests.remembered("k") is None
    archive_digests.remember("k", NAME)
    assert archive_digests.remembered("k") == NAME


def test_without_a_writable_folder_every_start_packs(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    first = agent_payload.build()
    assert built_again().archive == first.archive
    fail_to_pack(monkeypatch)
    with pytest.raises(AssertionError, match="packed"):
        built_again()


def test_the_last_eight_are_kept_in_a_file_of_the_user_alone():
    for number in range(10):
        archive_digests.remember(f"k{number}", NAME)
    assert [number for number in range(10) if archive_digests.remembered(f"k{number}")] == list(range(2, 10))
    assert stat.S_IMODE(archive_digests.path().stat().st_mode) == 0o600
    assert stat.S_IMODE(archive_digests.path().parent.stat().st_mode) == 0o700
