"""The folder of one job on one node, and finding those that are this node's own.

spec.json        what was ordered (see console/core/job_protocol.py), written when the job is prepared
supervisor.json  pid and start time of the process that watches the commands; written by that process
exit.json        how it ended; written by that process, last
stop.json        somebody asked it to stop; its presence makes the end `stopped`
config/          training configurations that were adjusted to this job
output.log       what the command wrote; ranks/*/attempt_*/LOCAL_RANK/*.log where ranks have files of their own
"""

import json
import os
import shutil

from ..agent import cache_users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..samplers.base import Context, Fields

SPEC, SUPERVISOR, EXIT, STOP, OUTPUT = "spec.json", "supervisor.json", "exit.json", "stop.json", "output.log"
CONFIG = "config"
#: The folder in the cache that holds them.
JOBS = "jobs"


class JobFolder(object):
    """One job's files at `path`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def read(self, name: str) -> "Fields | None":
        """The object in one of the files; None where it is not there (yet), or torn."""
        try:
            with open(self.file(name)) as f:
                fields: Fields = json.load(f)
                return fields
        except (OSError, ValueError):
            return None

    def write(self, name: str, value: "Any") -> None:
        """Write one of the files whole or not at all. Raises OSError."""
        draft = self.file(name) + ".draft"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            json.dump(value, f)
        os.rename(draft, self.file(name))

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def create(root: str, job: str, index: int) -> "JobFolder":
    """A new folder for a job, below the cache. Raises OSError; FileExistsError where the job is here already."""
    jobs = os.path.join(root, JOBS)
    try:
        os.mkdir(jobs, 0o700)
    except FileExistsError:
        pass
    path = os.path.join(jobs, "%s.%d" % (job, index))
    os.mkdir(path, 0o700)
    return JobFolder(path)


def folders(root: "str | None", identity: "list[Any]") -> "list[tuple[JobFolder, Fields]]":
    """(folder, spec) of every job of this node: nodes may share a cache, and each knows its own by `identity`."""
    return [(folder, spec) for folder, spec in every(root) if spec.get("identity") == identity]


def every(root: "str | None") -> "list[tuple[JobFolder, Fields]]":
    """(folder, spec) of every job that has a folder below this cache, whichever node's it is."""
    if not root:
        return []
    jobs = os.path.join(root, JOBS)
    try:
        names = sorted(os.listdir(jobs))
    except OSError:
        return []
    found = []
    for name in names:
        folder = JobFolder(os.path.join(jobs, name))
        spec = folder.read(SPEC)
        if spec is not None:
            found.append((folder, spec))
    return found


def identity_of(context: "Context") -> "list[Any]":
    """What tells this node from others that see the same folder: machine, PID namespace, filter of processes."""
    chosen = context.process_filter
    return [os.uname().nodename, cache_users.pid_ns(), list(chosen) if chosen else None]
