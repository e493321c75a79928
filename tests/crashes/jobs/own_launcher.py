"""A launcher of one's own: it starts the ranks, and kills the others when one of them fails. Rank 1 raises."""

import os
import subprocess
import sys
import time

if "RANK" not in os.environ:
    size = int(os.environ["PER_NODE"])
    variables = [{**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env=each) for each in variables]
    while all(rank.poll() is None for rank in ranks):
        time.sleep(0.2)
    for rank in ranks:
        rank.kill()
    sys.exit("a rank failed; the others were killed")

from common import join, steps


def merge(batch):
    return batch["tokens"] + batch["labels"]


if join() == 1:
    merge({"tokens": [1], "labels": 7})
steps()
