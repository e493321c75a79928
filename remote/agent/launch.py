"""How the agent starts: alone on its channel, or detached behind a socket that this process only relays to."""

import os

from . import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedReader

    from ..samplers.base import Fields
    from .bootstrap import BundleImporter


def launch(stdin: "BufferedReader", start: "Fields", importer: "BundleImporter") -> None:
    """Run what `start` asks for on this channel; ends the process. `start` is the console's start frame."""
    config = start["config"]
    place = cache.Cache(config.get("cache_dir", ""), config.get("ephemeral", False))
    importer.use_code_dir(place.folder("code"))
    from . import linger  # not sooner: from here on modules come from the cache, compiled
    from .agent import Agent

    if config.get("linger_s", 0) > 0:
        linger.attach(stdin, start, place, lambda: Agent(start, place, importer))
        return
    agent = Agent(start, place, importer)
    agent.end_on_signals()
    agent.run(stdin, os.fdopen(os.dup(1), "wb", 0))
