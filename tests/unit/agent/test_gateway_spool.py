"""What a gateway writes of its nodes: quota, damage, and files that nothing of this program wrote."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gconsole_remote.agent import cache
from gconsole_remote.gateway import keeper, past, spool

NODE = "node1"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[spool.Folder]:
    folder = spool.Folder(cache.Cache(str(tmp_path / "cache")), "gateway of x")
    yield folder
    folder.leave()


def lines(first: int, last: int, size: int = 100) -> bytes:
    return b"".join(b'{"kind":"log","seq":%d,"text":"%s"}\n' % (seq, b"x" * size) for seq in range(first, last + 1))


def write(folder: spool.Folder, data: bytes, number: int = 1) -> Path:
    path = Path(folder.path) / f"{cache.short_name(NODE)}-{number:08d}"
    path.write_bytes(data)
    return path


def frame(raw: bytes, *, size: int | None = None, first: int = 1, last: int = 1) -> bytes:
    packed = zlib.compress(raw)
    rest = struct.pack("!IIQQ", len(packed), len(raw) if size is None else size, first, last) + packed
    return b"GCk1" + struct.pack("!I", zlib.crc32(rest)) + rest


def test_frames_come_back_in_order_with_their_agent(folder: spool.Folder) -> None:
    writer = spool.Writer(folder, NODE, 1 << 20)
    writer.append("a", 1, 3, lines(1, 3))
    writer.append("b", 1, 2, lines(1, 2))
    spool.Writer(folder, "node2", 1 << 20).append("c", 1, 1, lines(1, 1))
    found = list(spool.frames_of(folder, NODE))
    assert [(each.agent, each.first, each.last, each.damage) for each in found] == [("a", 1, 3, ""), ("b", 1, 2, "")]
    assert found[0].lines == lines(1, 3)
    assert len(folder.files(NODE)) == 1
    folder.remove(NODE)
    assert folder.files(NODE) == []
    assert len(folder.files("node2")) == 1


def test_oldest_file_is_dropped_beyond_the_quota_and_said(folder: spool.Folder) -> None:
    quota = 1 << 20
    writer = spool.Writer(folder, NODE, quota)
    for number in range(1, 41):
        noise = os.urandom(32 << 10).hex().encode()
        writer.append("a", number, number, b'{"kind":"log","seq":%d,"text":"%s"}\n' % (number, noise))
    assert sum(Path(path).stat().st_size for path in folder.files(NODE)) <= quota
    found = list(spool.frames_of(folder, NODE))
    assert found[0].damage.startswith("the oldest were dropped")
    assert found[0].first > 1
    assert [each.first for each in found] == list(range(found[0].first, 41))


def test_full_disk_refuses_and_leaves_nothing(folder: spool.Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = spool.Writer(folder, NODE, 1 << 20)
    monkeypatch.setattr(spool, "_FREE", 1 << 60)
    with pytest.raises(OSError, match="No space"):
        writer.append("a", 1, 1, lines(1, 1))
    assert folder.summary() is None


GOOD = b'{"node": "node1", "agent": "a"}\n' + lines(1, 1)
HOSTILE = {
    "a bomb": frame(GOOD + b"x" * (64 << 20), size=len(GOOD)),
    "a bomb that says so": frame(GOOD + b"x" * (64 << 20)),
    "records of another node": frame(GOOD.replace(b"node1", b"node2")),
    "a wrong sum": b"GCk1" + b"\0" * 4 + frame(GOOD)[8:],
    "no names": frame(b"[]\n" + lines(1, 1)),
    "numbers that fall": frame(GOOD, first=5, last=4),
    "no line end": frame(GOOD[:-1]),
    "noise": b"GCk1" * 1000,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_what_is_not_a_frame_of_this_node_is_named_and_skipped(folder: spool.Folder, data: bytes) -> None:
    path = write(folder, data + frame(GOOD))
    [found] = spool.frames_of(folder, NODE)
    assert (found.lines, found.damage) == (lines(1, 1), f"{path.name} is damaged at byte {found.damage.split()[-1]}")


@pytest.mark.parametrize("cut", [1, 20, 40])
def test_torn_end_is_not_believed(folder: spool.Folder, cut: int) -> None:
    write(folder, frame(GOOD) + frame(GOOD, first=2, last=2)[:-cut])
    assert [each.first for each in spool.frames_of(folder, NODE) if each.lines] == [1]


def test_link_in_place_of_a_file_is_not_followed(folder: spool.Folder, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(frame(GOOD))
    (Path(folder.path) / f"{cache.short_name(NODE)}-00000001").symlink_to(tmp_path / "other")
    assert [each.lines for each in spool.frames_of(folder, NODE)] == [b""]


def test_folder_of_a_console_that_never_came_back_is_removed_after_a_week(tmp_path: Path) -> None:
    place = cache.Cache(str(tmp_path / "cache"))
    old = spool.Folder(place, "gateway of old")
    spool.Writer(old, NODE, 1 << 20).append("a", 1, 1, lines(1, 1))
    old.leave()
    for path in Path(old.path).iterdir():
        os.utime(path, (1, 1))
    new = spool.Folder(place, "gateway of new")
    new.prune()
    assert not Path(old.path).exists()
    new.leave()
    assert not Path(new.top).exists()


@pytest.mark.parametrize(
    "live",
    [
        b'{"kind":"log","seq":9,"text":"x"}\n',
        b'{"layout":0,"kind":"log","names":["text","severity"]}\n[0,9,1,1,1,[["x","info"]]]\n',
        b'{"pong":1}\n[0,9,1,1,1,[["x","info"]]]\n',
    ],
)
def test_loss_at_the_end_of_the_past_is_explained_before_the_first_live_record(
    folder: spool.Folder, live: bytes
) -> None:
    spool.Writer(folder, NODE, 1 << 20).append("a", 1, 3, lines(1, 3))
    [path] = folder.files(NODE)
    damaged = frame(lines(4, 8), first=4, last=8)[:-1] + b"?"
    Path(path).write_bytes(Path(path).read_bytes() + damaged)
    kept = past.Past(folder, keeper.Opening(NODE, ["true"]))
    kept.pass_on(b'{"gconsole":{"agent":"a"}}\n', 1 << 16)
    while kept.is_sending:
        kept.next_bytes(1 << 16)
    *before, gap, record = kept.pass_on(live, 1 << 16).splitlines(keepends=True)

    assert json.loads(gap)["gap"] == [4, 8]
    assert b"".join([*before, record]) == live
    kept.on_input(b'{"ack":9}\n')
    assert kept.is_over
