"""Starts the agent on its channel, or detached behind a socket with this process as relay."""

import os

from . import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedReader

    from ..samplers.base import Fields
    from .bootstrap import BundleImporter


def launch(stdin: "BufferedReader", start: "Fields", importer: "BundleImporter") -> None:
    """Run the agent on this channel, then end the process. `start` is the console's start frame."""
    config = start["config"]
    place = cache.Cache(config.get("cache_dir", ""), config.get("ephemeral", False))
    importer.use_code_dir(place.folder("code"))
    from . import linger  # after use_code_dir: compiled modules come from the cache
    from .agent import Agent

    if config.get("linger_s", 0) > 0:
        linger.attach(stdin, start, place, lambda: Agent(start, place, importer))
        return
    agent = Agent(start, place, importer)
    agent.end_on_signals()
    agent.run(stdin, os.fdopen(os.dup(1), "wb", 0))
