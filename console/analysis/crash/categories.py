"""Categories of failures by their text: which are causes, which are consequences of a failure elsewhere."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import msgspec

from .verdict import FailureRole


class Category(msgspec.Struct, frozen=True):
    """A class of failures, the words for it, and what to do."""

    id: str
    role: FailureRole
    words: str  # a clause that follows a rank: "ran out of GPU memory"
    next_step: str


_PEERS: Final = "Read the output of the peer that it names; this rank is not at fault."
CATEGORIES: Final[dict[str, Category]] = {
    category.id: category
    for category in (
        Category("peer_closed", "consequence", "lost the connection to a peer", _PEERS),
        Category("store_gone", "consequence", "lost the connection to the store of its process group", _PEERS),
        Category("collective_timeout", "consequence", "timed out in a collective", "Find the rank that did not enter it."),
        Category("store_timeout", "consequence", "timed out waiting for a key of the store", "Find the rank that did not set it."),
        Category("aborted_by_peer", "consequence", "was aborted because another rank failed", _PEERS),
        Category("worker_pipe", "consequence", "lost the connection to another process of its node", "Find out why that process ended."),
        Category("launcher_report", "consequence", "reports that a rank failed", "Read the output of that rank."),
        Category("terminated", "teardown", "was terminated by SIGTERM", "Find out what ended the job."),
        Category("interrupted", "teardown", "was interrupted by SIGINT", "Find out who interrupted the job."),
        Category("rendezvous", "unknown", "could not reach the rendezvous", "Check MASTER_ADDR, MASTER_PORT, the firewall, and whether rank 0 runs."),
        Category("nccl_network", "unknown", "lost an NCCL connection", "Check the network of the nodes on both sides; read the NCCL WARN lines."),
        Category("nccl_internal", "unknown", "failed in NCCL", "Run with NCCL_DEBUG=INFO and read the first NCCL WARN line."),
        Category("cut_off", "unknown", "ended while it printed a traceback", "Read the whole output of the rank."),
        Category("teardown_noise", "unknown", "was aborted while it ended", "Read its output before this line."),
        Category("unknown_exit", "unknown", "exited with an error", "Read the output of the rank."),
        Category("cuda_oom", "cause", "ran out of GPU memory", "Lower the batch size or the sequence length, or shard more; see which processes use that GPU."),
        Category("host_oom", "cause", "ran out of host memory", "Lower the memory use of the rank and its data loader workers, or raise the limit."),
        Category("shm_full", "cause", "ran out of shared memory", "Enlarge /dev/shm (docker --shm-size, an emptyDir with medium Memory)."),
        Category("disk_full", "cause", "found no space on a device", "Free space or raise the quota of the path that it names."),
        Category("device_assert", "cause", "failed an assertion in a CUDA kernel", "Check indices and labels against their ranges; run with CUDA_LAUNCH_BLOCKING=1 for the exact line."),
        Category("cuda_hardware", "cause", "met a fault of a GPU", "Drain the node; check nvidia-smi -q and the kernel log for XIDs."),
        Category("cuda_memory_access", "cause", "made an illegal memory access on a GPU", "Run with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer; check custom kernels."),
        Category("cuda_setup", "cause", "could not use its GPU", "Check the driver, CUDA_VISIBLE_DEVICES and the build of torch on that node."),
        Category("cuda_error", "cause", "failed in a CUDA call", "Run with CUDA_LAUNCH_BLOCKING=1; check the kernel log for XIDs."),
        Category("nccl_usage", "cause", "used NCCL wrongly", "Check that every rank uses a GPU of its own, and the arguments of the collective."),
        Category("collective_mismatch", "cause", "found different collectives on its ranks", "All ranks must issue the same collectives in the same order and shapes."),
        Category("import_error", "cause", "could not import a module", "Compare the environment of that node with the others."),
        Category("syntax_error", "cause", "could not parse its source", "Correct the source at the place named."),
        Category("usage", "cause", "rejected its arguments", "Correct the command line."),
        Category("address_in_use", "cause", "could not listen on a port in use", "End the process that uses the port, or choose another MASTER_PORT."),
        Category("nan", "cause", "stopped at a value that is not a number", "Check the batch and the learning rate of this step; use anomaly detection."),
        Category("state_mismatch", "cause", "could not load a state that does not fit", "Compare the checkpoint with the model's configuration."),
        Category("corrupt_file", "cause", "could not read a damaged file", "Check the file; it may be truncated by an earlier crash."),
        Category("file_missing", "cause", "did not find a file", "Check the path on that node: mounts, working directory, permissions."),
        Category("permission", "cause", "was denied access", "Check owner and permissions on that node."),
        Category("io_error", "cause", "met an error of a file system", "Check the mount and the kernel log of that node."),
        Category("external_service", "cause", "failed at a service outside of the job", "Check that service and the network to it; retry with back-off."),
        Category("data_worker", "cause", "failed because a data loader worker died", "Read the output and the kernel log of the node for the reason: memory, /dev/shm, a native crash."),
        Category("limit", "cause", "hit a limit of the system", "Raise the limit that it names (ulimit -n, ulimit -u)."),
        Category("assertion", "cause", "failed an assertion", "Check the condition at the place named."),
        Category("segfault", "cause", "crashed with a segmentation fault", "Read the native stack; run with PYTHONFAULTHANDLER=1; keep a core dump."),
        Category("bus_error", "cause", "crashed with a bus error", "Check the space in /dev/shm and the files that it maps; one may have been cut."),
        Category("abort", "cause", "aborted in native code", "Read the message before the abort in the rank's output."),
        Category("native_exception", "cause", "ended by a C++ exception that nothing caught", "Read the exception's text; keep a core dump."),
        Category("killed", "cause", "was killed by SIGKILL", "Check the kernel log for the OOM killer, and who sent the signal."),
        Category("signalled", "cause", "was ended by a signal", "Find out which process sent the signal: a user, a watchdog, the scheduler."),
        Category("oom_killed", "cause", "was killed for lack of memory", "Lower the memory use or raise the memory limit."),
        Category("node_lost", "cause", "ran on a node that was lost", "Check the node; exclude it until then."),
        Category("outside", "cause", "was ended from outside", "Check the scheduler's state and reason of the job."),
        Category("mpi_abort", "unknown", "called MPI_Abort", "Read the output of that rank before the abort."),
        Category("exit", "cause", "ended itself", "Check why the code exits at this place."),
        Category("exception", "cause", "raised an exception", "Open the file and line that it names."),
    )
}  # fmt: skip

_IO_CLIENTS: Final = frozenset(
    ("requests", "urllib3", "urllib", "http", "botocore", "boto3", "s3fs", "aiobotocore", "aiohttp", "httpx", "httpcore",
     "gcsfs", "google", "huggingface_hub", "paramiko", "pymongo", "redis", "psycopg2", "sqlalchemy", "wandb", "mlflow",
     "smart_open", "azure", "adlfs", "webdataset", "streaming", "comet_ml", "neptune", "ssl", "ftplib", "smtplib", "minio"))  # fmt: skip
_PEER_CODE: Final = frozenset(("torch/distributed", "torch/nn/parallel", "deepspeed", "horovod", "mpi4py", "jax"))
_PROCESS_CODE: Final = frozenset(("multiprocessing", "concurrent", "torch/multiprocessing"))
_CONNECTION: Final = re.compile(
    r"^(?:\S*\.)?(?:ConnectionResetError|BrokenPipeError|ConnectionAbortedError|ConnectionError|ConnectionRefusedError|EOFError"
    r"|TimeoutError|RemoteDisconnected|socket\.timeout|gaierror|IncompleteRead|ProtocolError)\b"
)


def _table(*rows: tuple[str, str]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((category, re.compile(pattern, re.DOTALL)) for category, pattern in rows)


#: Matched in this order against `type: message` and the next lines; the first match decides.
_PATTERNS: Final = _table(
    # What a rank reports about a report: the launcher's own exceptions.
    ("launcher_report", r"^(?:\S*\.)?(?:ChildFailedError|CalledProcessError: Command .{0,1000}(?:-m|python|torchrun|accelerate)|ProcessExitedException)"),
    ("terminated", r"^(?:\S*\.)?SignalException|got signal: 15|is killed by signal: Terminated|[Ss]ignal 15 \(SIGTERM\)|^SIGTERM|terminated by signal 15"),
    ("interrupted", r"^(?:\S*\.)?KeyboardInterrupt|got signal: 2\b|is killed by signal: Interrupt"),
    ("outside", r"\b(?:SIGTERM|preempt(?:ed|ion)) (?:signal )?(?:was )?received|^(?:\S*\.)?Preempt\w*(?:Error|Exception|Signal)?\b"),
    # Devices and memory, also within the messages of other layers.
    ("cuda_hardware", r"uncorrectable ECC|fallen off the bus|GPU is lost|NVLink error|hardware stack error|ECC error|CUDA_ERROR_(?:ECC|NVLINK|HARDWARE)"),
    ("device_assert", r"device-side assert triggered|CUDA_ERROR_ASSERT|cudaErrorAssert"),
    ("cuda_oom", r"(?:CUDA|HIP|XPU) out of memory|^(?:torch\.|torch\.cuda\.)?OutOfMemoryError|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|Cuda failure (?:\d+ )?'out of memory'"
                 r"|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)|cudaErrorMemoryAllocation|CUDNN_STATUS_ALLOC_FAILED"),
    ("cuda_memory_access", r"illegal memory access|misaligned address|unspecified launch failure|CUDA error: an illegal instruction|CUDA_ERROR_ILLEGAL_ADDRESS|CUDA_ERROR_LAUNCH_FAILED|invalid program counter"),
    ("cuda_setup", r"No CUDA GPUs are available|not compiled with CUDA|invalid device ordinal|driver version is insufficient|driver on your system is too old|no kernel image"
                   r"|Found no NVIDIA driver|system not yet initialized|no CUDA-capable device|CUDA unknown error|driver initialization failed|forward compatibility was attempted"
                   r"|device\(s\) is/are busy or unavailable|devices? unavailable|CUDA_ERROR_NO_DEVICE|libcuda\.so"),
    ("shm_full", r"out of shared memory|Error while creating shared memory segment|unable to (?:open|write to|resize|allocate) (?:file|shared memory).{0,200}(?:/torch_|shm)|/dev/shm.{0,200}No space|No space left on device.{0,300}(?:/dev/shm|/nccl-)|is killed by signal: Bus error"),
    ("disk_full", r"No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]|not enough space on the disk|PytorchStreamWriter failed|ENOSPC|file write failed"),
    ("oom_killed", r"^ray\.exceptions\.OutOfMemoryError|low on memory|OOMKilled|killed due to (?:the node running )?(?:out of|low) memory"),
    ("host_oom", r"^MemoryError|DefaultCPUAllocator: (?:can't allocate|not enough) memory|std::bad_alloc|Cannot allocate memory|ArrayMemoryError|Unable to allocate [0-9.]+ [KMGT]iB|\[Errno 12\]"),
    ("limit", r"Too many open files|\[Errno 24\]|can't start new thread|received 0 items of ancdata|Resource temporarily unavailable|pthread_create failed|\[Errno 11\]"),
    ("data_worker", r"DataLoader worker \(pid(?:\(s\))? [0-9, ]+\) (?:is killed by signal|exited unexpectedly)|DataLoader timed out"),
    # Communication.
    ("collective_mismatch", r"Detected mismatch between collectives|[Mm]ismatch(?:ed)? (?:between )?collectives?|MPI_ERR_TRUNCATE|op\.preamble\.length <= op\.nbytes"),
    ("address_in_use", r"Address already in use|EADDRINUSE|\[Errno 98\]|errno: 98"),
    ("nccl_usage", r"Duplicate GPU detected|ncclInvalidUsage|ncclInvalidArgument|invalid usage \(run with|invalid argument \(run with|Mismatched NCCL version|NCCL version mismatch"),
    ("peer_closed", r"[Cc]onnection (?:was )?closed by (?:remote )?(?:peer|localRank|host)|ncclRemoteError|remote process (?:has )?exited|peer (?:has )?disconnected|socketProgress: Connection closed"
                    r"|gloo.{0,300}(?:Connection reset by peer|Broken pipe|Connection refused|Socket closed|Read error|Write error|connectFullMesh failed)|socketFinishConnect|Socket recv failed while polling"),
    ("store_gone", r"TCPStore.{0,200}(?:shut ?down|gone|closed)|(?:recvValue|sendBytes|recvBytes|recvVector)\w* failed|failed to recv, got 0 bytes|should dump\W+ flag on (?:the )?(?:TCP)?Store|DistNetworkError.{0,300}(?:reset|Broken pipe|recv)"
                   r"|Connection was likely closed|heartbeat.{0,200}TCPStore"),
    ("collective_timeout", r"Watchdog caught collective operation timeout|Timed out waiting [0-9]+ms for (?:recv|send) operation|collective operation timeout|NCCL operations have failed or timed out|ran for [0-9]+ milliseconds before timing out"
                           r"|failed to pass monitoredBarrier|monitoredBarrier|NCCL watchdog.{0,200}(?:timeout|stuck|hang)|no heartbeat of its watchdog|Heartbeat monitor timed out|collective.{0,200}timed out|allreduce.{0,200}timed out|Application timeout caused pair closure|terminate the process because of.{0,200}timeout"),
    ("store_timeout", r"DistStoreError|wait timeout after [0-9]+ms|Socket Timeout|Timed out after [0-9]+ seconds waiting for clients|[Ss]tore[ -]?(?:Timeout|[Bb]ased barrier)|DEADLINE_EXCEEDED.{0,300}[Bb]arrier|Barrier timed out"),
    ("aborted_by_peer", r"coordination service|JAX distributed service detected|[Cc]oordination_service|other tasks? (?:failed|died)|aborted? (?:because|since|as) (?:another|other)|communicator was aborted|NCCL communicator was aborted"
                        r"|[Hh]orovod has been shut down|HorovodInternalError|ncclCommAbort|failed: worker .{0,100} died"),
    ("rendezvous", r"Rendezvous\w*Error|client socket has (?:failed|timed out)|The client socket|trying to connect to|failed to connect to .{0,200}(?:store|master|:[0-9]+)|timed out connecting|connect\(\) timed out|DistNetworkError"),
    ("nccl_network", r"IBV_WC_|ibv_\w+ failed|ncclSystemError|unhandled system error|NET/IB|NET/Socket|Connection timed out|No route to host|Network is unreachable"),
    ("cuda_error", r"CUDA error|CUDA driver error|Cuda failure|ncclUnhandledCudaError|unhandled cuda error|CUBLAS_STATUS_|CUDNN_STATUS_|cuDNN error|CUFFT_|CUSOLVER_|CUSPARSE_|HIP error|cudaError|CUDA_ERROR_"),
    ("nccl_internal", r"ncclInternalError|internal error - please report|NCCL error|NCCL Error"),
    # Python.
    ("syntax_error", r"^(?:SyntaxError|IndentationError|TabError)\b"),
    ("import_error", r"^(?:ModuleNotFoundError|ImportError)\b|undefined symbol|cannot open shared object file|version `GLIBC"),
    ("nan", r"^FloatingPointError|\b(?:[Ll]oss|[Gg]rad\w*|[Vv]alues?|output|weights?|norm)\b.{0,60}\b(?:nan|NaN|inf|Inf|non-finite|not finite|infinite)\b|\b(?:nan|NaN|non-finite|NaNs?)\b.{0,40}\b(?:loss|grad|detected|found|encountered|values?)"),
    ("state_mismatch", r"Error\(s\) in loading state_dict|size mismatch for|Missing key\(s\) in state_dict|Unexpected key\(s\)"),
    ("corrupt_file", r"PytorchStreamReader failed|UnpicklingError|pickle data was truncated|BadZipFile|unexpected EOF|zlib\.error|HeaderTooLarge|MetadataIncompleteBuffer|InvalidHeaderDeserialization|truncated"),
    ("io_error", r"Stale file handle|\[Errno (?:5|30|107|108|116)\]|Input/output error|Transport endpoint is not connected|Read-only file system"),
    ("file_missing", r"^(?:FileNotFoundError|NotADirectoryError|IsADirectoryError)\b|\[Errno 2\]|No such file or directory"),
    ("permission", r"^PermissionError\b|\[Errno 13\]|Permission denied"),
    ("external_service", r"^(?:requests|urllib3|botocore|aiohttp|httpx|google\.api_core|huggingface_hub|wandb|openai|boto3|s3fs|mlflow)\.|HTTPError|ClientError|HTTPSConnectionPool|HfHubHTTPError|GatedRepoError"),
    ("assertion", r"^AssertionError\b"),
    ("exit", r"^SystemExit\b"),
)  # fmt: skip


def category_of(text: str, files: Collection[str] = ()) -> Category:
    """The category of a failure by `type: message` with its further lines; `files` are those of its frames."""
    name = next((name for name, pattern in _PATTERNS if pattern.search(text)), "exception")
    if _CONNECTION.match(text) and name not in ("address_in_use", "limit", "disk_full", "outside"):
        name = _of_connection(text, files)
    elif name in ("nccl_network", "exception") and _uses(files, _IO_CLIENTS) and name == "nccl_network":
        name = "external_service"
    return CATEGORIES[name]


def _of_connection(text: str, files: Collection[str]) -> str:
    """A lost connection: to a peer, a process of the node, or a service outside, as the frames show."""
    if _uses(files, _IO_CLIENTS):
        return "external_service"
    if _uses(files, _PEER_CODE):
        return "rendezvous" if "refused" in text or "imed out" in text else "peer_closed"
    if _uses(files, _PROCESS_CODE):
        return "worker_pipe"
    return "rendezvous" if text.startswith("ConnectionRefused") else "nccl_network" if not files else "exception"


def _uses(files: Collection[str], packages: Collection[str]) -> bool:
    return any(f"/{package}/" in file or f"/{package}.py" in file for file in files for package in packages)
