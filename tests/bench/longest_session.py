"""A session of 100 M records is opened, queried and exported in the memory of one of 10 M. Takes half an hour."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from gconsole.session.format.layout import named

from .long_sessions import GCONSOLE, GOAL_MEMORY, QUESTION, first_paint, ran
from .process import in_new_process
from .result import Outcome, Row
from .session_maker import make_long

RECORDS, QUICK = 100_000_000, 300_000
#: Commands, as arguments after the session.
_DONE: Final = {
    "avg by rank, a whole program": ("query", QUESTION),
    "`stat` by GPU, rank, node": ("stat",),
    "exported as JSON": ("export", "--format", "json", "-o", "-"),
}  # fmt: skip


def measure(quick: bool) -> Outcome:
    """Peak RSS of each command, and the time to the first screen."""
    with tempfile.TemporaryDirectory(prefix="gconsole-bench-") as scratch:
        session = named("night", Path(scratch))
        meta = make_long(session, QUICK if quick else RECORDS)
        rows = []
        for what, (command, *options) in _DONE.items():
            taken = ran([GCONSOLE, command, str(session.path), *options])
            text = f"{taken.memory / 1e6:.0f} MB RSS, {taken.cpu_s:.0f} s CPU"
            rows.append(Row(f"{meta.records / 1e6:.0f} M records: {what}", text, "≤ 300 MB",
                            taken.memory <= GOAL_MEMORY))  # fmt: skip
        painted = in_new_process(first_paint, session)
    text = f"{painted.memory / 1e6:.0f} MB RSS, {painted.wall_s:.2f} s"
    rows.append(Row("the same: replay, from exec to the first screen with its nodes", text, "≤ 300 MB",
                    painted.memory <= GOAL_MEMORY))  # fmt: skip
    return Outcome(
        rows,
        ["a session as in long_sessions, ten times as long (18 hours), segments and Parquet; first screen: the best of"
         f" three; load average when done {os.getloadavg()[0]:.1f}"],
    )  # fmt: skip
