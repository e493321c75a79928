"""Rank 1 executes another program in its place, which raises."""

import os
import sys

if os.environ.get("STAGE") != "2":
    os.environ["STAGE"] = "2"
    os.execv(sys.executable, [sys.executable, *sys.argv])

from common import join, steps


def pick_expert(logits):
    return max(logits)


if join() == 1:
    pick_expert([])
steps()
