"""Starts processes that outlive the agent, at the original niceness."""

import queue
import threading

from . import commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class DetachedStarter(object):
    """A thread that starts jobs, created before the agent raises its niceness, which a job must not inherit.

    On Linux each thread has its own niceness, and only root may lower it.
    """

    def __init__(self) -> None:
        self._orders: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._run, name="gconsole-starter", daemon=True).start()

    def start(self, name: str, words: "dict[str, str]", log: str) -> None:
        """Start a listed command, detached; its output goes to the file `log`. Raises OSError."""
        answer: queue.Queue[OSError | None] = queue.Queue()
        self._orders.put((name, words, log, answer))
        error = answer.get()
        if error is not None:
            raise error

    def _run(self) -> None:
        while True:
            name, words, log, answer = self._orders.get()
            try:
                commands.detach(name, words, log)
                answer.put(None)
            except OSError as error:
                answer.put(error)
