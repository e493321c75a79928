"""A folder copied to nodes over the links that are there: each says what it lacks, and gets that."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..core.job_protocol import Synced, SyncFile, SyncFolder
from ..records import Failure
from ..transport.errors import AgentRefused, FleetError, Lost
from .link import NodeLink

#: Nodes that receive at the same time, and files on their way to each: of small files the round trip is the cost. With
#: the size of a piece this bounds the console's memory.
AT_ONCE, FILES_AT_ONCE = 8, 8
PIECE = 1 << 20
#: A node reads all files that look alike, to know that they are.
COMPARE_S = 120.0
PIECE_S = 60.0


async def sync(
    links: Mapping[str, NodeLink], nodes: Iterable[str], folder: SyncFolder, workdir: str
) -> dict[str, Synced | Failure]:
    """See `Control.sync_folder`."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(node: str) -> Synced | Failure:
        async with places:
            try:
                link = links.get(node)
                if link is None:
                    raise Lost(f"{node} is not of this fleet")
                return await _bring(link, folder, workdir)
            except FleetError as error:
                return error.as_failure()
            except OSError as error:
                return Failure("sync_failed", f"{error.filename}: {error.strerror}", "start again")

    names = list(nodes)
    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


async def _bring(link: NodeLink, folder: SyncFolder, workdir: str) -> Synced:
    asked = {
        "workdir": workdir, "links": [[one.path, one.target] for one in folder.links],
        "files": [[file.path, file.bytes, file.sha256, file.mode] for file in folder.files],
    }  # fmt: skip
    answer = await link.request("sync_compare", asked, COMPARE_S)
    files = _named(folder.files, answer)
    ways = asyncio.Semaphore(FILES_AT_ONCE)

    async def send(file: SyncFile) -> None:
        async with ways:
            await _send(link, Path(folder.local), file, workdir)

    try:
        async with asyncio.TaskGroup() as group:
            for file in files:
                group.create_task(send(file))
    except ExceptionGroup as several:
        raise several.exceptions[0] from several
    await link.request("sync_done", {"workdir": workdir}, PIECE_S)
    return Synced(len(files), sum(file.bytes for file in files))


def _named(files: Sequence[SyncFile], answer: object) -> list[SyncFile]:
    """The files whose numbers a node gave. Raises AgentRefused where those are none."""
    wanted = answer.get("wanted") if isinstance(answer, dict) else None
    if not isinstance(wanted, list) or not all(isinstance(at, int) and 0 <= at < len(files) for at in wanted):
        raise AgentRefused("no_answer", "what came back names no files")
    return [files[at] for at in wanted]


async def _send(link: NodeLink, root: Path, file: SyncFile, workdir: str) -> None:
    offset, is_last = 0, False
    while not is_last:
        data = await asyncio.to_thread(_piece, root / file.path, offset)
        is_last = len(data) < PIECE
        args = {
            "workdir": workdir, "path": file.path, "sha256": file.sha256, "offset": offset,
            "data": base64.b64encode(data).decode(), "mode": file.mode if is_last else None,
        }  # fmt: skip
        await link.request("sync_put", args, PIECE_S)
        offset += len(data)


def _piece(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(PIECE)
