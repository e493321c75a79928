"""The node's clocks, as integers of nanoseconds. Every stamp of the agent is read here."""

import time

if hasattr(time, "clock_gettime_ns"):

    def realtime_ns():
        """CLOCK_REALTIME, ns."""
        return time.clock_gettime_ns(time.CLOCK_REALTIME)

    def mono_ns():
        """CLOCK_MONOTONIC_RAW, ns: never stepped, never slewed."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

else:  # Python 3.6: the float keeps about 200 ns of CLOCK_REALTIME

    def realtime_ns():
        """CLOCK_REALTIME, ns."""
        return int(time.clock_gettime(time.CLOCK_REALTIME) * 1e9)

    def mono_ns():
        """CLOCK_MONOTONIC_RAW, ns: never stepped, never slewed."""
        return int(time.clock_gettime(time.CLOCK_MONOTONIC_RAW) * 1e9)
