"""The environment variables that each launcher sets for its ranks, in order of authority.

The first launcher whose set is complete (a rank and a size) wins: under srun + torchrun both sets are there, RANK is
the rank and SLURM_PROCID only numbers the node. Names as their launchers document them.
"""

from .numbers import parse_count
from .procfs import printable

#: A rank, a size or a port above this is not one.
LARGEST = 1 << 24
LARGEST_PORT = 65535
#: Parts of the names of options that say where ranks meet: --dist-url, --init_method, --dist_init_method, …
_MEETS = ("dist", "init", "master", "rdzv", "rendezvous", "coordinator")

# (launcher, rank, size, local rank, local size, node's number). Upper rows are nearer to the training process.
TABLE = (
    ("torch", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")),
    ("horovod", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", ("HOROVOD_CROSS_RANK",)),
    ("jax", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX_LOCAL_PROCESS_ID", "", ("SLURM_NODEID",)),
    (
        "openmpi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("SLURM_NODEID",),
    ),
    (
        "mvapich2",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
        (),
    ),
    ("pals", "PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", ("PALS_NODEID",)),
    ("flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "", ()),
    ("slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", ("SLURM_NODEID",)),
    ("mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ()),
)

#: The authority of a claim that no launcher's variables made.
NO_AUTHORITY = len(TABLE)

#: Everything that is ever read from an environment; the rest never leaves the process it belongs to.
VARIABLES = frozenset(
    [name for row in TABLE for name in row[1:5] if name]
    + [name for row in TABLE for name in row[5]]
    + ["MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "ACCELERATE_MIXED_PRECISION"]
    + ["GCONSOLE_JOB", "TORCHELASTIC_ERROR_FILE"]
    + ["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "PMIX_NAMESPACE", "RAY_JOB_ID", "FLUX_JOB_ID"]
    + ["JAX_COORDINATOR_ADDRESS", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", "PALS_APID"]
    + ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"]
)

#: Slurm numbers the steps that no srun made (batch, extern, interactive) from here on.
SLURM_SPECIAL_STEP = 0xFFFFFF00


class Claim(object):
    """The rank that one process claims to be. `authority` is the row of the table, 0 the highest."""

    __slots__ = (
        "attempt", "authority", "group_rank", "launcher", "local_rank", "local_world_size", "rank", "source",
        "world_size",
    )  # fmt: skip

    def __init__(
        self,
        rank: "int | None",
        world_size: "int | None",
        launcher: "str | None",
        source: str,
        authority: int = NO_AUTHORITY,
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.launcher = launcher
        self.source = source
        self.authority = authority
        self.local_rank: int | None = None
        self.local_world_size: int | None = None
        self.group_rank: int | None = None
        self.attempt = 0


def claim_of(env: "dict[str, str]", source: str) -> "Claim | None":
    """The claim of an environment, or None. Complete sets first; a lone RANK needs another variable of torch."""
    for authority, row in enumerate(TABLE):
        rank, size = number(env.get(row[1])), number(env.get(row[2]))
        if rank is None or not size or rank >= size or (row[0] == "slurm" and not _is_parallel_step(env)):
            continue
        return _completed(Claim(rank, size, row[0], source, authority), env)
    rank = number(env.get("RANK"))
    if rank is not None and "WORLD_SIZE" not in env and ("MASTER_ADDR" in env or "LOCAL_RANK" in env):
        return _completed(Claim(rank, None, "torch", source, 0), env)
    return _lightning(env, source)


def claim_of_argv(argv: "list[str]", env: "dict[str, str]") -> "Claim | None":
    """The claim that arguments make (`--rank 3 --world-size 8`; in JAX `--process_id 3 --num_processes 8`), or None.

    `--rank` alone is not a claim: scripts use it for other things (the rank of a LoRA matrix).
    """
    options = options_of(argv)
    rank, size = number(options.get("rank")), number(options.get("world_size")) or number(env.get("WORLD_SIZE"))
    if rank is None:
        rank, size = number(options.get("process_id")), number(options.get("num_processes"))
    if rank is None or not size or rank >= size:
        return None
    claim = Claim(rank, size, "argv", "argv")
    claim.local_rank = number(options.get("local_rank"))
    claim.group_rank = number(options.get("node_rank"))
    return claim


def rendezvous_of_argv(argv: "list[str]") -> "dict[str, str]":
    """MASTER_ADDR and MASTER_PORT as arguments give them (`--dist-url tcp://10.0.0.1:29500`); empty if they do not.

    A `tcp://` address of an option of another kind may be of a queue, and differ among the ranks.
    """
    options = options_of(argv)
    for name, value in options.items():
        address, port = tcp_address(value)
        if address and any(part in name for part in _MEETS):
            return {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    coordinator = options.get("coordinator_address", "")
    address, port = tcp_address("tcp://" + coordinator)
    if address:
        return {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    address, count = options.get("master_addr", ""), number(options.get("master_port"), LARGEST_PORT)
    return {"MASTER_ADDR": address, "MASTER_PORT": str(count)} if address and count else {}


def tcp_address(text: str) -> "tuple[str, int]":
    """Host and port of `tcp://host:port`, as torch takes it as an `init_method`; ("", 0) for another text."""
    if not text.startswith("tcp://"):
        return "", 0
    host, _, port = text[len("tcp://") :].partition("?")[0].partition("/")[0].rpartition(":")
    count = number(port, LARGEST_PORT)
    return (host.strip("[]"), count) if host and count else ("", 0)


def options_of(argv: "list[str]") -> "dict[str, str]":
    """`--some-name value` and `--some_name=value` as {"some_name": "value"}; the first of a name counts."""
    options: dict[str, str] = {}
    for index, argument in enumerate(argv):
        if not argument.startswith("-"):
            continue
        name, equals, value = argument.lstrip("-").partition("=")
        if not equals:
            value = argv[index + 1] if index + 1 < len(argv) else ""
        options.setdefault(name.replace("-", "_"), value)
    return options


def number(text: "str | None", largest: int = LARGEST) -> "int | None":
    """A decimal count of at most `largest`, or None."""
    return parse_count(text, largest) if text is not None and len(text) <= 9 else None


def gpu_of(env: "dict[str, str]", local_rank: "int | None") -> "str | None":
    """The GPU that the environment assigns to a rank (index or uuid), or None."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if name not in env:
            continue
        devices = [part.strip() for part in env[name].split(",")]
        if len(devices) > 1:
            devices = devices[local_rank : local_rank + 1] if local_rank is not None else []
        device = devices[0] if devices else ""
        if parse_count(device) is not None or device.startswith(("GPU-", "MIG-")):
            return printable(device, 96)
        return None
    return None


def slurm_step(env: "dict[str, str]") -> "str | None":
    """`1234.0` for a process of an srun step, `1234` for one of a batch or interactive shell, None outside Slurm."""
    job = env.get("SLURM_JOB_ID", "")
    if parse_count(job) is None:
        return None
    return "%s.%s" % (job, env["SLURM_STEP_ID"]) if _is_srun_step(env) else job


def _is_parallel_step(env: "dict[str, str]") -> bool:
    # everything typed into `srun --pty bash` carries SLURM_PROCID=0 of SLURM_NTASKS=1
    return _is_srun_step(env) and env.get("SLURM_NTASKS") != "1"


def _is_srun_step(env: "dict[str, str]") -> bool:
    # a batch script carries SLURM_PROCID=0 and SLURM_NTASKS=N as well, and is not a rank
    step = parse_count(env.get("SLURM_STEP_ID"))
    return step is not None and step < SLURM_SPECIAL_STEP


def _completed(claim: "Claim", env: "dict[str, str]") -> "Claim":
    _, _, _, local, local_size, groups = TABLE[claim.authority]
    claim.local_rank = number(env.get(local))
    claim.local_world_size = number(env.get(local_size)) or None
    for name in groups:
        claim.group_rank = number(env.get(name))
        if claim.group_rank is not None:
            break
    if claim.launcher == "torch":
        claim.attempt = number(env.get("TORCHELASTIC_RESTART_COUNT")) or 0
        claim.launcher = _torch_launcher(env)
    elif claim.launcher == "slurm":
        claim.attempt = number(env.get("SLURM_RESTART_COUNT")) or 0
    return claim


def _torch_launcher(env: "dict[str, str]") -> str:
    if "ACCELERATE_MIXED_PRECISION" in env:
        return "accelerate"
    if "TORCHELASTIC_RUN_ID" in env:
        return "torchrun"
    return "ray" if "RAY_JOB_ID" in env else "torch"


def _lightning(env: "dict[str, str]", source: str) -> "Claim | None":
    """Lightning's launcher sets LOCAL_RANK, NODE_RANK and WORLD_SIZE only; on the first node LOCAL_RANK is the rank."""
    local, size = number(env.get("LOCAL_RANK")), number(env.get("WORLD_SIZE"))
    if local is None or not size or local >= size or env.get("NODE_RANK") != "0" or "RANK" in env:
        return None
    claim = Claim(local, size, "lightning", source, 0)
    claim.local_rank = local
    claim.group_rank = 0
    return claim
