"""Receives a folder of the console's machine before a job starts; only files that differ are sent.

Other files in the folder stay. A path that leads out of the folder, also through a link, is refused.
"""

import base64
import hashlib
import os
import shutil

from ..agent.requests import RequestError
from .preflight import lack_of_space

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..agent.agent import Agent
    from ..samplers.base import Fields

#: Subfolder for files that are still incomplete.
DRAFTS = ".gconsole-sync"
_BLOCK = 1 << 20


def compare(agent: "Agent", args: "Fields") -> "Fields":
    """Create the folder and its links: {"wanted": numbers of the files that are missing or differ, "folder"}."""
    root = os.path.abspath(os.path.expanduser(args["workdir"]))
    files = args["files"]
    try:
        if not os.path.isdir(root):
            os.makedirs(root)
        shutil.rmtree(os.path.join(root, DRAFTS), ignore_errors=True)
        for path, target in args["links"]:
            _link(_place(root, path), target)
        wanted = [number for number, file in enumerate(files) if not _is_here(_place(root, file[0]), file)]
        _has_room(root, sum(files[number][1] for number in wanted))
        if wanted:
            os.mkdir(os.path.join(root, DRAFTS), 0o700)
    except OSError as error:
        raise RequestError("sync_failed", _describe(error))
    return {"wanted": wanted, "folder": root}


def put(agent: "Agent", args: "Fields") -> "Fields":
    """Write a chunk of one file; the last one, which has the mode, moves the file into place."""
    root = os.path.abspath(os.path.expanduser(args["workdir"]))
    path, sha256 = args["path"], args["sha256"]
    draft = os.path.join(root, DRAFTS, hashlib.sha256(path.encode("utf-8")).hexdigest())
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_TRUNC if args["offset"] == 0 else 0)
        with open(os.open(draft, flags, 0o600), "wb") as file:
            file.seek(args["offset"])
            file.write(base64.b64decode(args["data"]))
        if args["mode"] is None:
            return {}
        if _sha256(draft) != sha256:
            raise RequestError("sync_failed", "%s changed while it was copied" % path, "start again")
        os.chmod(draft, args["mode"] & 0o777)
        place = _place(root, path)
        _refuse_folder(place)
        os.rename(draft, place)
    except OSError as error:
        raise RequestError("sync_failed", _describe(error))
    return {}


def done(agent: "Agent", args: "Fields") -> "Fields":
    """Remove the folder of incomplete files."""
    root = os.path.abspath(os.path.expanduser(args["workdir"]))
    shutil.rmtree(os.path.join(root, DRAFTS), ignore_errors=True)
    return {}


def _place(root: str, path: str) -> str:
    """The path of a file in the folder, whose parents are created. Raises RequestError and OSError."""
    parts = path.split("/")
    if path.startswith("/") or not all(parts) or ".." in parts or "." in parts or parts[0] == DRAFTS:
        raise RequestError("sync_refused", "%r is not a relative path inside the folder" % path)
    parent = os.path.join(root, *parts[:-1])
    inside = os.path.realpath(root)
    if (os.path.realpath(parent) + "/").startswith(inside.rstrip("/") + "/"):
        if not os.path.isdir(parent):
            os.makedirs(parent)
        return os.path.join(parent, parts[-1])
    raise RequestError("sync_refused", "%s leads out of %s through a link" % (parent, root), "use another --workdir")


def _is_here(place: str, file: "list[Any]") -> bool:
    _, size, sha256, mode = file
    try:
        info = os.lstat(place)
    except OSError:
        return False
    if os.path.islink(place) or not os.path.isfile(place) or info.st_size != size:
        return False
    return info.st_mode & 0o777 == mode and _sha256(place) == str(sha256)


def _link(place: str, target: str) -> None:
    if os.path.islink(place) and os.readlink(place) == target:
        return
    _refuse_folder(place)
    draft = place + DRAFTS
    if os.path.lexists(draft):
        os.unlink(draft)
    os.symlink(target, draft)
    os.rename(draft, place)


def _refuse_folder(place: str) -> None:
    if os.path.isdir(place) and not os.path.islink(place):
        text = "%s is a folder on this node" % place
        raise RequestError("sync_failed", text, "remove it, or use another --workdir")


def _has_room(root: str, wanted: int) -> None:
    usage = os.statvfs(root)
    free = usage.f_bavail * usage.f_frsize
    if wanted > free:
        raise RequestError("sync_failed", lack_of_space(free, root, wanted), "free some disk space")


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def _describe(error: OSError) -> str:
    return "%s: %s" % (error.filename, error.strerror) if error.filename else str(error)
