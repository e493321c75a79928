"""Folders that clients have sent: how long they are kept, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import tarfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gconsole.web import uploads as uploads_module
from gconsole.web.problems import HttpProblemError
from gconsole.web.uploads import AT_ONCE, KEPT_S, YOUNG_S, Upload, Uploads


def archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("train.py")
        entry.size = 9
        tar.addfile(entry, io.BytesIO(b"print(1)\n"))
    return buffer.getvalue()


async def parts(data: bytes) -> AsyncIterator[bytes]:
    yield data


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def sent(uploads: Uploads) -> Upload:
    return await uploads.receive("code", parts(archive()))


def left(folder: Path) -> list[str]:
    return sorted(path.name for root in folder.glob("*") for path in root.iterdir() if path.name != "lock")


async def test_folder_expires_an_hour_after_its_last_use_and_not_while_it_is_copied(tmp_path: Path) -> None:
    clock = Clock()
    uploads = Uploads(tmp_path, clock)
    first, second = await sent(uploads), await sent(uploads)
    with uploads.using(first.id) as folder:
        assert folder is not None and [file.path for file in folder.files] == ["train.py"]
        clock.now_s += 2 * KEPT_S
        assert uploads.all() == [first]
        with pytest.raises(HttpProblemError) as refused:
            uploads.remove(first.id)
        assert (refused.value.problem.status, refused.value.problem.name) == (409, "folder_in_use")
    clock.now_s += KEPT_S - 1
    assert uploads.all() == [first] and left(tmp_path) == [first.id]
    clock.now_s += 1
    assert uploads.all() == [] and left(tmp_path) == []
    for gone in (first, second):
        with pytest.raises(HttpProblemError) as refused, uploads.using(gone.id):
            pass
        assert (refused.value.problem.status, refused.value.problem.name) == (404, "no_such_folder")
    uploads.close()
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - names only


async def test_further_client_has_to_retry_while_folders_are_received(tmp_path: Path) -> None:
    uploads, ready = Uploads(tmp_path), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        await ready.wait()
        yield archive()

    receiving = [asyncio.create_task(uploads.receive("code", slow())) for _ in range(AT_ONCE)]
    await asyncio.sleep(0)
    with pytest.raises(HttpProblemError) as refused:
        await sent(uploads)
    assert (refused.value.problem.status, refused.value.headers) == (503, {"Retry-After": "1"})
    ready.set()
    assert {upload.id for upload in await asyncio.gather(*receiving)} == {upload.id for upload in uploads.all()}
    uploads.close()


async def test_full_disk_is_a_problem_with_its_reason_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(archive: Path, folder: Path) -> None:
        folder.mkdir()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(uploads_module, "unpack", full)
    uploads = Uploads(tmp_path)
    with pytest.raises(HttpProblemError) as refused:
        await sent(uploads)
    assert (refused.value.problem.status, refused.value.problem.name) == (413, "no_space")
    assert left(tmp_path) == []
    uploads.close()


async def test_request_that_is_cancelled_while_its_archive_is_unpacked_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(archive: Path, folder: Path) -> None:
        began.set()
        go_on.wait(30)
        folder.mkdir()
        (folder / "late").touch()

    monkeypatch.setattr(uploads_module, "unpack", slow)
    uploads = Uploads(tmp_path)
    receiving = asyncio.create_task(sent(uploads))
    assert await asyncio.to_thread(began.wait, 30)
    receiving.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    assert left(tmp_path) == [] and uploads.all() == []
    uploads.close()


async def test_next_server_removes_what_was_left_and_nothing_of_one_that_lives(tmp_path: Path) -> None:
    alive = Uploads(tmp_path)
    kept = await sent(alive)
    for name, age_s in (("left", 2 * YOUNG_S), ("new", 0.0)):  # killed before it had a lock; about to have one
        (tmp_path / name).mkdir()
        stamp = (tmp_path / name).stat().st_mtime - age_s
        os.utime(tmp_path / name, (stamp, stamp))
    Uploads(tmp_path).open()
    assert [upload.id for upload in alive.all()] == [kept.id]
    assert (tmp_path / "new").is_dir() and not (tmp_path / "left").exists()
    alive.close()
