"""Requests and results of the job protocol between console and node."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..records import Failure


class PythonCheck(msgspec.Struct, frozen=True):
    """What the Python of a job must be able to start."""

    interpreter: str | None  # None: that of the launcher
    launcher: str | None  # program whose first line names the interpreter; None: no such program
    script: str | None  # relative to the working directory, or absolute
    module: str | None  # of `python -m`
    needs: tuple[str, ...] = ()  # packages without which the launcher fails
    imports: bool = False  # also look up the modules that the script imports
    env: dict[str, str] = {}  # in addition to the node's environment


class PythonFacts(msgspec.Struct, frozen=True):
    """The Python of a job on one node."""

    interpreter: str
    version: str
    versions: dict[str, str | None]  # of torch and accelerate; None: not installed


class ReadinessRequest(msgspec.Struct, frozen=True):
    """Preflight check of a node."""

    workdir: str | None  # None: the home directory
    programs: tuple[str, ...]  # executables of the commands
    ports: tuple[int, ...] = ()  # candidates; the result has the first free one
    brings: int | None = None  # bytes to be copied into the folder, which may not exist yet
    python: PythonCheck | None = None  # None: the job is not a Python program, or cannot be checked before it is copied


class SyncFile(msgspec.Struct, frozen=True):
    """A file to copy; `path` is relative to the folder, with slashes."""

    path: str
    bytes: int
    sha256: str
    mode: int


class SyncLink(msgspec.Struct, frozen=True):
    """A symbolic link within the folder; `target` is relative to its location."""

    path: str
    target: str


class SyncFolder(msgspec.Struct, frozen=True):
    """A local folder to copy to nodes."""

    local: str
    files: tuple[SyncFile, ...]
    links: tuple[SyncLink, ...] = ()

    @property
    def bytes(self) -> int:
        """Total size of the files."""
        return sum(file.bytes for file in self.files)


class Synced(msgspec.Struct, frozen=True):
    """Files and bytes sent to one node."""

    files: int
    bytes: int


class Readiness(msgspec.Struct, frozen=True):
    """Result of a preflight check."""

    workdir: str
    problems: tuple[str, ...]  # reasons why the job cannot run there
    port: int | None  # first free one of the requested ports
    addresses: tuple[tuple[str, str, int], ...]  # (interface, IPv4 address, prefix length)
    ssh_address: str | None  # the node's own address on the connection from the console
    disk_free_bytes: int | None  # on the file system of `workdir`
    python: PythonFacts | None = None  # None: not checked, or it did not answer in time


class Command(msgspec.Struct, frozen=True):
    """One command of a job on one node. `$GCONSOLE_JOB_DIR` in a word is the job's own folder there."""

    argv: tuple[str, ...]
    env: dict[str, str]  # in addition to the node's environment
    output: str  # file in the job's folder
    local_rank: int | None = None  # if the command is a rank itself
    errors: str | None = None  # file of stderr; None: `output` has both streams


class NodeOrder(msgspec.Struct, frozen=True):
    """The part of a job for one node, stored there as spec.json."""

    job: str
    index: int  # NODE_RANK
    nodes: tuple[str, ...]  # of the job, by index
    command: tuple[str, ...]  # as entered by the user
    launcher: str
    procs_per_node: int
    gpus_per_node: int
    world_size: int
    master_addr: str
    master_port: int
    workdir: str | None
    created: int  # when it was planned, then when it was started, console CLOCK_REALTIME, ns
    env: dict[str, str]
    commands: tuple[Command, ...]
    gpus: tuple[str, ...] = ()  # uuids
    files: tuple[tuple[str, str], ...] = ()  # (name, text) of files to write into the job's folder


class NodeStop(msgspec.Struct, frozen=True):
    """Result of stopping a job on one node; an empty `left` proves that nothing runs."""

    found: int  # processes before the stop
    left: tuple[int, ...]  # pids that are still running
    state: str
    was: str


def is_away(answer: NodeStop | Failure | None) -> bool:
    """Whether a node was unreachable and may still run its part of a job."""
    return isinstance(answer, Failure) and answer.name in ("lost", "timeout")


def may_be_left(failures: Iterable[Failure]) -> bool:
    """Whether processes of a job whose start failed may still run on a node with one of these failures."""
    return any(failure.name == "left" or is_away(failure) for failure in failures)


class FileList(msgspec.Struct, frozen=True):
    """Files at a path on one node: (path below it, bytes); "" if `path` is a file itself."""

    path: str
    files: tuple[tuple[str, int], ...]
