"""The node's clocks in integer nanoseconds; source of every timestamp of the agent."""

import os
import time

if hasattr(time, "clock_gettime_ns"):
    _read = time.clock_gettime_ns

else:  # Python 3.6: a float resolves CLOCK_REALTIME to about 200 ns

    def _read(clock: int) -> int:
        return int(time.clock_gettime(clock) * 1e9)


#: CLOCK_BOOTTIME is 7 on Linux; Python has the name from 3.7 on.
_REALTIME, _MONOTONIC, _RAW, _BOOTTIME = time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW, 7
#: Bracketed reads per snapshot, of which the tightest is kept: an interruption rarely hits all of them.
_READS = 5
#: ns and count. A bracketed read wider than this was interrupted and is repeated, up to this many reads, of which the
#: tightest counts: an interruption of 20 us in the middle of a read would make an arrival seem to come before its send.
_BRACKET_NS, _BRACKETS = 2000, 3


def realtime_ns() -> int:
    """CLOCK_REALTIME, ns."""
    return _read(_REALTIME)


def mono_ns() -> int:
    """CLOCK_MONOTONIC_RAW, ns: never stepped, never slewed."""
    return _read(_RAW)


def mono_of_kernel(stamp: int) -> int:
    """CLOCK_MONOTONIC_RAW of a recent kernel timestamp of CLOCK_REALTIME, ns.

    Accurate to half the bracket of the read, usually 0.2 us, unless CLOCK_REALTIME was stepped in between.
    """
    width = offset = 0
    for attempt in range(_BRACKETS):
        before, real, after = _read(_RAW), _read(_REALTIME), _read(_RAW)
        if not attempt or after - before < width:
            width, offset = after - before, (before + after) // 2 - real
        if width < _BRACKET_NS:
            break
    return stamp + offset


def snapshot() -> "dict[str, int]":
    """All clocks at one instant: {real, monotonic, raw, boot, width_ns}; `raw` is the middle of the bracket."""
    best: "dict[str, int]" = {}
    for _ in range(_READS):
        before = _read(_RAW)
        real, monotonic, boot = _read(_REALTIME), _read(_MONOTONIC), _read(_BOOTTIME)
        after = _read(_RAW)
        if not best or after - before < best["width_ns"]:
            raw = (before + after) // 2
            best = {"real": real, "monotonic": monotonic, "raw": raw, "boot": boot, "width_ns": after - before}
    return best


def time_namespace() -> "dict[str, str | int | None]":
    """The agent's time namespace and its clock offsets: {timens, timens_monotonic_ns, timens_boot_ns}.

    All None on kernels without time namespaces (before 5.6).
    """
    namespace: "dict[str, str | int | None]" = {"timens": None, "timens_monotonic_ns": None, "timens_boot_ns": None}
    try:
        namespace["timens"] = os.readlink("/proc/self/ns/time")
        with open("/proc/self/timens_offsets") as f:
            for line in f:
                name, seconds, ns = line.split()
                key = {"monotonic": "timens_monotonic_ns", "boottime": "timens_boot_ns"}.get(name)
                if key:
                    namespace[key] = int(seconds) * 1000000000 + int(ns)
    except (OSError, ValueError):
        pass  # unknown stays None
    return namespace
