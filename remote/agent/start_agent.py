"""Starts the agent on its channel, or detached behind a socket with this process as relay; or the gateway.

The agent's modules come from the cache folder; where it lacks them, one line requests them from the console:
{"gconsole_lacks": digest}. The console sends them once, as plain bytes. A task of a step needs none of them: all its
modules came with the bootstrap.
"""

import gc
import json
import os
import sys

from . import cache

#: malloc.h of glibc, parameters of mallopt, and values. One arena: the interpreter's lock lets one thread allocate at a
#: time, and each arena keeps its own free memory. Bytes: free memory at the end of the heap that is given back, and
#: that is taken beyond what is needed.
_HEAP = ((-8, 1), (-1, 65536), (-2, 4096))

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedReader

    from ..jobs.waiting_supervisor import WaitingSupervisor
    from ..samplers.base import Fields
    from .agent import Agent
    from .bootstrap import BundleImporter
    from .gpu_fork import GpuChild


def launch(stdin: "BufferedReader", start: "Fields", importer: "BundleImporter", digest: str, size: int) -> None:
    """Run the agent on this channel, then end the process. `start` is the console's start frame.

    `digest` and `size` are those of the archive of all modules that did not come with the bootstrap.
    """
    config = start["config"]
    place = cache.Cache(config.get("cache_dir", ""), config.get("ephemeral", False))
    if start.get("verb") == "step":
        importer.use_code_dir(place.folder("code"))
        from ..gateway import step

        step.run(stdin, start, place)
    importer.add(_archive(stdin, place, digest, size))
    importer.use_code_dir(place.folder("code"))
    if start.get("verb") == "gateway":
        from ..gateway import gateway  # after use_code_dir: compiled modules come from the cache

        gateway.run(start, place)
    _limit_heap()
    if config.get("linger_s", 0) > 0:
        from . import linger

        linger.attach(stdin, start, place, lambda: _new_agent(start, place, importer))
        return
    agent = _new_agent(start, place, importer)
    agent.end_on_signals()
    agent.run(stdin, os.fdopen(os.dup(1), "wb", 0))


def _new_agent(start: "Fields", place: "cache.Cache", importer: "BundleImporter") -> "Agent":
    """The agent of this process."""
    gpu_child = None if start["config"].get("simulate_gpus", 0) else _fork_gpu_child(importer)
    from .agent import Agent

    waiting = _fork_supervisor() if start["config"].get("jobs_only") else None
    return Agent(start, place, importer, gpu_child, waiting)


def _fork_supervisor() -> "WaitingSupervisor | None":
    """The process for the job that is about to be started; None where no more processes are allowed."""
    from ..jobs.waiting_supervisor import WaitingSupervisor

    try:
        return WaitingSupervisor()
    except OSError:
        return None


def _fork_gpu_child(importer: "BundleImporter") -> "GpuChild | None":
    """The process for NVML, while this one is small and has one thread; None if there is nothing to read or no fork.

    The sampler forks another one where it needs one.
    """
    from ..nvml import call
    from ..samplers.base import Context
    from .gpu_fork import GpuChild

    if not call.is_installed():
        return None
    importer.compile_aside("pynvml")
    if hasattr(gc, "freeze"):  # Python 3.7: collections of both do not touch, and so copy, what exists by now
        gc.freeze()
    context = Context()
    context.import_nvml = call.import_binding
    try:
        return GpuChild(context)
    except OSError:
        return None  # no more processes are allowed at the moment


def _limit_heap() -> None:
    """Keep the heap of this process and of those that it forks small: 1.5 MB less of 32 with a process for NVML.

    Programs that the agent starts are not affected, as they would be by environment variables.
    """
    try:
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
    except (ImportError, OSError, AttributeError):
        return  # a Python without ctypes, or another C library
    for parameter, value in _HEAP:
        mallopt(parameter, value)


def _archive(stdin: "BufferedReader", place: "cache.Cache", digest: str, size: int) -> bytes:
    """The archive from the cache, else from the console. Ends the process if what arrives is damaged."""
    archive = place.payload(digest, size)
    if archive is None:
        os.write(1, json.dumps({"gconsole_lacks": digest}).encode("ascii") + b"\n")
        archive = stdin.read(size)
        if not cache.has_digest(archive, digest):
            sys.exit("gconsole: bundle_rejected")
        place.keep_payload(digest, archive)
    return archive
