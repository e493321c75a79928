"""Rank 0 stops because its loss is not a number."""

import math

from common import join, steps


def check(loss, step):
    if math.isnan(loss):
        raise FloatingPointError(f"loss is nan at step {step}")


if join() == 0:
    check(float("nan"), 1217)
steps()
