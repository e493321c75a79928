"""How the kernel's clock is steered: adjtimex(2), asked without changing anything, which needs no privilege."""

import ctypes

_STA_UNSYNC = 0x0040
_TIME_ERROR = 5
#: The kernel's `freq` is in ppm with 16 fractional bits.
_FREQUENCY = 65536.0


class _Timex(ctypes.Structure):
    """struct timex of <sys/timex.h>; 44 bytes of reserve at its end."""

    _fields_ = [
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("constant", ctypes.c_long),
        ("precision", ctypes.c_long), ("tolerance", ctypes.c_long), ("time_s", ctypes.c_long),
        ("time_us", ctypes.c_long), ("tick", ctypes.c_long), ("rest", ctypes.c_long * 8), ("tai", ctypes.c_int),
        ("reserve", ctypes.c_int * 11),
    ]  # fmt: skip


class State(object):
    """Whether the clock is kept in step by somebody, and the largest error that this somebody admits."""

    def __init__(self, synced, max_error_ns, frequency_ppm):
        self.synced = synced
        self.max_error_ns = max_error_ns
        self.frequency_ppm = frequency_ppm


def read():
    """The state, or None where the kernel does not tell."""
    buffer = _Timex()
    try:
        status = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(buffer))
    except (OSError, AttributeError):
        return None
    if status < 0:
        return None
    synced = status != _TIME_ERROR and not buffer.status & _STA_UNSYNC
    return State(synced, buffer.maxerror * 1000, round(buffer.freq / _FREQUENCY, 3))
