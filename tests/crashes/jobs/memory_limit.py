"""Rank 2 exceeds its limit of address space."""

import resource

from common import join, steps


def read_everything():
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), used + (64 << 20)))
    return bytearray(1 << 30)


if join() == 2:
    read_everything()
steps()
