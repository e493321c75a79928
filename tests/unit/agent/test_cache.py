"""Cache folder of the agent: only a private folder of the user is used, and only verified files are executed."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from gconsole_remote.agent import cache
from gconsole_remote.agent.cache import Cache, UnusableCache

UID = os.geteuid()
CONTENT = b"#!/bin/sh\necho it runs\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def a_folder(path: Path, mode: int = 0o700) -> Path:
    path.mkdir(parents=True)
    path.chmod(mode)
    return path


def keep(place: Cache, content: bytes = CONTENT) -> str:
    writer = place.writer(hashlib.sha256(content).hexdigest())
    writer.write(content)
    return writer.finish()


def mount_noexec(monkeypatch, *noexec: Path) -> None:
    """Mount these folders noexec, according to statvfs()."""
    flag = {True: os.ST_NOEXEC, False: 0}
    monkeypatch.setattr(
        cache.os, "statvfs", lambda path: SimpleNamespace(f_flag=flag[any(str(path) == str(one) for one in noexec)])
    )


def test_private_folder_of_the_user_is_accepted(tmp_path):
    cache.check(str(a_folder(tmp_path / "mine")), UID)


def test_symlink_to_a_valid_folder_is_rejected(tmp_path):
    (tmp_path / "link").symlink_to(a_folder(tmp_path / "mine"))

    with pytest.raises(UnusableCache, match="is a link"):
        cache.check(str(tmp_path / "link"), UID)


def test_regular_file_is_rejected_as_cache_folder(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(UnusableCache, match="not a folder"):
        cache.check(str(tmp_path / "file"), UID)


def test_folder_of_another_user_is_rejected(tmp_path):
    with pytest.raises(UnusableCache, match=f"belongs to uid {UID}"):
        cache.check(str(a_folder(tmp_path / "theirs")), UID + 1)


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o720, 0o704, 0o777, 0o1777])
def test_folder_accessible_to_others_is_rejected(tmp_path, mode):
    with pytest.raises(UnusableCache, match="may be entered by others"):
        cache.check(str(a_folder(tmp_path / "open", mode)), UID)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(cache.os, "access", lambda path, mode: False)

    with pytest.raises(UnusableCache, match="cannot be written"):
        cache.check(str(a_folder(tmp_path / "mine")), UID)


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o2777])
def test_cache_below_a_folder_writable_by_others_is_rejected(tmp_path, mode):
    a_folder(tmp_path / "scratch", mode)
    (tmp_path / "way").symlink_to(tmp_path / "scratch")

    for path in (tmp_path / "scratch" / "deep" / "cache", tmp_path / "way" / "cache"):
        place = Cache(str(path))
        assert place.root is None and "others may rename it" in place.refused[0]
        assert not path.exists()


@pytest.mark.parametrize("mode", [0o1777, 0o775, 0o755])
def test_cache_in_a_sticky_or_own_group_writable_folder_is_accepted(tmp_path, mode):
    a_folder(tmp_path / "scratch", mode)

    assert Cache(str(tmp_path / "scratch" / "cache")).root == str(tmp_path / "scratch" / "cache")


def test_cache_creates_its_folders_private_to_the_user(tmp_path):
    place = Cache(str(tmp_path / "deep" / "cache"))

    assert place.root == str(tmp_path / "deep" / "cache") and place.refused == []
    for folder in (place.root, *(place.folder(name) for name in ("blob", "code", "run"))):
        assert Path(folder).stat().st_mode & 0o777 == 0o700


def test_symlinked_subfolder_makes_the_cache_folder_unusable(tmp_path):
    a_folder(tmp_path / "cache")
    (tmp_path / "cache" / "blob").symlink_to(tmp_path)

    place = Cache(str(tmp_path / "cache"))

    assert place.root is None
    assert "is a link" in place.refused[0]


def test_next_location_is_used_when_the_first_is_unusable(tmp_path, monkeypatch):
    bad, good = a_folder(tmp_path / "bad", 0o755), tmp_path / "good"
    monkeypatch.setattr(cache, "places", lambda configured, uid: [str(bad), str(good)])

    place = Cache()

    assert place.root == str(good)
    assert len(place.refused) == 1


def test_executable_location_is_preferred_to_an_earlier_noexec_one(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setattr(cache, "places", lambda configured, uid: [str(first), str(second)])
    mount_noexec(monkeypatch, first)

    place = Cache()

    assert (place.root, place.noexec) == (str(second), False)
    assert "noexec" in place.refused[0]


def test_binaries_are_kept_in_memory_when_every_location_is_noexec(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setattr(cache, "places", lambda configured, uid: [str(first), str(second)])
    mount_noexec(monkeypatch, first, second)

    place = Cache()
    path = keep(place)

    assert (place.root, place.noexec) == (str(first), True)
    assert path.startswith("/proc/") and list((first / "blob").iterdir()) == []


def test_location_on_a_stale_file_system_is_skipped(tmp_path, monkeypatch):
    def stale(path):
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(cache.os, "statvfs", stale)

    place = Cache(str(tmp_path / "cache"))

    assert place.root is None and "Stale" in place.refused[0]


def test_ephemeral_cache_creates_no_folder(tmp_path):
    place = Cache(str(tmp_path / "cache"), ephemeral=True)

    assert place.root is None and place.folder("run") is None
    assert not (tmp_path / "cache").exists()


def test_home_folder_is_the_last_default_cache_location():
    home = str(Path("~/.cache/gconsole-agent").expanduser())
    assert cache.places("", 7) == ["/var/tmp/gconsole-7", "/tmp/gconsole-7", home]
    assert cache.places("/scratch/x", 7) == ["/scratch/x"]


def test_a_finished_binary_is_found_and_runs(tmp_path):
    place = Cache(str(tmp_path / "cache"))

    path = keep(place)

    assert place.find(DIGEST) == path
    assert subprocess.run([path], capture_output=True, check=True).stdout == b"it runs\n"


@pytest.mark.parametrize("has_call", [True, False], ids=["memfd_create", "syscall number, before Python 3.8"])
def test_a_binary_in_memory_runs_and_leaves_no_file(tmp_path, monkeypatch, has_call):
    if not has_call:
        monkeypatch.delattr(cache.os, "memfd_create")
    place = Cache(str(tmp_path / "cache"), ephemeral=True)
    content = Path("/bin/echo").read_bytes()

    path = keep(place, content)

    assert place.find(hashlib.sha256(content).hexdigest()) == path
    assert subprocess.run([path, "from memory"], capture_output=True, check=True).stdout == b"from memory\n"
    assert list(tmp_path.iterdir()) == []


def test_modified_binary_is_not_found_and_can_be_replaced(tmp_path):
    place = Cache(str(tmp_path / "cache"))
    path = keep(place)
    Path(path).write_bytes(b"something else")

    assert place.find(DIGEST) is None
    assert keep(place) == path == place.find(DIGEST)


@pytest.mark.parametrize("plant", ["link", "folder", "nothing"])
def test_symlink_or_folder_in_place_of_a_binary_is_not_found(tmp_path, plant):
    place = Cache(str(tmp_path / "cache"))
    target = Path(place.folder("blob")) / DIGEST
    if plant == "link":
        (tmp_path / "elsewhere").write_bytes(CONTENT)
        target.symlink_to(tmp_path / "elsewhere")
    elif plant == "folder":
        target.mkdir()

    assert place.find(DIGEST) is None


def test_a_binary_that_cannot_be_read_is_not_found(tmp_path, monkeypatch):
    place = Cache(str(tmp_path / "cache"))
    keep(place)

    def broken(path):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(cache, "sha256_of", broken)

    assert place.find(DIGEST) is None


def test_damaged_binary_is_rejected_and_removed(tmp_path):
    place = Cache(str(tmp_path / "cache"))
    writer = place.writer(DIGEST)
    writer.write(CONTENT[:-1])

    with pytest.raises(UnusableCache, match="damaged"):
        writer.finish()
    writer.abandon()

    assert list(Path(place.folder("blob")).iterdir()) == []


def test_abandoning_a_finished_write_keeps_the_binary(tmp_path):
    place = Cache(str(tmp_path / "cache"))
    writer = place.writer(DIGEST)
    writer.write(CONTENT)
    path = writer.finish()

    writer.abandon()
    writer.abandon()

    assert place.find(DIGEST) == path


def age(path: Path, days: float) -> None:
    then = path.lstat().st_mtime - days * 86400
    os.utime(path, (then, then))


def test_payload_is_returned_only_to_its_owner_and_of_its_size(tmp_path, monkeypatch):
    place = Cache(str(tmp_path / "cache"))
    place.keep_payload(DIGEST, CONTENT)

    assert place.payload(DIGEST, len(CONTENT)) == CONTENT
    assert place.payload(DIGEST, len(CONTENT) - 1) is None
    monkeypatch.setattr(cache.os, "geteuid", lambda: UID + 1)
    assert place.payload(DIGEST, len(CONTENT)) is None


def test_payloads_of_the_last_used_releases_are_kept(tmp_path):
    place = Cache(str(tmp_path / "cache"))
    releases = {hashlib.sha256(text).hexdigest(): text for text in (b"first", b"second", b"third", b"fourth", b"fifth")}
    first, *_, fourth, fifth = releases
    for number, (digest, text) in enumerate(releases.items()):
        if digest == fifth:
            assert place.payload(first, 5) == b"first", "in use again: it becomes the youngest"
        place.keep_payload(digest, text)
        age(Path(place.folder("blob")) / f"payload-{digest}", 9 - number)

    place.keep_payload(fourth, releases[fourth])

    assert [place.payload(digest, len(text)) is not None for digest, text in releases.items()] == [
        True, False, True, True, True]  # fmt: skip
    assert len(list(Path(place.folder("blob")).iterdir())) == cache.KEPT_PAYLOADS


def test_incomplete_files_of_killed_processes_are_removed_after_a_day(tmp_path):
    place = Cache(str(tmp_path / "cache"))
    binary, running = keep(place), place.writer("a" * 64)
    left = Path(place.folder("blob")) / ".draft-killed"
    left.write_bytes(b"half")
    age(left, 2)

    place.keep_payload(DIGEST, CONTENT)

    assert not left.exists() and Path(binary).exists()
    assert Path(running.draft).exists(), "a transfer in progress"
    running.abandon()


@pytest.mark.parametrize("call", ["rename", "open"])
def test_payload_that_cannot_be_stored_leaves_no_file(tmp_path, monkeypatch, call):
    place = Cache(str(tmp_path / "cache"))

    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full_disk:
        full_disk.setattr(cache.os, call, fail)
        place.keep_payload(DIGEST, CONTENT)

    assert place.payload(DIGEST, len(CONTENT)) is None
    assert list(Path(place.folder("blob")).iterdir()) == []
