"""Archives of clients: what `tar` makes is unpacked, what would leave the folder or fill the server is refused."""

from __future__ import annotations

import gzip
import io
import os
import struct
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gconsole.launch import archive
from gconsole.launch.archive import unpack
from gconsole.launch.code_folder import BadFolder, read_folder


def tar_of(*entries: tuple[str, dict[str, object], bytes], **options: object) -> bytes:
    """A tar archive of these entries: (name, attributes of its header, content)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", **options) as tar:  # type: ignore[call-overload]
        for name, attributes, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for attribute, value in attributes.items():
                setattr(info, attribute, value)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def unpacked(tmp_path: Path, data: bytes) -> Path:
    (tmp_path / "archive").write_bytes(data)
    folder = tmp_path / "folder"
    unpack(tmp_path / "archive", folder)
    return folder


SYMLINK, HARD, FIFO, DEVICE = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE


@pytest.mark.parametrize("flags", ["-c", "-cz"], ids=["plain", "gzip"])
@pytest.mark.parametrize("form", ["gnu", "pax", "ustar"])
def test_what_tar_makes_of_a_folder_is_read_like_the_folder(tmp_path: Path, flags: str, form: str) -> None:
    code = tmp_path / "code"
    (code / "lib/naïve").mkdir(parents=True)
    (code / "train.py").write_text("print(1)\n")
    (code / "run.sh").write_text("#!/bin/sh\n")
    (code / "run.sh").chmod(0o755)
    (code / "lib/naïve" / ("x" * 90 + ".py")).write_text("y" * 70_000)
    (code / "lib/empty").touch()
    (code / "latest").symlink_to("lib/empty")
    os.link(code / "train.py", code / "lib/same.py")
    for left_out in (".git/objects/ab", "lib/__pycache__/x.pyc"):
        (code / left_out).parent.mkdir(parents=True)
        (code / left_out).write_text("z")
    data = subprocess.run(
        ["tar", "-C", str(code), f"--format={form}", flags, "."], check=True, capture_output=True
    ).stdout
    got, want = read_folder(unpacked(tmp_path, data)), read_folder(code)
    assert (got.files, got.links) == (want.files, want.links)
    assert {path.name for path in tmp_path.iterdir()} == {"code", "archive", "folder"}


HOSTILE = {
    "absolute": [("/etc/cron.d/x", {}, b"x")],
    "above": [("../x", {}, b"x")],
    "above later": [("a/../../x", {}, b"x")],
    "through a link": [("a", {"type": SYMLINK, "linkname": "../outside"}, b""), ("a/x", {}, b"x")],
    "instead of a link": [("a", {"type": SYMLINK, "linkname": "b"}, b""), ("a", {}, b"x")],
    "a link instead of a file": [("a", {}, b"x"), ("a", {"type": SYMLINK, "linkname": "b"}, b"")],
    "a hard link to a file of the server": [("a", {"type": HARD, "linkname": "/etc/passwd"}, b"")],
    "a hard link above": [("a", {"type": HARD, "linkname": "../../archive"}, b"")],
    "a hard link to a link": [
        ("a", {"type": SYMLINK, "linkname": "/etc/passwd"}, b""), ("b", {"type": HARD, "linkname": "a"}, b"")
    ],
    "a pipe": [("a", {"type": FIFO}, b"")],
    "a device": [("a", {"type": DEVICE, "devmajor": 1, "devminor": 5}, b"")],
    "twice": [("a", {}, b"x"), ("./a", {}, b"y")],
    "a file below a file": [("a", {}, b"x"), ("a/b", {}, b"y")],
    "a folder instead of a file": [("a", {}, b"x"), ("a", {"type": tarfile.DIRTYPE}, b"")],
    "a long name": [("n" * 256, {}, b"x")],
    "a long path": [("/".join(["p" * 200] * 30), {}, b"x")],
    "a name that is no text": [("a", {"type": SYMLINK, "linkname": "\udcff"}, b"")],
}  # fmt: skip


@pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
def test_entries_that_are_no_code_are_refused(
    tmp_path: Path, entries: list[tuple[str, dict[str, object], bytes]], form: int
) -> None:
    try:
        data = tar_of(*entries, format=form, errors="surrogateescape")
    except UnicodeEncodeError:
        pytest.skip("this form cannot hold it")
    (tmp_path / "outside").mkdir()
    with pytest.raises(BadFolder):
        unpacked(tmp_path, data)
    assert {path.name for path in tmp_path.iterdir()} == {"archive", "folder", "outside"}
    assert list((tmp_path / "outside").iterdir()) == []


def test_link_that_leads_out_of_the_folder_is_refused_when_it_is_read(tmp_path: Path) -> None:
    folder = unpacked(tmp_path, tar_of(("a", {"type": SYMLINK, "linkname": "/etc/passwd"}, b"")))
    with pytest.raises(BadFolder, match="outside of the folder"):
        read_folder(folder)


def test_links_that_lead_to_each_other_are_refused_when_they_are_read(tmp_path: Path) -> None:
    links = [(name, {"type": SYMLINK, "linkname": other}, b"") for name, other in (("a", "b"), ("b", "a"))]
    folder = unpacked(tmp_path, tar_of(*links))
    with pytest.raises(BadFolder, match="leads to itself"):
        read_folder(folder)


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("rest", [b"", bytes(512), b"x" * 1024], ids=["nothing", "half an end", "no header"])
def test_archive_of_an_interrupted_tar_is_refused_and_not_taken_for_a_smaller_one(
    tmp_path: Path, compress: Callable[[bytes], bytes], rest: bytes
) -> None:
    whole = tar_of(("a", {}, b"x"), ("b", {}, b"y"))
    with pytest.raises(BadFolder, match="ends early"):
        unpacked(tmp_path, compress(whole[:1024] + rest))  # after the first file


def test_mode_of_a_file_has_no_rights_of_its_owner(tmp_path: Path) -> None:
    folder = unpacked(tmp_path, tar_of(("a", {"mode": 0o6755}, b"x"), ("b", {"mode": 0}, b"x")))
    assert [file.mode for file in read_folder(folder).files] == [0o755, 0o400]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not a tar archive"),
        (b"PK\x03\x04 a zip file", "not a tar archive"),
        (b"\xff" * 5000, "not a tar archive"),
        (b"\x1f\x8bgarbage", "damaged gzip"),
        (gzip.compress(tar_of(("a", {}, os.urandom(5000))))[:-900], "ends early"),
        (tar_of(("a", {}, b"x" * 5000))[:2000], "ends within|not a tar archive|unexpected end"),
    ],
    ids=["nothing", "zip", "no header", "no gzip", "short gzip", "short tar"],
)
def test_damaged_archive_is_refused_with_its_reason(tmp_path: Path, data: bytes, text: str) -> None:
    with pytest.raises(BadFolder, match=text):
        unpacked(tmp_path, data)


def pax_header(size: int) -> bytes:
    """An extended header that claims to have this many bytes."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, size
    return info.tobuf(tarfile.USTAR_FORMAT)


def test_headers_are_bounded(tmp_path: Path) -> None:
    with pytest.raises(BadFolder, match="headers of one entry"):
        unpacked(tmp_path, pax_header(1 << 30) + b"\0" * 10_240)


def test_chain_of_headers_is_bounded(tmp_path: Path) -> None:
    record = b"11 path=a/b"[:10] + b"\n"
    chain = (pax_header(len(record)) + record.ljust(512, b"\0")) * 5000
    with pytest.raises(BadFolder):
        unpacked(tmp_path, chain + b"\0" * 10_240)


def test_sparse_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    with (tmp_path / "s/big").open("wb") as file:
        file.truncate(1 << 30)
    for form in ("gnu", "pax"):
        data = subprocess.run(
            ["tar", "-C", str(tmp_path / "s"), "-S", f"--format={form}", "-c", "."], check=True, capture_output=True
        ).stdout
        with pytest.raises(BadFolder, match="not a plain file"):
            unpacked(tmp_path, data)
        (tmp_path / "folder").rmdir()


def test_what_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_UNPACKED", 1 << 20)
    with pytest.raises(BadFolder, match="more than"):
        unpacked(tmp_path, gzip.compress(b"\0" * (4 << 20)))
    monkeypatch.setattr(archive, "MAX_BYTES", 10_000)
    (tmp_path / "b").mkdir()
    with pytest.raises(BadFolder, match="more than"):
        unpacked(tmp_path / "b", tar_of(("a", {}, b"x" * 6000), ("c", {"type": HARD, "linkname": "a"}, b"")))


def test_number_of_entries_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_ENTRIES", 50)
    with pytest.raises(BadFolder, match="more than 50 entries"):
        unpacked(tmp_path, tar_of(*((f".git/{number}", {}, b"") for number in range(60))))


def test_size_in_a_header_beyond_the_archive_is_refused(tmp_path: Path) -> None:
    data = bytearray(tar_of(("a", {}, b"x" * 600)))
    data[124:136] = b"\x80" + struct.pack(">Q", 1 << 40).rjust(11, b"\0")
    data[148:156] = b"%06o\0 " % (sum(data[:148]) + 8 * 32 + sum(data[156:512]))
    with pytest.raises(BadFolder):
        unpacked(tmp_path, bytes(data))
