"""Copies the folder of a job to its nodes: files that a node lacks are sent in chunks and verified there."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..core.job_protocol import Synced, SyncFile, SyncFolder
from ..records import Failure
from ..transport.errors import AgentRefused
from .job_requests import Links, gather, link_of
from .node_link import NodeLink

_log = logging.getLogger(__name__)

#: Nodes, and files per node, transferred at once: small files are latency-bound. With CHUNK (bytes) this bounds
#: the console's memory.
AT_ONCE, FILES_AT_ONCE = 8, 8
CHUNK = 1 << 20
#: Seconds. A node hashes all files of matching size.
COMPARE_S = 120.0
CHUNK_S = 60.0


async def sync(links: Links, nodes: Iterable[str], folder: SyncFolder, workdir: str) -> dict[str, Synced | Failure]:
    """See `Control.sync_folder`."""
    node_slots = asyncio.Semaphore(AT_ONCE)

    async def run(node: str) -> Synced | Failure:
        async with node_slots:
            try:
                return await _sync_node(link_of(links, node), folder, workdir)
            except OSError as error:
                return Failure("sync_failed", f"{error.filename}: {error.strerror}", "start again")

    return await gather(nodes, run)


async def _sync_node(link: NodeLink, folder: SyncFolder, workdir: str) -> Synced:
    manifest = {
        "workdir": workdir, "links": [[symlink.path, symlink.target] for symlink in folder.links],
        "files": [[file.path, file.bytes, file.sha256, file.mode] for file in folder.files],
    }  # fmt: skip
    answer = await link.request("sync_compare", manifest, COMPARE_S)
    files = _requested(folder.files, answer)
    file_slots = asyncio.Semaphore(FILES_AT_ONCE)

    async def send(file: SyncFile) -> None:
        async with file_slots:
            await _send(link, Path(folder.local), file, workdir)

    try:
        async with asyncio.TaskGroup() as group:
            for file in files:
                group.create_task(send(file))
    except ExceptionGroup as group_error:
        raise group_error.exceptions[0] from group_error
    await link.request("sync_done", {"workdir": workdir}, CHUNK_S)
    synced = Synced(len(files), sum(file.bytes for file in files))
    _log.info("%s: copied %d of %d files, %d bytes, to %s", link.node.name, synced.files, len(folder.files),
              synced.bytes, workdir)  # fmt: skip
    return synced


def _requested(files: Sequence[SyncFile], answer: object) -> list[SyncFile]:
    """The files whose indices a node returned. Raises AgentRefused for invalid ones."""
    wanted = answer.get("wanted") if isinstance(answer, dict) else None
    if not isinstance(wanted, list) or not all(isinstance(index, int) and 0 <= index < len(files) for index in wanted):
        raise AgentRefused("no_answer", "invalid response: file indices expected")
    return [files[index] for index in wanted]


async def _send(link: NodeLink, root: Path, file: SyncFile, workdir: str) -> None:
    offset, is_last = 0, False
    while not is_last:
        data = await asyncio.to_thread(_read_chunk, root / file.path, offset)
        is_last = len(data) < CHUNK
        args = {
            "workdir": workdir, "path": file.path, "sha256": file.sha256, "offset": offset,
            "data": base64.b64encode(data).decode(), "mode": file.mode if is_last else None,
        }  # fmt: skip
        await link.request("sync_put", args, CHUNK_S)
        offset += len(data)


def _read_chunk(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(CHUNK)
