"""Classes of messages of services that matter to a training job: which service, how they are recognised.

The texts are those of slurmd and slurmstepd 20.11 to 24.05, containerd, kubelet 1.24 to 1.31, systemd 239 to 256,
systemd-oomd, earlyoom, sshd, the NVIDIA fabric manager and persistence daemon, and chronyd 3 and 4. A message counts
only if its service wrote it, which the journal proves by the unit and the user, and not if any other program did.
"""

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

#: Services, and the systemd units that run them.
UNITS = {
    "slurm": ("slurmd.service", "slurmstepd.scope"),
    "containers": (
        "containerd.service",
        "docker.service",
        "kubelet.service",
        "k3s-agent.service",
        "rke2-agent.service",
    ),
    "oomd": ("systemd-oomd.service", "earlyoom.service"),
    "sshd": ("sshd.service", "ssh.service"),
    "nvidia": ("nvidia-fabricmanager.service", "nvidia-persistenced.service"),
    "chrony": ("chronyd.service", "chrony.service"),
}
#: Units whose failure concerns the jobs of a node: systemd reports it.
IMPORTANT = tuple(name + ".service" for name in (
    "slurmd", "munge", "kubelet", "containerd", "docker", "crio", "k3s-agent", "rke2-agent", "nvidia-fabricmanager",
    "nvidia-persistenced", "nvidia-imex", "openibd", "autofs", "sssd", "gpfs", "beegfs-client", "lnet",
))  # fmt: skip
_SLURM_TRY = "see the log of slurmd (scontrol show config), and scontrol show job"


class ServiceFault(object):
    """One message: class, severity, remedy, what it names, and whether it ends a fault."""

    __slots__ = ("is_over", "name", "pid", "severity", "subject", "try_")

    def __init__(self, name: str, severity: str, try_: str, subject: str, pid: "int | None", is_over: bool) -> None:
        self.name, self.severity, self.try_, self.subject, self.pid, self.is_over = (
            name, severity, try_, subject, pid, is_over
        )  # fmt: skip


class _Rule(object):
    def __init__(self, service: str, name: str, severity: str, try_: str, pattern: str) -> None:
        self.service, self.name, self.severity, self.try_ = service, name, severity, try_
        self._text = pattern
        self._pattern: "re.Pattern[str] | None" = None

    def match(self, text: str) -> "re.Match[str] | None":
        """The match at the start of a message. Compiled when it is needed."""
        if self._pattern is None:
            self._pattern = re.compile(self._text)
        return self._pattern.match(text)


_STEP = r"(?:\[(?P<step>[0-9]+(?:\.[\w+]+)?)\] )?(?:error: |fatal: )?"
_ID = r"(?P<who>[0-9]+(?:_[0-9]+)?(?:\.\w+)?)"
_RULES = (
    _Rule("slurm", "slurm_oom", "warning", "request more memory (--mem), or reduce what the job needs",
        _STEP + r"Detected [0-9]+ oom[-_]kill event(?:s|\(s\))? in (?:StepId=|step )" + _ID),
    _Rule("slurm", "slurm_cancelled", "warning", _SLURM_TRY,
        _STEP + r"\*\*\* (?:JOB|STEP) " + _ID + r" ON \S+ CANCELLED AT \S+(?: DUE TO [A-Za-z ]{1,60})? \*\*\*"),
    _Rule("slurm", "slurm_unkillable", "error", "drain the node: processes of the job cannot be ended",
        _STEP + r"\*\*\* (?:JOB|STEP) " + _ID + r" STEPD TERMINATED ON "),
    _Rule("slurm", "slurm_prolog", "error", _SLURM_TRY,
        _STEP + r"(?:\[job (?P<who>[0-9]+)\] )?(?:prolog|epilog|Prolog|Epilog) (?:failed|error)"),
    _Rule("slurm", "slurm_controller", "warning", "check slurmctld, and the network to it",
        _STEP + r"Unable to register: Unable to contact slurm controller"),
    _Rule("slurm", "slurm_health_check", "warning", "see what the health check of the site prints",
        _STEP + r"health_check failed: rc:"),
    _Rule("containers", "container_oom", "warning", "raise the memory limit of the container",
        r'.{0,120}msg="TaskOOM event .{0,40}?[cC]ontainer_?[iI][dD]:\W{0,3}(?P<who>[0-9a-f]{12})'),
    _Rule("containers", "eviction", "error", "reduce what the pods of this node use, or request what they need",
        r'.{0,80}"Eviction manager: (?:must evict pod\(s\) to reclaim" resourceName="(?P<who>[\w.-]{1,40})'
        r'|pod is evicted successfully" pod="(?P<pod>[\w./-]{1,120}))'),
    _Rule("containers", "node_not_ready", "error", "kubectl describe node; see the log of the kubelet",
        r'.{0,80}"Node became not ready"|.{0,200}PLEG is not healthy: pleg was last seen active'),
    _Rule("containers", "probe_failed", "warning", "kubectl describe pod shows the failed probe",
        r'.{0,160}containerMessage="Container (?P<who>[\w.-]{1,64}) failed (?:liveness|startup) probe, '
        r"will be restarted"),
    _Rule("oomd", "oom_kill", "error", "reduce the memory the job needs on this node, or raise its limit",
        r"Killed (?P<who>/\S{1,200}) due to (?:memory|swap)"),
    _Rule("oomd", "oom_kill", "error", "reduce the memory the job needs on this node, or change the limits of earlyoom",
        r'sending SIG(?:TERM|KILL) to process (?P<pid>[0-9]{1,7}) uid [0-9]+ "(?P<who>.{1,16}?)"'),
    _Rule("sshd", "ssh_throttled", "warning", "raise MaxStartups of sshd, or lower [ssh] connections at a time",
        r"(?:error: )?(?:beginning MaxStartups throttling|(?P<over>exited MaxStartups throttling)"
        r"|drop connection #[0-9]+ from .{1,120} past MaxStartups)"),
    _Rule("sshd", "ssh_denied", "warning", "log in where your account has a running job, or as the site documents",
        r"(?:fatal: )?Access denied (?:for user (?P<who>\S{1,64}) by PAM account configuration|by pam_slurm_adopt)"
        r"|pam_slurm_adopt(?:\[[0-9]+\])?: .{0,60}(?:Access denied|send_user_msg)"),
    _Rule("nvidia", "sxid", "error", "look the SXid up in the documentation of the fabric manager",
        r".{0,80}detected NVSwitch (?P<mild>non-)?fatal error (?P<who>[0-9]{1,6})"),
    _Rule("nvidia", "gpu_driver", "error", "check the GPU driver: nvidia-smi, dmesg",
        r"(?:Failed to query NVIDIA devices|device (?P<who>[0-9a-f:.]{7,16}) - failed to open)"),
    _Rule("chrony", "clock_step", "warning", "see chronyc tracking: the clock of this node was wrong",
        r"(?:System clock was stepped by|System clock wrong by|(?:Forward|Backward) time jump detected)"),
    _Rule("chrony", "clock_unsynchronised", "warning", "check the time servers: chronyc sources",
        r"Can't synchronise: no (?:selectable sources|majority)|(?P<over>Selected source )"),
)  # fmt: skip
_SERVICE_OF = {unit: service for service, units in UNITS.items() for unit in units}
_FAILED = re.compile(
    r"(?P<unit>[\w@.\\-]{1,128}): (?:Failed with result '(?P<result>[\w-]{1,40})'|(?P<oom>A process of this unit "
    r"has been killed by the OOM killer))|Unit (?P<old>[\w@.\\-]{1,128}) entered failed state"
)


def service_fault(unit: str, text: str) -> "ServiceFault | None":
    """The fault that a message of the service of `unit` reports, or None."""
    service = _SERVICE_OF.get(unit)
    for rule in _RULES if service else ():
        match = rule.match(text) if rule.service == service else None
        if match is not None:
            groups = match.groupdict()
            subject = groups.get("who") or groups.get("pod") or groups.get("step") or ""
            over = bool(groups.get("over"))
            severity = "info" if over else "warning" if groups.get("mild") else rule.severity
            pid = int(groups["pid"]) if groups.get("pid") else None
            subject = "" if rule.name.startswith("clock_") else subject
            return ServiceFault(rule.name, severity, "" if over else rule.try_, subject, pid, over)
    return None


def unit_fault(unit: str, text: str) -> "ServiceFault | None":
    """The fault of an important unit that a message of systemd about it reports, or that it was started again."""
    if unit not in IMPORTANT:
        return None
    if text.startswith("Started "):
        return ServiceFault("service_failed", "info", "", unit, None, True)
    if _FAILED.match(text) is None:
        return None
    return ServiceFault(
        "service_failed", "error", "systemctl status %s; journalctl -u %s" % (unit, unit), unit, None, False
    )


def units() -> "Iterable[str]":
    """All units whose messages are read."""
    return sorted(_SERVICE_OF)
