"""Runs a query command of a scheduler."""

from __future__ import annotations

import subprocess

from ..text.sanitize import printable

#: Seconds. A busy scheduler answers within a few.
TIMEOUT_S = 30.0
_MAX_MESSAGE = 300


class SchedulerError(Exception):
    """The scheduler did not return the job's nodes: `text` says why, `try_` what to do."""

    def __init__(self, text: str, try_: str) -> None:
        super().__init__(f"{text}; {try_}")
        self.text, self.try_ = text, try_


def run_query(argv: list[str], try_: str) -> bytes:
    """The program's standard output. Raises SchedulerError."""
    program = argv[0]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise SchedulerError(f"`{program}` is not installed here", "run gconsole on a login node of the site") from None
    except subprocess.TimeoutExpired:
        raise SchedulerError(f"`{program}` did not answer within {TIMEOUT_S:.0f} s", try_) from None
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        words = printable(lines[-1][:_MAX_MESSAGE]) if lines else f"exit status {done.returncode}"
        raise SchedulerError(f"{program}: {words}", try_)
    return done.stdout
