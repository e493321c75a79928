"""`gconsole run fetch` from a node that lies about its files: what it can write here is bounded, and the copy ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gconsole.core.job_protocol import FileList
from gconsole.launch.fetch import MAX_GROWTH, FetchBudget, fetch_from
from gconsole_remote.jobs.requests import CHUNK_BYTES

MIB = 1 << 20


class LyingNode:
    """A `Control` of a node that lists files of any size and sends pieces without end, `piece` bytes each."""

    def __init__(self, listed: tuple[tuple[str, int], ...], piece: int, last_after: int | None = None) -> None:
        self._listed, self._piece, self._last_after = listed, piece, last_after
        self.sent = self.requests = 0

    async def list_job_files(self, job: str, node: str, path: str) -> FileList:
        return FileList("/work/out", self._listed)

    async def read_job_file(self, job: str, node: str, path: str, offset: int) -> tuple[bytes, bool]:
        self.requests += 1
        assert self.requests < 10_000, "the copy does not end"
        self.sent += self._piece
        return bytes(self._piece), self._last_after is not None and self.requests >= self._last_after


def fetch(node: Any, output: Path, max_size: int) -> str | None:
    return asyncio.run(fetch_from(node, "evil", "job", "out", output, FetchBudget(max_size), lambda path: None))


def written(output: Path) -> int:
    return sum(path.stat().st_size for path in output.rglob("*") if path.is_file())


def test_file_that_claims_an_impossible_size_is_not_copied(tmp_path: Path) -> None:
    node = LyingNode((("a", 2**62),), CHUNK_BYTES)
    problem = fetch(node, tmp_path, 8 * MIB)
    assert problem is not None and "--max-size" in problem
    assert node.sent == written(tmp_path) == 0


def test_copy_of_an_endless_file_ends_at_its_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gconsole.launch.fetch.MAX_GROWTH", 4 * MIB)
    node = LyingNode((("a", MIB),), CHUNK_BYTES)
    problem = fetch(node, tmp_path, MAX_GROWTH)
    assert problem is not None and "larger than its listed size" in problem
    assert written(tmp_path) <= 5 * MIB


@pytest.mark.parametrize("sizes", [[1] * 50, [0] * 50, [-(2**62)] * 50])
def test_many_files_together_stay_within_the_limit(tmp_path: Path, sizes: list[int]) -> None:
    node = LyingNode(tuple((f"f{number}", size) for number, size in enumerate(sizes)), CHUNK_BYTES, last_after=None)
    problem = fetch(node, tmp_path, 8 * MIB)
    assert problem is not None and "--max-size" in problem
    assert written(tmp_path) <= 8 * MIB


@pytest.mark.parametrize("piece", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES + 1])
def test_node_that_sends_incomplete_pieces_is_not_asked_again(tmp_path: Path, piece: int) -> None:
    node = LyingNode((("a", 2**30),), piece)
    problem = fetch(node, tmp_path, 2**31)
    assert problem is not None and "invalid response" in problem
    assert node.requests == 1 and written(tmp_path) == 0


def test_complete_file_is_copied(tmp_path: Path) -> None:
    node = LyingNode((("a", 2 * CHUNK_BYTES),), CHUNK_BYTES, last_after=2)
    assert fetch(node, tmp_path, 4 * MIB) is None
    assert written(tmp_path) == 2 * CHUNK_BYTES
