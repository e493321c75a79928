"""A folder of the console's machine that is copied here before a job starts: only what differs travels.

What is in the folder already and not in the console's stays. Nothing is written outside of it: a path that leads out,
also by a link that stands here, is refused.
"""

import base64
import hashlib
import os
import shutil

from .errors import Problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..agent.agent import Agent
    from ..samplers.base import Fields

#: Pieces of files that have not arrived whole lie here, below the folder.
DRAFTS = ".gconsole-sync"
_BLOCK = 1 << 20


def compare(agent: "Agent", args: "Fields") -> "Fields":
    """Make the folder and its links; {"wanted": numbers of the files that are not here as they should be, "folder"}."""
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
        raise Problem("sync_failed", _told(error))
    return {"wanted": wanted, "folder": root}


def put(agent: "Agent", args: "Fields") -> "Fields":
    """Take a piece of one file; the last one, which comes with its mode, puts the file into its place."""
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
            raise Problem("sync_failed", "%s changed while it was copied" % path, "start again")
        os.chmod(draft, args["mode"] & 0o777)
        place = _place(root, path)
        if os.path.isdir(place) and not os.path.islink(place):
            raise Problem("sync_failed", "%s is a folder here" % place, "remove it, or take another --workdir")
        os.rename(draft, place)
    except OSError as error:
        raise Problem("sync_failed", _told(error))
    return {}


def done(agent: "Agent", args: "Fields") -> "Fields":
    """All of it is here."""
    root = os.path.abspath(os.path.expanduser(args["workdir"]))
    shutil.rmtree(os.path.join(root, DRAFTS), ignore_errors=True)
    return {}


def _place(root: str, path: str) -> str:
    """Where a file of the folder belongs; the folders above it are made. Raises Problem and OSError."""
    parts = path.split("/")
    if path.startswith("/") or not all(parts) or ".." in parts or "." in parts or parts[0] == DRAFTS:
        raise Problem("sync_refused", "%r is no path within a folder" % path)
    parent = os.path.join(root, *parts[:-1])
    inside = os.path.realpath(root)
    if (os.path.realpath(parent) + "/").startswith(inside.rstrip("/") + "/"):
        if not os.path.isdir(parent):
            os.makedirs(parent)
        return os.path.join(parent, parts[-1])
    raise Problem("sync_refused", "%s leads out of %s here, by a link" % (parent, root), "take another --workdir")


def _is_here(place: str, file: "list[Any]") -> bool:
    _, size, sha256, mode = file
    try:
        found = os.lstat(place)
    except OSError:
        return False
    if os.path.islink(place) or not os.path.isfile(place) or found.st_size != size:
        return False
    return found.st_mode & 0o777 == mode and _sha256(place) == str(sha256)


def _link(place: str, target: str) -> None:
    if os.path.islink(place) and os.readlink(place) == target:
        return
    if os.path.isdir(place) and not os.path.islink(place):
        raise Problem("sync_failed", "%s is a folder here" % place, "remove it, or take another --workdir")
    draft = place + DRAFTS
    if os.path.lexists(draft):
        os.unlink(draft)
    os.symlink(target, draft)
    os.rename(draft, place)


def _has_room(root: str, wanted: int) -> None:
    usage = os.statvfs(root)
    free = usage.f_bavail * usage.f_frsize
    if wanted > free:
        text = "%d bytes are free at %s, %d are to come" % (free, root, wanted)
        raise Problem("sync_failed", text, "free some space")


def _sha256(path: str) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            found.update(block)
    return found.hexdigest()


def _told(error: OSError) -> str:
    return "%s: %s" % (error.filename, error.strerror) if error.filename else str(error)
