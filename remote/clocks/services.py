"""Clock state claimed by the node's time service: chronyd, ntpd, timesyncd, ptp4l, or the kernel alone.

Read only, without root where the service allows. Nothing here is measured.
"""

import ctypes
import os
import re

from ..agent import commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    Claim = dict[str, Any]  # fields of a `clock_source`

_TIMEOUT_S = 2.0
#: Process name (/proc/PID/comm has at most 15 characters) → service.
_PROCESSES = {
    "chronyd": "chrony", "ntpd": "ntpd", "ntpd:": "ntpd", "systemd-timesyn": "timesyncd", "ptp4l": "ptp4l",
}  # fmt: skip
#: Order of preference: ptp4l steers the NIC's clock, which the others may follow.
_ORDER = ("ptp4l", "chrony", "ntpd", "timesyncd")
_UNKNOWN: "Claim" = {
    "daemon": None, "synced": None, "offset_ns": None, "bound_ns": None, "source": None, "stratum": None,
    "frequency_ppm": None, "text": "",
}  # fmt: skip
_STA_UNSYNC = 0x0040
_TIME_ERROR = 5
#: `freq` is in ppm with 16 fractional bits.
_FREQUENCY = 65536.0


def read_clock_source(proc: str = "/proc") -> "Claim":
    """Fields of a `clock_source`: of the first running service that responds, else of the kernel."""
    running = _running(proc)
    texts = []
    for daemon in _ORDER:
        if daemon not in running:
            continue
        claim = _query(daemon)
        if "synced" in claim:
            return dict(_UNKNOWN, **dict(claim, daemon=daemon))
        texts.append(claim["text"])
    return _of_kernel(next((name for name in _ORDER if name in running), None), "; ".join(texts))


def _running(proc: str) -> "set[str | None]":
    services: "set[str | None]" = set()
    try:
        pids = [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return services
    for pid in pids:
        try:
            with open("%s/%s/comm" % (proc, pid)) as f:
                services.add(_PROCESSES.get(f.read().rstrip("\n")))
        except (OSError, ValueError):
            continue  # ended
    return services


def _of_kernel(daemon: "str | None", text: str) -> "Claim":
    """adjtimex: whether the clock is synchronised, and its maximum error."""
    state = read_kernel_clock()
    if state is None:
        return dict(_UNKNOWN, daemon=daemon, text=text)
    claim = dict(_UNKNOWN, daemon=daemon or ("kernel" if state.synced else None), synced=state.synced, text=text)
    if state.synced:
        claim.update(bound_ns=state.max_error_ns, frequency_ppm=state.frequency_ppm)
    elif daemon is None and not text:
        claim["text"] = "no time service found and the kernel clock is not synchronised"
    return claim


def _query(daemon: str) -> "Claim":
    """The claim of a service; {"text"} alone if it does not respond or its output cannot be parsed."""
    name, parse = _QUERIES[daemon]
    try:
        status, out, err = commands.run_apart(name, _TIMEOUT_S)
    except (OSError, commands.CommandTimeout) as error:
        return _failure(daemon, name, str(error))
    text = out.decode("utf-8", "replace").strip()
    try:
        if status == 0:
            return parse(text)
    except (ValueError, IndexError, KeyError, OverflowError):
        pass  # reported below with the output
    words = (err.decode("utf-8", "replace").strip() or text).splitlines()
    return _failure(daemon, name, words[0][:200] if words else "no output")


def _failure(daemon: str, command: str, text: str) -> "Claim":
    return {"text": "%s is running, but %s failed: %s" % (daemon, commands.COMMANDS[command][0], text)}


class _Timex(ctypes.Structure):
    """struct timex of <sys/timex.h>; 44 reserved bytes at its end."""

    _fields_ = [
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("constant", ctypes.c_long),
        ("precision", ctypes.c_long), ("tolerance", ctypes.c_long), ("time_s", ctypes.c_long),
        ("time_us", ctypes.c_long), ("tick", ctypes.c_long), ("rest", ctypes.c_long * 8), ("tai", ctypes.c_int),
        ("reserve", ctypes.c_int * 11),
    ]  # fmt: skip


class KernelClock(object):
    """Whether the kernel clock is synchronised, and its maximum error."""

    def __init__(self, synced: bool, max_error_ns: int, frequency_ppm: float) -> None:
        self.synced = synced
        self.max_error_ns = max_error_ns
        self.frequency_ppm = frequency_ppm


def read_kernel_clock() -> "KernelClock | None":
    """The state by adjtimex(2), which needs no privilege to read; None if the call fails."""
    buffer = _Timex()
    try:
        status = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(buffer))
    except (OSError, AttributeError):
        return None
    if status < 0:
        return None
    synced = status != _TIME_ERROR and not buffer.status & _STA_UNSYNC
    return KernelClock(synced, buffer.maxerror * 1000, round(buffer.freq / _FREQUENCY, 3))


_INTEGER = re.compile(r"-?[0-9]{1,19}\Z")


def parse_chrony(text: str) -> "Claim":
    """`chronyc -c -n tracking`: 14 values. Bound as in ClockBound: |offset| + root dispersion + root delay / 2."""
    values = text.splitlines()[0].split(",")
    correction, frequency, delay, dispersion = (float(values[index]) for index in (4, 7, 10, 11))
    stratum = _integer(values[2])
    synced = values[13] != "Not synchronised" and stratum > 0
    return {
        "synced": synced,
        "offset_ns": _ns(-correction) if synced else None,  # chronyc: positive if the clock is slow
        "bound_ns": _ns(abs(correction) + dispersion + delay / 2) if synced else None,
        "source": values[1] or None,
        "stratum": stratum if synced else None,
        "frequency_ppm": _finite(frequency),
        "text": "" if synced else "chronyd has no source",
    }


def parse_ntpd(text: str) -> "Claim":
    """`ntpq -c rv`: comma-separated name=value; offsets, delays and dispersions in ms."""
    values = _pairs(text.replace("\n", " "), ",")
    stratum, leap = _integer(values["stratum"]), values.get("leap", "")
    synced = stratum < 16 and leap != "11"
    offset, delay, dispersion = (float(values[name]) * 1e-3 for name in ("offset", "rootdelay", "rootdisp"))
    return {
        "synced": synced,
        "offset_ns": _ns(-offset) if synced else None,  # ntpd: the correction to apply
        "bound_ns": _ns(abs(offset) + dispersion + delay / 2) if synced else None,
        "source": values.get("refid"),
        "stratum": stratum if synced else None,
        "frequency_ppm": _finite(float(values["frequency"])) if "frequency" in values else None,
        "text": "" if synced else "ntpd has no source",
    }


def parse_timesyncd(text: str) -> "Claim":
    """`timedatectl show-timesync`: name=value per line. It has the server; the kernel has the state."""
    values = _pairs(text, "\n")
    state = read_kernel_clock()
    synced = bool(state and state.synced)
    return {
        "synced": synced,
        "bound_ns": state.max_error_ns if state and synced else None,
        "source": values.get("ServerName") or values.get("ServerAddress") or None,
        "frequency_ppm": state.frequency_ppm if state else None,
        "text": "" if synced else "timesyncd is not synchronised",
    }


def parse_ptp(text: str) -> "Claim":
    """`pmc GET TIME_STATUS_NP`: "name value" per line. gmPresent is also false on the grandmaster itself."""
    values = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2:
            values[words[0]] = words[1]
    offset, has_master = _integer(values["master_offset"]), values["gmPresent"] == "true"
    return {
        "synced": True if has_master else None,
        "offset_ns": offset if has_master else None,
        "source": values.get("gmIdentity"),
        "text": "" if has_master else "no grandmaster present, or this node is the grandmaster",
    }


def _pairs(text: str, separator: str) -> "dict[str, str]":
    pairs = (part.strip().partition("=") for part in text.split(separator))
    return {name.strip().rpartition(" ")[2]: value.strip().strip('"') for name, equals, value in pairs if equals}


def _integer(text: str) -> int:
    """A decimal integer of 64 bits. Raises ValueError for anything else."""
    if _INTEGER.match(text) is None or abs(int(text)) >= 1 << 63:
        raise ValueError("%r is not an integer" % text)
    return int(text)


def _finite(value: float) -> "float | None":
    return value if abs(value) < 1e9 else None


def _ns(seconds: float) -> int:
    """Nanoseconds. Raises ValueError for an infinite value, and for more than 300 years."""
    if not abs(seconds) < 1e10:
        raise ValueError("%r s" % seconds)
    return round(seconds * 1e9)


_QUERIES: "dict[str, tuple[str, Callable[[str], Claim]]]" = {
    "chrony": ("chrony_tracking", parse_chrony),
    "ntpd": ("ntpd_variables", parse_ntpd),
    "timesyncd": ("timesyncd_state", parse_timesyncd),
    "ptp4l": ("ptp_status", parse_ptp),
}
