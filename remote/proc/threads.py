"""Threads whose start does not wait for ever."""

import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

#: Seconds until a thread that does not run counts as failed; less than a console waits for a lingering agent.
START_S = 8.0


class Thread(threading.Thread):
    """A daemon thread. `start` raises RuntimeError if it does not run within START_S, and when it cannot be created.

    Without memory, a new thread ends before its first statement, for which `start` of the standard library then waits
    without end.
    """

    def __init__(
        self, target: "Callable[..., object] | None" = None, args: "Any" = (), name: "str | None" = None
    ) -> None:
        super(Thread, self).__init__(target=target, args=args, name=name)
        self.daemon = True
        self._started = _Started()


class _Started(threading.Event):
    """Set by a thread when it begins to run."""

    def wait(self, timeout: "float | None" = None) -> bool:
        if not super(_Started, self).wait(START_S if timeout is None else timeout):
            raise RuntimeError("the thread has not started within %g s" % START_S)
        return True
