"""What travels between the console and a node about jobs: questions, orders, and their answers."""

from __future__ import annotations

import msgspec

from ..records import Failure


class ReadinessRequest(msgspec.Struct, frozen=True):
    """What a node is asked before it is chosen for good."""

    workdir: str | None  # None: the home folder
    programs: tuple[str, ...]  # what its commands would execute
    ports: tuple[int, ...] = ()  # of these it names the first that is free
    brings: int | None = None  # bytes that will be copied into the folder first; it need not be there yet


class SyncFile(msgspec.Struct, frozen=True):
    """A file that travels; `path` is below the folder, with slashes."""

    path: str
    bytes: int
    sha256: str
    mode: int


class SyncLink(msgspec.Struct, frozen=True):
    """A link within the folder, and where it leads from where it stands."""

    path: str
    target: str


class SyncFolder(msgspec.Struct, frozen=True):
    """A folder of this machine that is copied to nodes."""

    local: str
    files: tuple[SyncFile, ...]
    links: tuple[SyncLink, ...] = ()

    @property
    def bytes(self) -> int:
        """Total size of the files."""
        return sum(file.bytes for file in self.files)


class Synced(msgspec.Struct, frozen=True):
    """What copying came to on one node: what it lacked."""

    files: int
    bytes: int


class Readiness(msgspec.Struct, frozen=True):
    """What it answered."""

    workdir: str
    problems: tuple[str, ...]  # each a reason why the job cannot run there
    port: int | None  # the first free one of those asked for
    addresses: tuple[tuple[str, str, int], ...]  # (interface, IPv4 address, prefix length)
    ssh_address: str | None  # the node's own address on the connection from the console
    disk_free_bytes: int | None  # where the folder is


class Command(msgspec.Struct, frozen=True):
    """One command of a job on one node. `$GCONSOLE_JOB_DIR` in a word is the job's own folder there."""

    argv: tuple[str, ...]
    env: dict[str, str]  # beyond that of the node
    output: str  # file in the job's folder
    local_rank: int | None = None  # where the command is a rank itself


class NodeOrder(msgspec.Struct, frozen=True):
    """A job as one node gets and keeps it (spec.json)."""

    job: str
    index: int  # NODE_RANK
    nodes: tuple[str, ...]  # all of the job, in the order of their index
    command: tuple[str, ...]  # as the person gave it
    launcher: str
    procs_per_node: int
    gpus_per_node: int
    world_size: int
    master_addr: str
    master_port: int
    workdir: str | None
    created: int  # console CLOCK_REALTIME, ns
    env: dict[str, str]
    commands: tuple[Command, ...]
    gpus: tuple[str, ...] = ()  # uuids
    files: tuple[tuple[str, str], ...] = ()  # (name, text) of files that are put into the job's folder there


class NodeStop(msgspec.Struct, frozen=True):
    """What stopping a job did on one node; `left` empty is the proof that nothing runs."""

    found: int  # processes there were
    left: tuple[int, ...]  # pids that are there still
    state: str
    was: str


def is_away(answer: NodeStop | Failure | None) -> bool:
    """Whether a node could not be asked, and may still run its part of a job."""
    return isinstance(answer, Failure) and answer.name in ("lost", "timeout")


class FileList(msgspec.Struct, frozen=True):
    """Files at a path on one node: (path below it, bytes); the path itself is "" where it is one file."""

    path: str
    files: tuple[tuple[str, int], ...]
