"""What a person asks for when starting a job."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from ..core.job_protocol import SyncFolder
    from .scale import ScaleConfig

Launcher = Literal["torchrun", "accelerate", "env"]
LAUNCHERS: Final[tuple[str, ...]] = get_args(Launcher)


@dataclass(frozen=True)
class JobRequest:
    """A job as it is wanted. None means: whatever fits, as `plan` says."""

    command: tuple[str, ...]
    nodes: int | None = None  # None: all of `select`, else one
    gpus_per_node: int | None = None  # None: as many as the best node has; 0: a job for CPUs
    procs_per_node: int | None = None  # None: one for each GPU, or one
    min_gpu_mem_bytes: int = 0
    min_mem_bytes: int = 0  # available memory of the host
    min_disk_bytes: int = 0  # free where the job works
    select: tuple[str, ...] | None = None  # only these nodes; None: any
    launcher: Launcher = "torchrun"
    workdir: str | None = None
    interface: str | None = None  # between the nodes; None: the network they share
    port: int | None = None  # where the ranks meet; None: a free one is found
    env: tuple[tuple[str, str], ...] = ()
    scale: ScaleConfig | None = None  # adjusted to the number of ranks
    sync: SyncFolder | None = None  # copied into `workdir` of every node before the start


def new_job(command: tuple[str, ...]) -> str:
    """An id nobody has used, with the name of the script in it: `train-3f9a1c`."""
    script = next((word for word in command if word.endswith(".py")), command[0] if command else "job")
    stem = re.sub(r"[^A-Za-z0-9_]+", "-", PurePosixPath(script).stem).strip("-")[:24] or "job"
    return f"{stem}-{secrets.token_hex(3)}"
