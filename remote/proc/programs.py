"""The program of a process, from its name and arguments, which are world-readable."""

import os
import re

from . import apart
from .numbers import parse_count
from .rank_variables import number, options_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .procfs import ProcFs

#: Python launchers by module; they are not ranks, though they may carry a rank's variables (srun + torchrun).
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torch.distributed.elastic.multiprocessing": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed.launcher.launch": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "horovod.runner.launch": "horovodrun",
    "colossalai.cli": "colossalai",
    "torchx.apps.main": "torchx",
}
SCRIPTS = {
    "torchrun": "torchrun",
    "deepspeed": "deepspeed",
    "horovodrun": "horovodrun",
    "colossalai": "colossalai",
    "torchx": "torchx",
}
#: Scripts that launch only under one of their subcommands.
SUBCOMMANDS = {"accelerate": ("launch", "accelerate"), "conda": ("run", "conda run"), "mamba": ("run", "conda run")}
#: The same as files of a package: `python /site-packages/torch/distributed/run.py`.
FILES = {
    "torch/distributed/run.py": "torchrun",
    "torch/distributed/launch.py": "torchrun",
    "accelerate/commands/launch.py": "accelerate",
    "deepspeed/launcher/launch.py": "deepspeed",
    "deepspeed/launcher/runner.py": "deepspeed",
}
#: Programs that are not Python, by the kernel's name for them (15 characters).
NATIVE = {
    "srun": "srun",
    "slurmstepd": "slurm",
    "mpirun": "mpirun",
    "mpiexec": "mpirun",
    "mpiexec.hydra": "mpirun",
    "orterun": "mpirun",
    "prterun": "mpirun",
    "orted": "mpirun",
    "prted": "mpirun",
    "hydra_pmi_proxy": "mpirun",
    "hydra_bstrap_pr": "mpirun",
    "palsd": "pals",
}
#: Launchers each of whose Python children is a rank.
STARTS_RANKS = frozenset(["torchrun", "accelerate", "deepspeed", "horovodrun", "colossalai", "slurm", "mpirun", "pals"])
#: Launchers that wait for their other nodes before they start a process: those of torch.distributed.elastic.
WAITS_FOR_NODES = frozenset(["torchrun", "accelerate"])
#: Launchers that start Python programs only.
STARTS_PYTHON = STARTS_RANKS - frozenset(["slurm", "mpirun", "pals"])

COMPILERS = frozenset("nvcc cicc ptxas cudafe++ fatbinary nvlink cc1plus cc1 gcc g++ c++ clang ninja".split())
#: Thread names of torch's communication libraries.
COMMUNICATION_THREADS = ("pt_tcpstore", "gloo_tcp_loop", "pt_gloo_", "pt_nccl_")


def is_python_name(name: str) -> bool:
    """Whether a file or process name is that of an interpreter (python3.11, pypy3, pt_main_thread, ray::worker)."""
    return name.startswith(("python", "pypy")) and "config" not in name


def is_python_guess(comm: str, argv: "list[str]") -> bool:
    """Whether a process whose executable is not readable is Python, by its name."""
    first = argv[0].rpartition("/")[2] if argv else ""
    return is_python_name(first) or is_python_name(comm) or comm.startswith(("pt_main_thread", "pt_data_", "ray::"))


def launcher_of(argv: "list[str]", comm: str) -> "str | None":
    """The launcher that this process is ("torchrun", "slurm", …), or None."""
    if comm in NATIVE:
        return NATIVE[comm]
    kind, name, rest = program(argv)
    if kind == "module":
        return MODULES.get(name)
    if kind != "script":
        return None
    short = name.rpartition("/")[2]
    if short in SUBCOMMANDS:
        word, launcher = SUBCOMMANDS[short]
        return launcher if word in rest[:1] else None
    if short in SCRIPTS:
        return SCRIPTS[short]
    for ending, launcher in FILES.items():
        if name.endswith(ending):
            return launcher
    return None


def program(argv: "list[str]") -> "tuple[str, str, list[str]]":
    """(kind, name, arguments) of what an interpreter runs; kind is "module", "script", "code" or "" (interactive)."""
    if not argv:
        return "", "", []
    if not is_python_name(argv[0].rpartition("/")[2]):
        return "script", argv[0], argv[1:]
    index = 1
    while index < len(argv):
        argument = argv[index]
        if argument == "-m":
            return "module", argv[index + 1] if index + 1 < len(argv) else "", argv[index + 2 :]
        if argument == "-c":
            return "code", argv[index + 1] if index + 1 < len(argv) else "", argv[index + 2 :]
        if not argument.startswith("-") or argument == "-":
            return "script", argument, argv[index + 1 :]
        index += 2 if argument in ("-W", "-X", "--check-hash-based-pycs") else 1
    return "", "", []


def child_role(argv: "list[str]", comm: str) -> str:
    """The role of a process below a rank that is not a rank itself."""
    if comm.startswith("pt_data_worker"):
        return "dataloader_worker"
    text = " ".join(argv[:6])
    if "_worker_loop" in text:
        return "dataloader_worker"
    if comm in COMPILERS or "compile_worker" in text:
        return "compile_worker"
    return "child"


class LauncherPlan(object):
    """The ranks below a launcher according to its arguments; None for what they leave open."""

    __slots__ = ("address", "local_world_size", "node_rank", "nodes", "port", "run_id", "world_size")

    def __init__(self, argv: "list[str]") -> None:
        options = options_of(_launcher_arguments(argv))
        self.local_world_size = number(options.get("nproc_per_node")) or None
        self.nodes = number(options.get("nnodes", "1" if self.local_world_size else "")) or None
        if options.get("standalone") is not None:
            self.nodes = 1
        self.node_rank = number(options.get("node_rank"))
        self.address = options.get("master_addr")
        self.port = number(options.get("master_port"))
        self.run_id = options.get("rdzv_id")
        self._accelerate(options)
        if self.nodes == 1:
            self.node_rank = 0
        self.world_size = self.nodes * self.local_world_size if self.nodes and self.local_world_size else None

    def _accelerate(self, options: "dict[str, str]") -> None:
        processes = number(options.get("num_processes"))
        if not processes:
            return
        self.nodes = number(options.get("num_machines")) or 1
        self.local_world_size = processes // self.nodes or None
        self.node_rank = number(options.get("machine_rank"))
        self.address = options.get("main_process_ip")
        self.port = number(options.get("main_process_port"))


def _launcher_arguments(argv: "list[str]") -> "list[str]":
    """The launcher's own arguments: those before the script that it runs."""
    rest = program(argv)[2]
    for index, argument in enumerate(rest):
        if argument.endswith(".py") and not argument.startswith("-"):
            return rest[:index]
    return rest


def slurm_step_of(argv: "list[str]") -> "str | None":
    """`1234.0` from a slurmstepd's title, `slurmstepd: [1234.0]`; None for its batch and extern steps."""
    title = " ".join(argv)
    step = title.partition("[")[2].partition("]")[0]
    job, _, number_ = step.partition(".")
    return step if parse_count(job) is not None and parse_count(number_) is not None else None


_EXECUTABLE = re.compile(r"^python(\d+)\.(\d+)(t?)d?$")
_LIBRARY = re.compile(rb"/libpython(\d{1,4})\.(\d{1,4})(t?)d?\.so")


class PythonVersion(object):
    """`number` is (3, 13); `free_threaded` marks a build without the GIL (3.13t)."""

    __slots__ = ("free_threaded", "number")

    def __init__(self, major: str, minor: str, flag: str) -> None:
        self.number = (int(major), int(minor))
        self.free_threaded = bool(flag)

    def __str__(self) -> str:
        return "Python %d.%d%s" % (self.number[0], self.number[1], "t" if self.free_threaded else "")


def version_of(procfs: "ProcFs", pid: int) -> "PythonVersion | None":
    """Version in the name of the executable or of the loaded library; None if neither has one."""
    try:
        program = _EXECUTABLE.match(os.path.basename(procfs.link(pid, "exe")))
        if program:
            return PythonVersion(*program.groups())
        version = apart.read(procfs, pid, ("maps",), _library_version)
        return PythonVersion(*apart.as_texts(version, 3, 8)) if version else None
    except (OSError, ValueError, TypeError):
        return None  # gone, or not readable


def _library_version(procfs: "ProcFs", pid: int) -> "list[str]":
    library = _LIBRARY.search(procfs.maps(pid))
    return [group.decode("ascii") for group in library.groups()] if library else []


def folders_of(procfs: "ProcFs", pid: int) -> "list[str]":
    """Folders of the process's commands: those of its first argument and of its executable."""
    folders = []
    try:
        argv = apart.as_texts(apart.read(procfs, pid, ("cmdline",), lambda procfs, pid: procfs.argv(pid)))
        if argv and os.path.isabs(argv[0]):
            folders.append(os.path.dirname(argv[0]))
        folders.append(os.path.dirname(procfs.link(pid, "exe")))
    except (OSError, ValueError):
        pass  # gone, or not readable
    return folders
