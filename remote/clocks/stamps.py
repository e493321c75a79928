"""The node's clocks, as integers of nanoseconds. Every stamp of the agent is read here."""

import os
import time

if hasattr(time, "clock_gettime_ns"):
    _read = time.clock_gettime_ns

else:  # Python 3.6: the float keeps about 200 ns of CLOCK_REALTIME

    def _read(clock):
        return int(time.clock_gettime(clock) * 1e9)


#: Linux numbers them so; Python names CLOCK_BOOTTIME from 3.7 on.
_REALTIME, _MONOTONIC, _RAW, _BOOTTIME = time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW, 7
#: The tightest of so many bracketed reads is kept: what interrupts one of them seldom interrupts all.
_READS = 5
#: A kernel stamp is converted by one bracketed read, another where that one was interrupted: so often at most.
_BRACKET_NS, _BRACKETS = 2000, 3


def realtime_ns():
    """CLOCK_REALTIME, ns."""
    return _read(_REALTIME)


def mono_ns():
    """CLOCK_MONOTONIC_RAW, ns: never stepped, never slewed."""
    return _read(_RAW)


def mono_of_kernel(stamp):
    """CLOCK_MONOTONIC_RAW of an instant just past that the kernel stamped with CLOCK_REALTIME.

    Good to half the bracket of the read, usually 0.1 us, unless CLOCK_REALTIME was stepped in between.
    """
    for _ in range(_BRACKETS):
        before, real, after = _read(_RAW), _read(_REALTIME), _read(_RAW)
        if after - before < _BRACKET_NS:
            break
    return (before + after) // 2 - (real - stamp)


def snapshot():
    """All clocks at one instant: {real, monotonic, raw, boot, width_ns}; `raw` is the middle of the bracket."""
    best = None
    for _ in range(_READS):
        before = _read(_RAW)
        real, monotonic, boot = _read(_REALTIME), _read(_MONOTONIC), _read(_BOOTTIME)
        after = _read(_RAW)
        if best is None or after - before < best["width_ns"]:
            raw = (before + after) // 2
            best = {"real": real, "monotonic": monotonic, "raw": raw, "boot": boot, "width_ns": after - before}
    return best


def time_namespace():
    """The agent's time namespace and what it adds to the clocks: {timens, timens_monotonic_ns, timens_boot_ns}.

    All None where the kernel (before 5.6) has no such thing.
    """
    found = {"timens": None, "timens_monotonic_ns": None, "timens_boot_ns": None}
    try:
        found["timens"] = os.readlink("/proc/self/ns/time")
        with open("/proc/self/timens_offsets") as f:
            for line in f:
                name, seconds, ns = line.split()
                key = {"monotonic": "timens_monotonic_ns", "boottime": "timens_boot_ns"}.get(name)
                if key:
                    found[key] = int(seconds) * 1000000000 + int(ns)
    except (OSError, ValueError):
        pass  # unknown stays None
    return found
