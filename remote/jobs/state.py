"""What became of a job on this node, from its files and from what still runs."""

import time

from ..agent import cache_users
from ..proc.procfs import printable
from . import job_dir as files
from . import process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..samplers.base import Fields
    from .job_dir import JobFolder

#: A job that was prepared and never begun, because its console went, is given up after this.
NEVER_BEGUN_S = 120.0


def state_of(folder: "JobFolder", spec: "Fields", now_s: "float | None" = None) -> "Fields":
    """The fields of a `job_node` record."""
    watcher = folder.read(files.SUPERVISOR)
    ended = folder.read(files.EXIT)
    fields: Fields = {
        "job": spec["job"],
        "index": spec["index"],
        "gpus": spec.get("gpus", []),
        "pid": watcher["pid"] if watcher else None,
        "start_ticks": watcher["start_ticks"] if watcher else None,
        "started": watcher["started"] if watcher else None,
    }
    is_stopping = folder.read(files.STOP) is not None
    if ended is not None:
        fields.update(_end(ended, is_stopping))
    elif watcher is None:
        fields.update(_not_begun(spec, time.time() if now_s is None else now_s))
    elif _lives(watcher) or process_tree.marked(spec["job"], spec["index"]):
        fields["state"] = "stopping" if is_stopping else "running"
    else:
        # it may have written its last word between our two looks
        ended = folder.read(files.EXIT)
        fields.update(_end(ended, is_stopping) if ended is not None else _unseen(watcher, is_stopping))
    return fields


def is_over(fields: "Fields") -> bool:
    return fields["state"] in ("completed", "failed", "stopped")


def unfinished(root: str, identity: "list[Any]") -> "list[str]":
    """Names of the jobs below a cache that may still run, also on other nodes that share it."""
    found = []
    for folder, spec in files.every(root):
        ours = spec.get("identity") == identity
        if not is_over(state_of(folder, spec)) if ours else folder.read(files.EXIT) is None:
            found.append(spec["job"])
    return sorted(set(found))


def _end(ended: "Fields", is_stopping: bool) -> "Fields":
    code, number = ended.get("code"), ended.get("signal")
    state = "stopped" if is_stopping else "completed" if code == 0 else "failed"
    reason = "; ".join(ended.get("reasons", ())) or None
    return {
        "state": state,
        "ended": ended.get("ended"),
        "exit_code": code,
        "signal": number,
        "local_rank": ended.get("local_rank"),
        "reason": printable(reason, 2000) if reason and state == "failed" else None,
    }


def _not_begun(spec: "Fields", now_s: float) -> "Fields":
    if now_s - spec["prepared_s"] < NEVER_BEGUN_S:
        return {"state": "dispatching"}
    return {"state": "failed", "reason": "it was prepared here, but never told to begin"}


def _unseen(watcher: "Fields", is_stopping: bool) -> "Fields":
    why = "the node was restarted" if watcher.get("boot_id") != cache_users.boot_id() else "what watched it was killed"
    return {"state": "stopped" if is_stopping else "failed", "reason": why + ": nobody saw how the job ended"}


def _lives(watcher: "Fields") -> bool:
    ticks = cache_users.start_ticks(watcher["pid"])
    return watcher.get("boot_id") == cache_users.boot_id() and ticks == watcher["start_ticks"]
