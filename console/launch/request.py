"""The request for a job, the commands of its launcher on each node, and the folder that is copied to them first."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from ..core.job_protocol import Command, SyncFile, SyncFolder, SyncLink
from ..text.format import size

if TYPE_CHECKING:
    from .scale import ScaleConfig

Launcher = Literal["torchrun", "accelerate", "env"]
#: Prefixes of environment variables that gconsole sets itself.
RESERVED: Final = ("GCONSOLE_JOB", "GCONSOLE_NODE_RANK")


class JobRequest(msgspec.Struct, frozen=True):
    """A requested job. None: chosen by `plan`."""

    command: tuple[str, ...]
    nodes: int | None = None  # None: all of `select`, else one
    gpus_per_node: int | None = None  # None: the maximum of any node; 0: CPU job
    procs_per_node: int | None = None  # None: one per GPU, or one
    min_gpu_mem_bytes: int = 0
    min_mem_bytes: int = 0  # available memory of the host
    min_disk_bytes: int = 0  # free on the file system of the working folder
    select: tuple[str, ...] | None = None  # only these nodes; None: any
    launcher: Launcher = "torchrun"
    workdir: str | None = None
    interface: str | None = None  # between the nodes; None: their shared network
    port: int | None = None  # rendezvous port; None: a free one
    env: tuple[tuple[str, str], ...] = ()
    scale: ScaleConfig | None = None  # adjusted to the number of ranks
    sync: SyncFolder | None = None  # copied into `workdir` of every node before the start


def new_job(command: tuple[str, ...]) -> str:
    """A unique job id from the name of the script: `train-3f9a1c`."""
    script = next((word for word in command if word.endswith(".py")), command[0] if command else "job")
    stem = re.sub(r"[^A-Za-z0-9_]+", "-", PurePosixPath(script).stem).strip("-")[:24] or "job"
    return f"{stem}-{secrets.token_hex(3)}"


_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[0-9.]*")
#: Folder of the ranks' output, in the layout of torchrun: ranks/RUN/attempt_N/LOCAL_RANK/stdout.log.
RANKS_FOLDER = "$GCONSOLE_JOB_DIR/ranks"
OUTPUT = "output.log"


class BadCommand(ValueError):
    """The command cannot be started by this launcher; the message says why and what to do."""


class NodePosition(msgspec.Struct, frozen=True):
    """The position of a node in a job."""

    job: str
    index: int
    nodes: int
    procs_per_node: int
    master_addr: str
    master_port: int
    has_gpus: bool

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self.nodes * self.procs_per_node


def commands(launcher: Launcher, command: tuple[str, ...], place: NodePosition) -> tuple[Command, ...]:
    """The commands of one node. Raises BadCommand."""
    if not command:
        raise BadCommand("no command given; write it after --")
    if launcher == "env":
        return tuple(_rank(command, place, local_rank) for local_rank in range(place.procs_per_node))
    if launcher == "torchrun":
        return (Command(_torchrun(command, place), {}, OUTPUT),)
    return (Command(_accelerate(command, place), {} if place.has_gpus else {"ACCELERATE_USE_CPU": "true"}, OUTPUT),)


def _torchrun(command: tuple[str, ...], place: NodePosition) -> tuple[str, ...]:
    interpreter, rest = _split(command)
    start = (interpreter, "-m", "torch.distributed.run") if interpreter else ("torchrun",)
    return (
        *start, f"--nnodes={place.nodes}", f"--node_rank={place.index}", f"--nproc_per_node={place.procs_per_node}",
        f"--master_addr={place.master_addr}", f"--master_port={place.master_port}", f"--rdzv_id={place.job}",
        "--redirects=3", "--log_dir", RANKS_FOLDER, *rest,
    )  # fmt: skip


def _accelerate(command: tuple[str, ...], place: NodePosition) -> tuple[str, ...]:
    interpreter, rest = _split(command)
    start = (interpreter, "-m", "accelerate.commands.launch") if interpreter else ("accelerate", "launch")
    # `--cpu` starts one process, or MPI, and no more (accelerate 1.15, commands/launch.py); `--multi_gpu` is torchrun
    # also for ranks that have no GPU: ACCELERATE_USE_CPU keeps them on the CPU
    kind = ("--multi_gpu",) if place.world_size > 1 else () if place.has_gpus else ("--cpu",)
    return (
        *start, *kind, f"--num_machines={place.nodes}", f"--machine_rank={place.index}",
        f"--num_processes={place.world_size}", f"--main_process_ip={place.master_addr}",
        f"--main_process_port={place.master_port}", "--rdzv_backend=static", *rest,
    )  # fmt: skip


def _rank(command: tuple[str, ...], place: NodePosition, local_rank: int) -> Command:
    rank = place.index * place.procs_per_node + local_rank
    env = {
        "RANK": str(rank), "LOCAL_RANK": str(local_rank), "WORLD_SIZE": str(place.world_size),
        "LOCAL_WORLD_SIZE": str(place.procs_per_node), "NODE_RANK": str(place.index),
        "MASTER_ADDR": place.master_addr, "MASTER_PORT": str(place.master_port),
    }  # fmt: skip
    return Command(command, env, f"ranks/env/attempt_0/{local_rank}/output.log", local_rank)


def _split(command: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """(interpreter or None, arguments of the launcher): a script, `-m module`, or any program behind --no_python."""
    first, rest = command[0], command[1:]
    if first.endswith(".py"):
        return None, command
    if not _PYTHON.fullmatch(first):
        return None, ("--no_python", *command)
    if not rest or (rest[0].startswith("-") and rest[0] != "-m"):
        raise BadCommand(f"{' '.join(command[:3])}: give a script or -m MODULE; Python's options go into --env PYTHON…")
    return first, rest


#: Not copied: a repository's history, and bytecode, which Python makes anew.
LEFT_OUT = frozenset({".git", "__pycache__"})
#: Limits of a folder of code; data sets belong on a shared file system.
MAX_FILES, MAX_BYTES = 10_000, 2 << 30


class BadFolder(ValueError):
    """The folder cannot be copied to nodes; the message says why and what to do."""


def read_folder(folder: Path) -> SyncFolder:
    """Everything in a folder but `LEFT_OUT`. Raises BadFolder, also for links that lead out of it."""
    root = folder.expanduser().resolve()
    if not root.is_dir():
        raise BadFolder(f"{folder} is not a folder")
    files: list[SyncFile] = []
    links: list[SyncLink] = []
    total = 0
    try:
        for path in _below(root):
            name = path.relative_to(root).as_posix()
            if path.is_symlink():
                links.append(SyncLink(name, _target(root, path)))
                continue
            info = path.stat()
            if not stat.S_ISREG(info.st_mode):
                raise BadFolder(f"{path} is not a file; sockets, pipes and devices cannot be copied")
            total += info.st_size
            if total > MAX_BYTES or len(files) >= MAX_FILES:
                raise BadFolder(f"{folder} has more than {MAX_FILES:,} files or {size(MAX_BYTES)}; "
                                "choose the subfolder with the code")  # fmt: skip
            files.append(SyncFile(name, info.st_size, _sha256(path), stat.S_IMODE(info.st_mode) & 0o777))
    except OSError as error:
        raise BadFolder(f"{error.filename or folder}: {error.strerror}") from error
    return SyncFolder(str(root), tuple(files), tuple(links))


def has_program(folder: SyncFolder, program: str) -> bool:
    """Whether a program is in the folder: `./run.sh`, `bin/train`."""
    path = PurePosixPath(program)
    return "/" in program and not path.is_absolute() and str(path) in {file.path for file in folder.files}


def _below(root: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(root, onerror=_raise):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        linked = [name for name in folders if Path(place, name).is_symlink()]
        yield from (Path(place, name) for name in sorted([*names, *linked]) if name not in LEFT_OUT)


def _raise(error: OSError) -> None:
    raise error


def _target(root: Path, link: Path) -> str:
    """The relative target of a link. Raises BadFolder if it is outside of the folder: it would dangle on a node."""
    there = link.resolve()
    if not there.is_relative_to(root):
        raise BadFolder(f"{link} links to {there}, outside of the folder; "
                        "copy what it needs into the folder, or give the path on the nodes")  # fmt: skip
    return os.path.relpath(there, link.parent.resolve())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
