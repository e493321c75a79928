"""Removes what gconsole left on a node, unless somebody uses it; every path it may touch is one of `cache.places`."""

import os
import shutil

from . import cache, presence
from .jobs import folder as job_folder
from .jobs import state as job_state


def clean(agent, args):
    """Remove unused cache folders. With `force`, agents of one's own uid are ended first.

    The answer: {"removed": [paths], "kept": [{"path", "why", "users": [facts]}], "ended": [facts]}.
    """
    uid = os.geteuid()
    answer = {"removed": [], "kept": [], "ended": []}
    for path in _places(agent.config.get("cache_dir", ""), uid) + _linger_folders(uid):
        if not os.path.lexists(path):
            continue
        try:
            cache.check(path, uid)
        except (OSError, cache.Unusable) as error:
            answer["kept"].append({"path": path, "why": str(error), "users": []})
            continue
        jobs = job_state.unfinished(path, job_folder.identity_of(agent.context))
        if jobs:
            why = "jobs run there: %s (gconsole run stop ends them)" % ", ".join(jobs)
            answer["kept"].append({"path": path, "why": why, "users": []})
            continue
        _clean_one(path, args.get("force", False), answer)
    return answer


def _clean_one(path, force, answer):
    living, leftovers = presence.users(path)
    if force:
        for fact in [fact for fact in living if fact["here"]]:
            if presence.end(fact):
                answer["ended"].append(fact)
        living, leftovers = presence.users(path)
    if living:
        for leftover in leftovers:
            os.unlink(leftover)
        answer["kept"].append({"path": path, "why": "in use", "users": living})
        return
    shutil.rmtree(path)
    answer["removed"].append(path)


def _places(configured, uid):
    """The configured folder and all the usual ones: an earlier run may have had another configuration."""
    return list(dict.fromkeys((cache.places(configured, uid) if configured else []) + cache.places("", uid)))


def _linger_folders(uid):
    """Folders of ephemeral agents that lingered (see linger.py); normally they remove theirs themselves."""
    prefix = "gconsole-%d-" % uid
    return [os.path.join("/tmp", name) for name in sorted(os.listdir("/tmp")) if name.startswith(prefix)]
