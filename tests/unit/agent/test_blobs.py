"""Binary transfer to the agent: chunks, checksums, and errors that are reported without ending the agent."""

from __future__ import annotations

import base64
import errno
import hashlib
import importlib.metadata
import lzma
import os
import threading
import time
import zipfile
import zlib
from pathlib import Path

import pytest

from gconsole.fleet.deploy import binaries
from gconsole.fleet.deploy.binaries import Binary, UnreadableBinary
from gconsole_remote.agent.binaries import PY_SPY, BinaryStore
from gconsole_remote.agent.blob_writer import BlobWriter
from gconsole_remote.agent.cache import Cache

ARCH = os.uname().machine
CONTENT = os.urandom(3000) + b"\0" * 50_000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Agent:
    """Records the missing binaries that are reported."""

    def __init__(self) -> None:
        self.missing: list[tuple[str, str]] = []

    def miss(self, name: str, text: str, try_: str) -> None:
        self.missing.append((name, text))


def blobs(tmp_path: Path, **offered: str) -> BinaryStore:
    """BinaryStore of an agent; each binary in `offered` is built for this machine."""
    held = BinaryStore(Cache(str(tmp_path / "cache")))
    for name, digest in offered.items():
        held.offer(name.replace("_", "-"), {ARCH: digest})
    return held


def frames(content: bytes = CONTENT, encoding: str = "zlib", piece: int = 1000, name: str = PY_SPY) -> list[dict]:
    """Frames of a binary as the console sends them."""
    packed = zlib.compress(content) if encoding == "zlib" else lzma.compress(content)
    return [
        {
            "blob": name, "at": at, "encoding": encoding, "end": at + piece >= len(packed),
            "data": base64.b64encode(packed[at : at + piece]).decode(),
        }
        for at in range(0, len(packed), piece)
    ]  # fmt: skip


def send(held: BinaryStore, pieces: list[dict]) -> Agent:
    agent = Agent()
    for piece in pieces:
        held.receive(agent, piece)
    return agent


def kept(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "cache" / "blob").iterdir()]


@pytest.mark.parametrize("encoding", ["zlib", "xz"])
def test_complete_binary_is_stored(tmp_path, encoding):
    held = blobs(tmp_path, py_spy=DIGEST)
    assert held.wanted() == [PY_SPY]

    agent = send(held, frames(encoding=encoding))

    assert Path(held.path(PY_SPY)).read_bytes() == CONTENT
    assert held.wanted() == [] and agent.missing == []


def test_binary_cached_by_an_earlier_run_is_not_requested_again(tmp_path):
    send(blobs(tmp_path, py_spy=DIGEST), frames())

    assert blobs(tmp_path, py_spy=DIGEST).wanted() == []


def damage(pieces: list[dict], at: int) -> list[dict]:
    raw = bytearray(base64.b64decode(pieces[at]["data"]))
    raw[len(raw) // 2] ^= 0xFF
    return [*pieces[:at], {**pieces[at], "data": base64.b64encode(bytes(raw)).decode()}, *pieces[at + 1 :]]


@pytest.mark.parametrize("encoding", ["zlib", "xz"])
@pytest.mark.parametrize("at", [0, 1, -1], ids=["error in the first chunk", "error in the second", "error in the last"])
def test_corrupted_binary_is_reported_once_and_leaves_no_file(tmp_path, encoding, at):
    held = blobs(tmp_path, py_spy=DIGEST)
    pieces = frames(encoding=encoding)

    agent = send(held, damage(pieces, at % len(pieces)))

    assert [name for name, _ in agent.missing] == [PY_SPY]
    assert held.path(PY_SPY) is None and "could not be stored" in held.problem(PY_SPY)
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    "broken",
    [{"data": "%%%"}, {"data": 5}, {"encoding": "brotli", "data": "AAAA"}, {"data": None}, {"at": None}],
    ids=lambda broken: str(broken),
)
def test_malformed_piece_is_reported(tmp_path, broken):
    held = blobs(tmp_path, py_spy=DIGEST)

    agent = send(held, [{**frames()[0], **broken}, {"blob": PY_SPY}])

    assert agent.missing and held.path(PY_SPY) is None


def test_pieces_after_the_last_one_are_ignored(tmp_path):
    held = blobs(tmp_path, py_spy=DIGEST)

    agent = send(held, [*frames(encoding="xz"), *frames(encoding="xz")[-1:]])

    assert held.path(PY_SPY) and agent.missing == []


def test_interrupted_transfer_restarts_on_the_next_connection(tmp_path):
    held = blobs(tmp_path, py_spy=DIGEST)
    pieces = frames()
    send(held, pieces[:2])

    agent = send(held, pieces)

    assert Path(held.path(PY_SPY)).read_bytes() == CONTENT
    assert agent.missing == [] and kept(tmp_path) == [DIGEST]


def test_pieces_without_the_first_one_are_ignored(tmp_path):
    held = blobs(tmp_path, py_spy=DIGEST)

    agent = send(held, frames()[1:])

    assert held.wanted() == [PY_SPY] and agent.missing == []


def test_failed_binary_can_be_offered_and_sent_again(tmp_path):
    held = blobs(tmp_path, py_spy=DIGEST)
    send(held, damage(frames(), 0))
    assert held.wanted() == []

    held.offer(PY_SPY, {ARCH: DIGEST})
    send(held, frames())

    assert held.path(PY_SPY) and held.problem(PY_SPY) is None


def test_binary_with_the_wrong_digest_is_rejected(tmp_path):
    held = blobs(tmp_path, py_spy=DIGEST)

    agent = send(held, frames(content=b"evil" * 1000))

    assert "damaged" in agent.missing[0][1]


def test_full_disk_is_reported_once_and_leaves_no_file(tmp_path, monkeypatch):
    held = blobs(tmp_path, py_spy=DIGEST)

    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(BlobWriter, "write", full)
    agent = send(held, frames())

    assert len(agent.missing) == 1 and "No space left" in agent.missing[0][1]
    assert kept(tmp_path) == []


def test_binary_that_was_not_offered_is_ignored(tmp_path):
    held = blobs(tmp_path)

    agent = send(held, frames())

    assert agent.missing == [] and kept(tmp_path) == []


def test_missing_binary_for_this_architecture_is_reported_with_a_remedy(tmp_path):
    held = BinaryStore(Cache(str(tmp_path / "cache")))
    held.offer(PY_SPY, {"riscv64": DIGEST})

    assert held.wanted() == []
    assert f"no py-spy for {ARCH}" in held.problem(PY_SPY) and "gconsole bundle" in held.problem(PY_SPY)


def test_problem_sent_instead_of_a_binary_makes_it_unavailable(tmp_path):
    held = blobs(tmp_path, py_spy=DIGEST)

    send(held, [{"blob": PY_SPY, "problem": "its wheel is broken"}])

    assert (held.path(PY_SPY), held.problem(PY_SPY), held.wanted()) == (None, "its wheel is broken", [])


def test_waiting_thread_wakes_when_the_binary_arrives(tmp_path):
    held = blobs(tmp_path, py_spy=DIGEST)
    waiting = threading.Thread(target=held.wait, args=(PY_SPY, 30.0), daemon=True)
    waiting.start()
    began = time.monotonic()

    send(held, frames())
    waiting.join(10)

    assert not waiting.is_alive() and time.monotonic() - began < 10


def test_close_removes_a_partial_binary(tmp_path):
    held = blobs(tmp_path, py_spy=DIGEST)
    send(held, frames()[:1])
    assert kept(tmp_path) != []

    held.close()

    assert kept(tmp_path) == []


@pytest.mark.parametrize("content", [b"#!/bin/sh\nid\n", b"\x7fELF\x02" + b"\0" * 13 + b"\x3e\0", b""])
def test_wheel_with_another_program_than_that_of_the_release_is_rejected(tmp_path, content):
    wheel = tmp_path / "py_spy-0.4.3-py2.py3-none-manylinux_2_5_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("py_spy-0.4.3.data/scripts/py-spy", content)
    with pytest.raises(UnreadableBinary, match="SHA-256 of py-spy in it is not that of this release"):
        _ = Binary("py-spy", "x86_64", wheel).content


def test_installed_script_is_not_sent_as_a_program(tmp_path):
    (tmp_path / "py-spy").write_text("#!/bin/sh\nid\n")
    with pytest.raises(UnreadableBinary, match="not a program for x86_64"):
        _ = Binary("py-spy", "x86_64", tmp_path / "py-spy").content


def test_checksums_of_the_required_versions_are_part_of_the_release():
    required = {name: importlib.metadata.version(name) for name in (PY_SPY,)}
    assert set(binaries._PINNED) == {
        (name, version, arch) for name, version in required.items() for arch in binaries.ARCHES
    }


def test_installed_wheel_has_the_program_of_the_release():
    versions = {name: importlib.metadata.version(name) for name in (PY_SPY,)}
    installed = {(binary.name, binary.arch): binary.digest for binary in binaries._installed()}
    assert installed == {(name, ARCH): binaries._PINNED[name, version, ARCH] for name, version in versions.items()}
