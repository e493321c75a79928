"""What the node's own time service says of its clock: chronyd, ntpd, timesyncd, ptp4l, or the kernel alone.

Read only, without root where the service allows. Every answer is a claim of that service, none a measurement of ours.
"""

import os

from ..agent import commands
from . import kernel_clock

_ANSWER_S = 2.0
#: Names of processes (/proc/PID/comm holds 15 letters) → the service.
_PROCESSES = {
    "chronyd": "chrony", "ntpd": "ntpd", "ntpd:": "ntpd", "systemd-timesyn": "timesyncd", "ptp4l": "ptp4l",
}  # fmt: skip
#: Who is asked first where several run: ptp4l steers the card's clock, and the others may follow that.
_ORDER = ("ptp4l", "chrony", "ntpd", "timesyncd")
_NOTHING = {
    "daemon": None, "synced": None, "offset_ns": None, "bound_ns": None, "source": None, "stratum": None,
    "frequency_ppm": None, "text": "",
}  # fmt: skip


def look(proc="/proc"):
    """The fields of a `clock_source`: of the first service that runs and answers, else what the kernel knows."""
    running = _running(proc)
    texts = []
    for daemon in _ORDER:
        if daemon not in running:
            continue
        found = _ask(daemon)
        if "synced" in found:
            return dict(_NOTHING, **dict(found, daemon=daemon))
        texts.append(found["text"])
    return _of_the_kernel(next((name for name in _ORDER if name in running), None), "; ".join(texts))


def _running(proc):
    found = set()
    try:
        pids = [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return found
    for pid in pids:
        try:
            with open("%s/%s/comm" % (proc, pid)) as f:
                found.add(_PROCESSES.get(f.read().rstrip("\n")))
        except (OSError, ValueError):
            continue  # it has ended
    return found


def _of_the_kernel(daemon, text):
    """adjtimex: whether somebody keeps the clock in step, and the largest error they admit."""
    state = kernel_clock.read()
    if state is None:
        return dict(_NOTHING, daemon=daemon, text=text)
    found = dict(_NOTHING, daemon=daemon or ("kernel" if state.synced else None), synced=state.synced, text=text)
    if state.synced:
        found.update(bound_ns=state.max_error_ns, frequency_ppm=state.frequency_ppm)
    elif daemon is None and not text:
        found["text"] = "no time service was found, and the kernel's clock is not steered"
    return found


def _ask(daemon):
    """What a service answers, read; {"text"} alone where it does not, or cannot be understood."""
    name, parse = _QUESTIONS[daemon]
    try:
        status, out, err = commands.run_apart(name, _ANSWER_S)
    except (OSError, commands.NoAnswer) as error:
        return {"text": "%s runs, %s: %s" % (daemon, commands.COMMANDS[name][0], error)}
    text = out.decode("utf-8", "replace").strip()
    try:
        if status == 0:
            return parse(text)
    except (ValueError, IndexError, KeyError):
        pass  # said below, with the words that were not understood
    words = (err.decode("utf-8", "replace").strip() or text).splitlines()
    return {"text": "%s runs, %s: %s" % (daemon, commands.COMMANDS[name][0], words[0][:200] if words else "no answer")}


def parse_chrony(text):
    """`chronyc -c -n tracking`: 14 values. Its bound is ClockBound's: |offset| + root dispersion + root delay / 2."""
    values = text.splitlines()[0].split(",")
    correction, frequency, delay, dispersion = (float(values[index]) for index in (4, 7, 10, 11))
    synced = values[13] != "Not synchronised" and int(values[2]) > 0
    return {
        "synced": synced,
        "offset_ns": _ns(-correction) if synced else None,  # chronyc's is positive where the clock is slow
        "bound_ns": _ns(abs(correction) + dispersion + delay / 2) if synced else None,
        "source": values[1] or None,
        "stratum": int(values[2]) if synced else None,
        "frequency_ppm": frequency,
        "text": "" if synced else "chronyd has no source",
    }


def parse_ntpd(text):
    """`ntpq -c rv`: name=value, between commas; offsets, delays and dispersions in ms."""
    values = _pairs(text.replace("\n", " "), ",")
    stratum, leap = int(values["stratum"]), values.get("leap", "")
    synced = stratum < 16 and leap != "11"
    offset, delay, dispersion = (float(values[name]) * 1e-3 for name in ("offset", "rootdelay", "rootdisp"))
    return {
        "synced": synced,
        "offset_ns": _ns(-offset) if synced else None,  # ntpd's is what has to be added
        "bound_ns": _ns(abs(offset) + dispersion + delay / 2) if synced else None,
        "source": values.get("refid"),
        "stratum": stratum if synced else None,
        "frequency_ppm": float(values["frequency"]) if "frequency" in values else None,
        "text": "" if synced else "ntpd has no source",
    }


def parse_timesyncd(text):
    """`timedatectl show-timesync`: name=value a line. It tells its server, and the kernel whether that helps."""
    values = _pairs(text, "\n")
    state = kernel_clock.read()
    synced = bool(state and state.synced)
    return {
        "synced": synced,
        "bound_ns": state.max_error_ns if state and synced else None,
        "source": values.get("ServerName") or values.get("ServerAddress") or None,
        "frequency_ppm": state.frequency_ppm if state else None,
        "text": "" if synced else "timesyncd is not in step with a server",
    }


def parse_ptp(text):
    """`pmc GET TIME_STATUS_NP`: "name value" a line. gmPresent false also means "I am the grandmaster"."""
    values = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2:
            values[words[0]] = words[1]
    offset, has_master = int(values["master_offset"]), values["gmPresent"] == "true"
    return {
        "synced": True if has_master else None,
        "offset_ns": offset if has_master else None,
        "source": values.get("gmIdentity"),
        "text": "" if has_master else "no grandmaster is present, or this is it",
    }


def _pairs(text, between):
    pairs = (part.strip().partition("=") for part in text.split(between))
    return {name.strip().rpartition(" ")[2]: value.strip().strip('"') for name, equals, value in pairs if equals}


def _ns(seconds):
    return round(seconds * 1e9)


_QUESTIONS = {
    "chrony": ("chrony_tracking", parse_chrony),
    "ntpd": ("ntpd_variables", parse_ntpd),
    "timesyncd": ("timesyncd_state", parse_timesyncd),
    "ptp4l": ("ptp_status", parse_ptp),
}
