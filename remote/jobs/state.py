"""The state of a job on this node, from its files and its living processes."""

import time

from ..agent import cache_users
from ..proc.procfs import printable
from . import job_dir, process_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..samplers.base import Fields
    from .job_dir import JobFolder

#: Seconds after which a job that was prepared but not started counts as failed: its console is gone.
NEVER_BEGUN_S = 120.0


def state_of(folder: "JobFolder", spec: "Fields", now_s: "float | None" = None) -> "Fields":
    """The fields of a `job_node` record."""
    supervisor = folder.read(job_dir.SUPERVISOR)
    ended = folder.read(job_dir.EXIT)
    fields: Fields = {
        "job": spec["job"],
        "index": spec["index"],
        "gpus": spec.get("gpus", []),
        "pid": supervisor["pid"] if supervisor else None,
        "start_ticks": supervisor["start_ticks"] if supervisor else None,
        "started": supervisor["started"] if supervisor else None,
    }
    is_stopping = folder.read(job_dir.STOP) is not None
    if ended is not None:
        fields.update(_end(ended, is_stopping))
    elif supervisor is None:
        fields.update(_not_begun(spec, time.time() if now_s is None else now_s))
    elif _lives(supervisor) or process_tree.with_job_environment(spec["job"], spec["index"]):
        fields["state"] = "stopping" if is_stopping else "running"
    else:
        # exit.json may have been written since it was read above
        ended = folder.read(job_dir.EXIT)
        fields.update(_end(ended, is_stopping) if ended is not None else _lost_supervisor(supervisor, is_stopping))
    return fields


def is_over(fields: "Fields") -> bool:
    """Whether a state (`state_of`) is final."""
    return fields["state"] in ("completed", "failed", "stopped")


def unfinished(root: str, identity: "list[Any]") -> "list[str]":
    """Names of the jobs in a cache that may still run, also on other nodes that share it."""
    jobs = set()
    for folder, spec in job_dir.all_folders(root):
        ours = spec.get("identity") == identity
        if not is_over(state_of(folder, spec)) if ours else folder.read(job_dir.EXIT) is None:
            jobs.add(spec["job"])
    return sorted(jobs)


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
    return {"state": "failed", "reason": "prepared, but never started: the console is gone"}


def _lost_supervisor(supervisor: "Fields", is_stopping: bool) -> "Fields":
    why = "the node was rebooted" if supervisor.get("boot_id") != cache_users.boot_id() else "its supervisor was killed"
    return {"state": "stopped" if is_stopping else "failed", "reason": "%s; exit status unknown" % why}


def _lives(supervisor: "Fields") -> bool:
    ticks = cache_users.start_ticks(supervisor["pid"])
    return supervisor.get("boot_id") == cache_users.boot_id() and ticks == supervisor["start_ticks"]
