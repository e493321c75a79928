"""Rank 2 raises an exception in its own code."""

from common import join, steps


def parse_sample(index):
    sample = {"tokens": [1, 2, 3], "label": "seven"}
    return int(sample["label"])


if join() == 2:
    parse_sample(17)
steps()
