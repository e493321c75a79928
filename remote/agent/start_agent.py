"""Starts the agent on its channel, or detached behind a socket with this process as relay; or the gateway.

The agent's modules come from the cache folder; where it lacks them, one line requests them from the console:
{"gconsole_lacks": digest}. The console sends them once, as plain bytes. A task of a step needs none of them: all its
modules came with the bootstrap.
"""

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

    from ..samplers.base import Fields
    from .bootstrap import BundleImporter


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
    from . import linger
    from .agent import Agent

    if config.get("linger_s", 0) > 0:
        linger.attach(stdin, start, place, lambda: Agent(start, place, importer))
        return
    agent = Agent(start, place, importer)
    agent.end_on_signals()
    agent.run(stdin, os.fdopen(os.dup(1), "wb", 0))


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
