"""Digests of archives of the agent's modules that were packed before, kept in the user's cache folder.

Packing takes 60 to 90 ms of each start, and nearly all nodes have the archive already: its name is enough for them.
Only digests are kept, no code, so that no file of the user's decides what runs on the nodes.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
import platformdirs

from ...text.atomic_files import make_folder, write_atomically

#: Releases of gconsole, of Python or of zlib that take turns on one machine.
_KEPT: Final = 8

_log = logging.getLogger(__name__)


class ArchiveName(NamedTuple):
    """The archive as a preamble names it; `digest`: its SHA-256 in hex digits, `size`: bytes."""

    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, msgspec.Meta(gt=0)]


def path() -> Path:
    """The file of all digests, by the key of what was packed."""
    return platformdirs.user_cache_path("gconsole") / "agent_archives.json"


def remembered(key: str) -> ArchiveName | None:
    """The name of the archive that was packed of the sources with this key; None if that is not known."""
    return _names().get(key)


def remember(key: str, name: ArchiveName) -> None:
    """Keep the name of an archive; without a writable cache folder every start packs one."""
    others = [(other, kept) for other, kept in _names().items() if other != key]
    _write(dict([*others[1 - _KEPT :], (key, name)]))


def forget(key: str) -> None:
    """Drop a name that is not that of the archive."""
    _write({other: kept for other, kept in _names().items() if other != key})


def _names() -> dict[str, ArchiveName]:
    try:
        return msgspec.json.decode(path().read_bytes(), type=dict[str, ArchiveName])
    except (OSError, msgspec.MsgspecError):
        return {}  # none yet, or a damaged file, which the next archive replaces


def _write(names: dict[str, ArchiveName]) -> None:
    file = path()
    try:
        make_folder(file.parent)
        write_atomically(file, msgspec.json.encode(names))
    except OSError as error:
        _log.debug("the digest of the agent's modules is not kept: %s", error)
