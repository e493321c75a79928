"""Removes unused cache folders from a node; only paths of `cache.places` are touched.

A user who may write to a folder above the cache can replace it at any time. So it is opened once, only the content of
the opened folder is removed, and a folder whose content is not that of a cache is kept.
"""

import os
import shutil
import stat

from ..jobs import job_dir
from . import cache, cache_users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from ..samplers.base import Fields
    from .agent import Agent

#: The subfolder that is removed last: it identifies a cache whose removal was interrupted.
_LAST = "blob"
_OURS = cache.PARTS + (job_dir.JOBS, "kept")  # "kept": see gateway/spool.py
#: Files of agents that lingered without a cache (see linger.py).
_SOCKETS = (".sock", ".sock.lock")


def clean(agent: "Agent", args: "Fields") -> "Fields":
    """Remove unused cache folders. With `force`, agents of one's own uid are ended first.

    The answer: {"removed": [paths], "kept": [{"path", "why", "users": [facts]}], "ended": [facts]}.
    """
    uid = os.geteuid()
    answer: Fields = {"removed": [], "kept": [], "ended": []}
    for path in _places(agent.config.get("cache_dir", ""), uid) + _linger_folders(uid):
        if not os.path.lexists(path):
            continue
        try:
            above, folder = cache.opened(path, uid)
        except (OSError, cache.UnusableCache) as error:
            answer["kept"].append(_kept(path, str(error)))
            continue
        try:
            _clean_folder(_Opened(path, above, folder), agent, args.get("force", False), answer)
        finally:
            os.close(above)
            os.close(folder)
    return answer


class _Opened(object):
    """The folder that was at `path` when it was opened; `inside` is a path into it that cannot be replaced."""

    def __init__(self, path: str, above: int, folder: int) -> None:
        self.path, self._above = path, above
        self.inside = "/proc/self/fd/%d" % folder

    def foreign_names(self) -> "list[str]":
        """Names in it that no agent creates in its cache."""
        names = os.listdir(self.inside)
        if _LAST not in names:
            return sorted(name for name in names if not name.endswith(_SOCKETS))
        return sorted(name for name in names if name not in _OURS)

    def remove(self) -> None:
        """Remove its content, then the folder itself. Raises OSError."""
        for name in sorted(os.listdir(self.inside), key=lambda name: name == _LAST):
            path = os.path.join(self.inside, name)
            if stat.S_ISDIR(os.lstat(path).st_mode):
                shutil.rmtree(path)  # by descriptors, on every Linux: links are not followed
            else:
                os.unlink(path)
        os.rmdir(os.path.basename(os.path.abspath(self.path)), dir_fd=self._above)


def _clean_folder(opened: "_Opened", agent: "Agent", force: bool, answer: "Fields") -> None:
    foreign = opened.foreign_names()
    if foreign:
        names = ", ".join(map(repr, foreign[:3]))
        answer["kept"].append(_kept(opened.path, "not a cache of gconsole: it contains %s" % names))
        return
    jobs = job_dir.unfinished(opened.inside, job_dir.identity_of(agent.context))
    if jobs:
        why = "jobs are running: %s (stop them with gconsole run stop)" % ", ".join(jobs)
        answer["kept"].append(_kept(opened.path, why))
        return
    living, leftovers = cache_users.users(opened.inside)
    if force:
        for fact in [fact for fact in living if fact["here"]]:
            if cache_users.end(fact):
                answer["ended"].append(fact)
        living, leftovers = cache_users.users(opened.inside)
    if living:
        for leftover in leftovers:
            os.unlink(leftover)
        answer["kept"].append(_kept(opened.path, "in use", living))
        return
    try:
        opened.remove()
    except OSError as error:
        answer["kept"].append(_kept(opened.path, "removal incomplete: %s" % error))
    else:
        answer["removed"].append(opened.path)


def _kept(path: str, why: str, users: "Sequence[Fields]" = ()) -> "Fields":
    return {"path": path, "why": why, "users": list(users)}


def _places(configured: str, uid: int) -> "list[str]":
    """The configured folder and all the usual ones: an earlier run may have had another configuration."""
    return list(dict.fromkeys((cache.places(configured, uid) if configured else []) + cache.places("", uid)))


def _linger_folders(uid: int) -> "list[str]":
    """Folders of ephemeral agents that lingered (see linger.py); normally the agents remove them."""
    prefix = "gconsole-%d-" % uid
    return [os.path.join("/tmp", name) for name in sorted(os.listdir("/tmp")) if name.startswith(prefix)]
