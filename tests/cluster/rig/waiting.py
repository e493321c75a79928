"""Waiting for a condition, with a deadline."""

import time
from collections.abc import Callable

INTERVAL_S = 0.02


def wait_until(condition: Callable[[], object], deadline_s: float = 60.0) -> None:
    """Return as soon as `condition` holds; TimeoutError if it does not within `deadline_s`."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{getattr(condition, '__qualname__', condition)} does not hold after {deadline_s} s")
        time.sleep(INTERVAL_S)
