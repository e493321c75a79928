"""Shared by the labelled jobs without torch: the rank, and the READY line."""

import os
import sys

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def ready():
    sys.stdout.write(f"READY rank={RANK} pid={os.getpid()}\n")
    sys.stdout.flush()
