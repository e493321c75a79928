"""The request for a job, and the commands of its launcher on each node."""

from __future__ import annotations

import re
import secrets
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from ..core.job_protocol import Command, PythonCheck, SyncFolder
from .code_folder import has_file

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
    min_disk_bytes: int = 0  # free on the file system of the working directory
    select: tuple[str, ...] | None = None  # only these nodes; None: any
    launcher: Launcher = "torchrun"
    workdir: str | None = None
    interface: str | None = None  # between the nodes; None: their shared network
    port: int | None = None  # rendezvous port; None: a free one
    env: tuple[tuple[str, str], ...] = ()
    scale: ScaleConfig | None = None  # adjusted to the number of ranks
    sync: SyncFolder | None = None  # copied into `workdir` of every node before the start
    check_imports: bool = False  # the plan also looks up the modules that the script imports


class RequestReader(Protocol):
    """Reads job requests that a user types, with the defaults of the configuration."""

    def __call__(self, text: str) -> JobRequest:
        """The request of options, `--` and a command. Raises ValueError; blocks to read a folder."""


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
    """The command cannot be started by this launcher; the message states the cause and the remedy."""


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
    env = {} if place.has_gpus else {"ACCELERATE_USE_CPU": "true"}
    if place.world_size > 1:
        env["PET_REDIRECTS"] = "3"  # of torchrun, which accelerate calls; it has no such option itself
    return (Command(_accelerate(command, place), env, OUTPUT),)


def python_check(request: JobRequest) -> PythonCheck | None:
    """What each node must prove about the job's Python; None for a command that is not Python, or is copied first."""
    launcher, (first, *rest), folder = request.launcher, request.command, request.sync
    interpreter = script = module = None
    if first.endswith(".py"):
        script = first if launcher != "env" else None
    elif _PYTHON.fullmatch(first):
        interpreter = first
        if rest and rest[0] == "-m":
            module = rest[1] if len(rest) > 1 else None
        elif rest and not rest[0].startswith("-"):
            script = rest[0]
    if folder is not None:  # what it brings is not there yet
        if interpreter is not None and has_file(folder, interpreter):
            return None
        script = None if script is not None and has_file(folder, script) else script
        module = None
    if launcher == "env" and interpreter is None:
        return None
    needs = {"torchrun": ("torch",), "accelerate": ("torch", "accelerate"), "env": ()}[launcher]
    program = None if interpreter is not None else "torchrun" if launcher == "torchrun" else "accelerate"
    return PythonCheck(interpreter, program, script, module, needs, request.check_imports, dict(request.env))


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
    kind: tuple[str, ...] = () if place.has_gpus else ("--cpu",)
    if place.world_size > 1:
        kind = ("--multi_gpu", "--log_dir", RANKS_FOLDER)
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
    folder = f"ranks/env/attempt_0/{local_rank}"
    return Command(command, env, f"{folder}/stdout.log", local_rank, f"{folder}/stderr.log")


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
