"""Checks of the agent's environment on this node: one function per check, with cause and remedy."""

import os
import sys
import time

from ..clocks import services
from ..history import boots, journal, slurm
from ..jobs.preflight import size
from ..proc.procfs import read_number
from . import commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..samplers.base import Fields
    from .agent import Agent

    #: (state, text, what to try)
    Result = tuple[str, str, str]

#: Seconds to wait for the first answer of NVML.
NVML_S = 10.0
OK, WARN, FAIL, INFO = "ok", "warn", "fail", "info"


def examine(agent: "Agent", args: "Fields") -> "list[Fields]":
    """All checks as a list of {"name", "state", "text", "try"}."""
    return [_check(name, function, agent) for name, function in CHECKS]


def _check(name: str, function: "Callable[[Agent], Result]", agent: "Agent") -> "Fields":
    state, text, try_ = function(agent)
    return {"name": name, "state": state, "text": text, "try": try_}


def _python(agent: "Agent") -> "Result":
    return OK, "%d.%d.%d at %s" % (sys.version_info[:3] + (sys.executable or "?",)), ""


def _cache(agent: "Agent") -> "Result":
    place = agent.place
    if place.root is None:
        if agent.config.get("ephemeral"):
            return OK, "none (ephemeral); binaries are kept in memory", ""
        return WARN, "no usable folder: %s" % "; ".join(place.refused), "set [agent] cache_dir"
    free = os.statvfs(place.root)
    text = "%s, %s free" % (place.root, size(free.f_bavail * free.f_frsize))
    if place.noexec:
        return WARN, text + ", mounted noexec; binaries are kept in memory", "set [agent] cache_dir to another folder"
    if place.refused:
        return OK, text + " (not usable: %s)" % "; ".join(place.refused), ""
    return OK, text, ""


def _proc(agent: "Agent") -> "Result":
    try:
        with open("/proc/1/stat") as f:
            f.read()
    except OSError:
        return WARN, "processes of other users are hidden (hidepid)", 'run_as = "sudo", or join hidepid\'s group'
    seen = agent.context.shared.get("processes")
    if seen is not None and seen.unreadable:
        return WARN, "%d Python processes of other users are not readable" % seen.unreadable, 'run_as = "sudo"'
    return OK, "all processes visible", ""


def _ptrace(agent: "Agent") -> "Result":
    if os.geteuid() == 0:
        return OK, "root can read any process", ""
    scope = read_number("/proc/sys/kernel/yama/ptrace_scope")
    if scope is None:
        return OK, "no Yama: processes of the same user are readable", ""
    if scope == 0:
        return OK, "ptrace_scope 0: processes of the same user are readable", ""
    try_ = 'run_as = "sudo"; or sysctl kernel.yama.ptrace_scope=0'
    return WARN, "ptrace_scope %d: stacks of running processes are not readable" % scope, try_


def _rights(agent: "Agent") -> "Result":
    """Facts that the console explains: euid, CapEff, CapAmb, ptrace_scope, /dev/kmsg and the journal readable."""
    with open("/proc/self/status") as f:
        caps = dict(line.split(None, 1) for line in f if line.startswith("Cap"))
    scope = read_number("/proc/sys/kernel/yama/ptrace_scope")
    readable = (os.access("/dev/kmsg", os.R_OK), journal.obstacle() is None)
    facts = (os.geteuid(), caps["CapEff:"].strip(), caps.get("CapAmb:", "0").strip(), scope or 0) + readable
    return INFO, "%d %s %s %d %d %d" % facts, ""


def _sudo(agent: "Agent") -> "Result":
    if os.geteuid() == 0:
        return OK, "not needed: the agent is root", ""
    status, output = commands.run("sudo_probe", 5.0)
    if status == 0:
        return OK, "works without a password", ""
    return INFO, "not available (%s)" % (output.splitlines()[0] if output else "status %s" % status), ""


def _py_spy(agent: "Agent") -> "Result":
    agent.blobs.wait("py-spy", 30.0)
    path = agent.blobs.path("py-spy")
    if path is None:
        text = agent.blobs.problem("py-spy") or "py-spy did not arrive"
        return FAIL, text, "see `cache`; on the console: gconsole bundle"
    status, output = commands.run("py_spy_version", 10.0, blob=path)
    if status != 0:
        return FAIL, "does not run on this node: %s" % output, "set [agent] cache_dir to another folder"
    return OK, "%s at %s" % (output, path), ""


def _psutil(agent: "Agent") -> "Result":
    if agent.context.psutil is None:
        reasons = [missing["text"] for missing in agent.missing if missing["name"] == "psutil"]
        return WARN, (reasons or ["absent"])[0], "some host metrics are missing; on the console: gconsole bundle"
    return OK, agent.context.psutil.__version__, ""


def _gpus(agent: "Agent") -> "Result":
    """What the GPU process reports: NVML is never called here, where a hang or a crash would end the exam."""
    deadline = time.monotonic() + NVML_S
    while "gpu_inventory" not in agent.context.shared:
        if time.monotonic() > deadline:
            return FAIL, "NVML has not answered for %d s (nvmlInit)" % NVML_S, "nvidia-smi and dmesg show more"
        time.sleep(0.05)
    gpus = agent.context.shared["gpu_inventory"]
    if gpus.get("fault"):
        return FAIL, gpus["text"], gpus["try_"]
    if gpus.get("missing"):
        total = gpus["count"] + len(gpus["missing"])
        where = ", ".join(gpus["missing"])
        try_ = "dmesg | grep %s shows more" % gpus.get("log", "NVRM")
        return FAIL, "%d of %d GPUs; missing: %s" % (gpus["count"], total, where), try_
    if not gpus["count"]:
        reasons = [missing["text"] for missing in agent.missing if missing["name"].startswith("gpu")]
        return INFO, (reasons or ["no NVIDIA GPU"])[0], ""
    driver = " (%s, from sysfs)" % gpus["log"] if "log" in gpus else ""  # NVML's inventory has none
    return OK, "%d GPUs%s" % (gpus["count"], driver), ""


def _clock(agent: "Agent") -> "Result":
    """Whether the kernel's clock is synchronised."""
    state = services.read_kernel_clock()
    if state is None:
        return INFO, "not reported by the kernel", ""
    if not state.synced:
        return WARN, "clock not synchronised (adjtimex)", "start chrony, ntpd or ptp4l"
    return OK, "clock synchronised (adjtimex), max error %d ms" % max(1, state.max_error_ns // 1000000), ""


def _buffer(agent: "Agent") -> "Result":
    """Seconds of records that fit into the buffer at the current rate, uncompressed."""
    before, began = agent.outbox.posted_bytes, time.monotonic()
    time.sleep(max(2.0, 2 * agent.context.interval_s))
    rate = (agent.outbox.posted_bytes - before) / (time.monotonic() - began)
    size = agent.config.get("buffer_bytes", 0)
    covers = "about %s s of records" % _rounded(size / rate) if rate else "records of any duration"
    if agent.linger_s <= 0:
        return INFO, "linger_s is 0: records are not kept while the console is away (%s would fit)" % covers, ""
    if rate and size / rate < agent.linger_s:
        return WARN, "%s fit, less than linger_s = %g s" % (covers, agent.linger_s), "raise [agent] buffer_bytes"
    return OK, "%s fit" % covers, ""


def _history(agent: "Agent") -> "Result":
    """Which records of the time before the agent can be read."""
    if agent.context.process_filter or agent.context.simulate_gpus:
        return INFO, "not read: this node is a part of its machine", ""
    missing = [lack for lack in agent.missing if lack["name"] in ("kernel_log", "journal", "core_dumps", "slurm")]
    if missing:
        return WARN, "; ".join(lack["name"] + ": " + lack["text"] for lack in missing), missing[0]["try"]
    sources = ["kernel log"] + (["journal"] if journal.obstacle() is None else [])
    sources += ["wtmp"] if os.path.isfile(boots.WTMP) else []
    return OK, "readable: " + ", ".join(sources + (["Slurm"] if slurm.is_present() else [])), ""


def _rounded(number: float) -> str:
    """Rounded to one significant digit, so that similar nodes give the same text."""
    unit = 10 ** (len(str(int(number))) - 1)
    return "{:,}".format(int(number / unit) * unit)


CHECKS = [
    ("python", _python),
    ("proc", _proc),
    ("ptrace", _ptrace),
    ("rights", _rights),
    ("sudo", _sudo),
    ("psutil", _psutil),
    ("py-spy", _py_spy),
    ("gpus", _gpus),
    ("clock", _clock),
    ("history", _history),
    ("cache", _cache),
    ("buffer", _buffer),
]
