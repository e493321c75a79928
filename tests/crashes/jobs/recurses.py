"""Rank 0 recurses without an end."""

from common import join, steps


def flatten(tree):
    return flatten([tree])


if join() == 0:
    flatten([])
steps()
