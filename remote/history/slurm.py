"""Slurm's word on this node and on jobs: state and reason, as `scontrol` prints them."""

import os
import re

from ..agent import commands
from ..proc.numbers import parse_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..samplers.base import Fields

TIMEOUT_S, MAX_BYTES = 5.0, 1 << 18
#: Where a node has Slurm's configuration. $SLURM_CONF of a job is not used: a user sets it, and it names plugins.
CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf",
                  "/var/spool/slurmd/conf-cache/slurm.conf", "/var/spool/slurm/d/conf-cache/slurm.conf")  # fmt: skip
_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")
_NODE_STATE = re.compile(r"(?:^| )State=([A-Z_+*~#!%$@^-]{1,120})(?: |$)")
_NODE_REASON = re.compile(r" Reason=(.{1,300}?)(?: \[(\w{1,32})@([0-9T:-]{10,19})\])?\s*$")
_JOB_STATE = re.compile(r"^ +JobState=([A-Z_]{2,20}) Reason=(.{1,120}?) Dependency=", re.M)
_JOB_FACTS = re.compile(
    r"^ +Requeue=[0-9]+ Restarts=([0-9]{1,6}) .*?ExitCode=([0-9]{1,3}):([0-9]{1,3})\s*$", re.MULTILINE
)
#: States of a node in which its jobs are lost, or will be.
_LOST = ("DOWN", "FAIL", "NOT_RESPONDING", "ERROR")
_DRAINED = ("DRAIN", "REBOOT", "MAINT", "POWER")
_JOB_FAILED = ("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "CANCELLED", "PREEMPTED")
_TRY = "scontrol show node; ask the site, or sacct -j JOB for the job"


def is_present() -> bool:
    """Whether the node belongs to a Slurm cluster, by its configuration."""
    return bool(os.environ.get("SLURM_CONF")) or any(os.path.exists(path) for path in CONFIGURATIONS)


def node_state(name: str) -> "Fields | None":
    """The fields of a `log` record on this node's state; None for an ordinary one. Raises OSError, ValueError."""
    text = _ask("slurm_node", {"{node}": [name]}) if _NODE.match(name) else ""
    state = _NODE_STATE.search(text)
    if state is None:
        raise ValueError("scontrol printed no state of node %s" % name)
    words = state.group(1).rstrip("*~#!%$@^-").split("+")
    if state.group(1).endswith("*"):
        words.append("NOT_RESPONDING")
    is_lost = any(word.startswith(_LOST) for word in words)
    if not is_lost and not any(word.startswith(_DRAINED) for word in words):
        return None
    reason = _NODE_REASON.search(text)
    why = ": %s" % reason.group(1).strip() if reason is not None else ""
    who = " (set by %s at %s)" % reason.group(2, 3) if reason is not None and reason.group(2) else ""
    return {
        "source": "slurm", "severity": "error" if is_lost else "warning", "fault": "slurm_node", "subject": name,
        "text": "Slurm has this node as %s%s%s" % ("+".join(words), why, who), "try_": _TRY,
    }  # fmt: skip


def job_state(job: str) -> "tuple[str, Fields]":
    """(state, the fields of a `log` record on it) of a job by its number. Raises OSError, ValueError."""
    text = _ask("slurm_job", {"{job}": [job]}) if parse_count(job) is not None else ""
    state = _JOB_STATE.search(text)
    if state is None:
        raise ValueError("scontrol printed no state of job %s" % job)
    word, reason = state.groups()
    facts = _JOB_FACTS.search(text)
    words = [word] + ([reason] if reason not in ("None", "(null)") else [])
    if facts is not None:
        restarts, code, number = facts.groups()
        words += ["restarted %s times by Slurm" % restarts] if restarts != "0" else []
        words += ["exit code %s" % code] if code != "0" else []
        words += ["signal %s" % number] if number != "0" else []
    fields: "Fields" = {"source": "slurm", "severity": "info", "subject": job,
                        "text": "Slurm job %s: %s" % (job, ", ".join(words))}  # fmt: skip
    if word in _JOB_FAILED:
        fields.update(severity="warning", fault="slurm_job", try_=_TRY)
    return "%s %s %s" % (word, reason, facts and facts.groups()), fields


def _ask(name: str, words: "dict[str, list[str]]") -> str:
    stream = commands.LineStream(name, words, TIMEOUT_S, MAX_BYTES)
    text = b"\n".join(stream).decode("utf-8", "replace")
    if stream.reason:
        raise ValueError("scontrol: %s" % stream.reason)
    return text
