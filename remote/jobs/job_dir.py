"""The folder of one job on one node, and the list of this node's jobs.

spec.json        the order (see console/core/job_protocol.py), written when the job is prepared
supervisor.py    the program that runs the commands; its modules are in lib/; none where the agent forked it
supervisor.json  pid and start time of the supervisor, written by itself
exit.json        how the job ended, written last by the supervisor
stop.json        a stop was requested; the job's end is then `stopped`
config/          training configurations that were adjusted to this job
writes.log       when the outputs were written, see write_times
output.log       output of the command; ranks/*/attempt_*/LOCAL_RANK/*.log if each rank has files
"""

import json
import os
import time

from ..agent import cache_users
from ..proc.procfs import printable
from . import terminate_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..samplers.base import Context, Fields

SPEC, SUPERVISOR, EXIT, STOP, OUTPUT = "spec.json", "supervisor.json", "exit.json", "stop.json", "output.log"
CONFIG = "config"
#: The subfolder of the cache that holds the job folders.
JOBS = "jobs"


class JobFolder(object):
    """The files of one job at `path`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def file(self, name: str) -> str:
        """The path of one of the files."""
        return os.path.join(self.path, name)

    def read(self, name: str) -> "Fields | None":
        """The JSON object in one of the files; None if it is missing or incomplete."""
        try:
            with open(self.file(name)) as f:
                fields: Fields = json.load(f)
                return fields
        except (OSError, ValueError):
            return None

    def write(self, name: str, value: "Any") -> None:
        """Write one of the files atomically. Raises OSError."""
        draft = self.file(name) + ".draft"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            json.dump(value, f)
        os.rename(draft, self.file(name))

    def remove(self) -> None:
        """Delete the folder."""
        import shutil  # only on nodes with jobs: 0.3 MB

        shutil.rmtree(self.path, ignore_errors=True)


def create(root: str, job: str, index: int) -> "JobFolder":
    """Create a job's folder in the cache. Raises OSError; FileExistsError if the job exists."""
    jobs = os.path.join(root, JOBS)
    try:
        os.mkdir(jobs, 0o700)
    except FileExistsError:
        pass
    path = os.path.join(jobs, "%s.%d" % (job, index))
    os.mkdir(path, 0o700)
    return JobFolder(path)


def folders(root: "str | None", identity: "list[Any]") -> "list[tuple[JobFolder, Fields]]":
    """(folder, spec) of every job of this node in a cache."""
    return of_node(all_folders(root), identity)


def of_node(entries: "list[tuple[JobFolder, Fields]]", identity: "list[Any]") -> "list[tuple[JobFolder, Fields]]":
    """Those of this node; nodes may share a cache, so jobs are matched by `identity`."""
    return [(folder, spec) for folder, spec in entries if spec.get("identity") == identity]


def all_folders(root: "str | None") -> "list[tuple[JobFolder, Fields]]":
    """(folder, spec) of every job in this cache, of any node."""
    if not root:
        return []
    jobs = os.path.join(root, JOBS)
    try:
        names = sorted(os.listdir(jobs))
    except OSError:
        return []
    entries = []
    for name in names:
        folder = JobFolder(os.path.join(jobs, name))
        spec = folder.read(SPEC)
        if spec is not None:
            entries.append((folder, spec))
    return entries


def identity_of(context: "Context") -> "list[Any]":
    """[host name, PID namespace, process filter]: what distinguishes this node from others that share the cache."""
    filter_ = context.process_filter
    return [os.uname().nodename, cache_users.pid_ns(), list(filter_) if filter_ else None]


#: Seconds after which a job that was prepared but not started counts as failed: its console is gone.
NEVER_BEGUN_S = 120.0


def state_of(folder: "JobFolder", spec: "Fields", now_s: "float | None" = None) -> "Fields":
    """The fields of a `job_node` record."""
    supervisor = folder.read(SUPERVISOR)
    ended = folder.read(EXIT)
    fields: Fields = {
        "job": spec["job"],
        "index": spec["index"],
        "gpus": spec.get("gpus", []),
        "pid": supervisor["pid"] if supervisor else None,
        "start_ticks": supervisor["start_ticks"] if supervisor else None,
        "started": supervisor["started"] if supervisor else None,
    }
    is_stopping = folder.read(STOP) is not None
    if ended is not None:
        fields.update(_end(ended, is_stopping))
    elif supervisor is None:
        fields.update(_not_begun(spec, time.time() if now_s is None else now_s))
    elif _lives(supervisor) or terminate_processes.with_job_environment(spec["job"], spec["index"]):
        fields["state"] = "stopping" if is_stopping else "running"
    else:
        # exit.json may have been written since it was read above
        ended = folder.read(EXIT)
        fields.update(_end(ended, is_stopping) if ended is not None else _lost_supervisor(supervisor, is_stopping))
    return fields


def is_over(fields: "Fields") -> bool:
    """Whether a state (`state_of`) is final."""
    return fields["state"] in ("completed", "failed", "stopped")


def unfinished(root: str, identity: "list[Any]") -> "list[str]":
    """Names of the jobs in a cache that may still run, also on other nodes that share it."""
    jobs = set()
    for folder, spec in all_folders(root):
        ours = spec.get("identity") == identity
        if not is_over(state_of(folder, spec)) if ours else folder.read(EXIT) is None:
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
    return {"state": "failed", "reason": "never started: the console disconnected before the start"}


def _lost_supervisor(supervisor: "Fields", is_stopping: bool) -> "Fields":
    why = "the node was rebooted" if supervisor.get("boot_id") != cache_users.boot_id() else "its supervisor was killed"
    return {"state": "stopped" if is_stopping else "failed", "reason": "%s; exit status unknown" % why}


def _lives(supervisor: "Fields") -> bool:
    ticks = cache_users.start_ticks(supervisor["pid"])
    return supervisor.get("boot_id") == cache_users.boot_id() and ticks == supervisor["start_ticks"]
