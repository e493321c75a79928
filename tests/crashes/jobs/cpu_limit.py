"""Rank 2 exceeds its limit of CPU time: SIGXCPU."""

import resource

from common import join, steps

if join() == 2:
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 60))
    while True:
        pass
steps()
