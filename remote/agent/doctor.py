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

#: Seconds to wait for NVML: for its first answer, and until each GPU was read.
NVML_S = 10.0
#: Distinct reasons that are given in full.
_MOST_REASONS = 4
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


def _gpus(agent: "Agent") -> "Result":
    """What the GPU process reports: NVML is never called here, where a hang or a crash would end the exam.

    A driver that opens a GPU may fail each call after that, so `ok` needs GPUs that were read.
    """
    shared, deadline = agent.context.shared, time.monotonic() + NVML_S
    while not _is_gpu_state_known(shared) and time.monotonic() <= deadline:
        time.sleep(0.05)
    if "gpu_inventory" not in shared:
        return FAIL, "NVML has not answered for %d s (nvmlInit)" % NVML_S, "nvidia-smi and dmesg show more"
    gpus, faults = shared["gpu_inventory"], shared.get("gpu_faults")
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
    if faults:
        return _faulty(gpus, faults)
    if faults is None:
        text = "NVML lists %d GPUs, but they were not read within %d s" % (gpus["count"], NVML_S)
        return WARN, text, "run gconsole doctor again; if this persists, read dmesg for NVRM messages"
    driver = " (%s, from sysfs)" % gpus["log"] if "log" in gpus else ""  # NVML's inventory has none
    return OK, "%d GPUs%s" % (gpus["count"], driver), ""


def _is_gpu_state_known(shared: "Fields") -> bool:
    """Whether the GPUs have a fault that stays, or were read, or there are none."""
    gpus = shared.get("gpu_inventory")
    if gpus is None or gpus.get("fault") == "gpu_starting":
        return False
    return bool(gpus.get("fault") or not gpus["count"] or "gpu_faults" in shared)


def _faulty(gpus: "Fields", faults: "list[tuple[int, str]]") -> "Result":
    """GPUs that are listed and cannot be used: what the driver answers, and what to do."""
    by_reason: "dict[str, list[str]]" = {}
    for index, reason in faults:
        by_reason.setdefault(reason, []).append("%d" % index)
    texts = ["GPU %s: %s" % (", ".join(indices), reason) for reason, indices in by_reason.items()]
    text = "; ".join(["%d of %d GPUs cannot be used" % (len(faults), gpus["count"])] + texts[:_MOST_REASONS])
    if "log" in gpus:
        return FAIL, text, "reset the GPU or reboot the node; dmesg | grep %s shows more" % gpus["log"]
    try_ = "drain the node, let gconsole close the GPU (gconsole release NODE), then nvidia-smi --gpu-reset -i %s"
    return FAIL, text, try_ % ",".join("%d" % index for index, _ in faults) + "; or reboot"


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
    ("py-spy", _py_spy),
    ("gpus", _gpus),
    ("clock", _clock),
    ("history", _history),
    ("cache", _cache),
    ("buffer", _buffer),
]
