"""Rank 2 is in an endless loop in Python."""

from common import join, step


def balance(experts):
    moved = 0
    while sum(experts) > 0:
        experts.append(experts.pop(0))
        moved += 1
    return moved


rank, _ = join()
if rank == 2:
    balance([1, 2, 3])
step()
