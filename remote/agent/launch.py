"""How the agent starts: alone on its channel, or detached behind a socket that this process only relays to."""

import os
import signal

from . import cache


def launch(stdin, start, importer):
    """Run what `start` asks for on this channel; ends the process. `start` is the console's start frame."""
    config = start["config"]
    place = cache.Cache(config.get("cache_dir", ""), config.get("ephemeral", False))
    importer.use_code_dir(place.folder("code"))
    from . import linger  # not sooner: from here on modules come from the cache, compiled
    from .agent import Agent

    if config.get("linger_s", 0) > 0:
        linger.attach(stdin, start, place, lambda: Agent(start, place, importer), end_on_signals)
        return
    agent = Agent(start, place, importer)
    end_on_signals(agent)
    agent.run(stdin, os.fdopen(os.dup(1), "wb", 0))


def end_on_signals(agent):
    """Leave nothing behind when somebody ends this process politely."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: agent.end())
